"""Short names of models, such as `haiku` or `gpt-5`, and notices about unknown names."""

from collections.abc import Mapping
from difflib import get_close_matches

from .catalog import known_model, known_models, model_of_family
from .price_data import listed_model, listed_names
from .providers import DEFAULT_PROVIDER, canonical_id, endpoint_of, providers, resolve_model

_SCRIPTED = "scripted"


def full_model_id(name: str, base_url: str | None, environ: Mapping[str, str]) -> str:
    """Return the ID of a model with a short name: the newest model of a family (`haiku`), a known
    model without `claude-`, or a model of the only provider that has it (`gpt-5`). Return other
    names unchanged, and all names of models on the user's own server, except for families.
    """
    id = canonical_id(name)
    if "/" in id or ":" in id or id.startswith((_SCRIPTED, "claude")) or id in known_models():
        return name
    if id.isalpha() and (family := model_of_family(id.lower(), "")) != id.lower():
        return family
    if f"claude-{id}" in known_models():
        return f"claude-{id}"
    if endpoint_of(id, base_url, environ).address:
        return name
    found = [
        each.name
        for each in providers().values()
        if each.address and not each.local and listed_model(each, id)
    ]
    return f"{found[0]}/{id}" if len(found) == 1 else name


def unknown_model_notice(id: str, base_url: str | None, environ: Mapping[str, str]) -> str:
    """Return a notice that a model is unknown, with the nearest known name. Return "" for a known
    model, and for a server whose models are not known. A server may have the model all the same.
    """
    id = canonical_id(id)
    provider, name = resolve_model(id)
    is_default = provider.name == DEFAULT_PROVIDER
    # A colon follows the prefix of an extension's provider; an unknown provider has its own error.
    if id.startswith(_SCRIPTED) or (is_default and (":" in name or "/" in name)):
        return ""
    if not endpoint_of(id, base_url, environ).is_own or known_model(id):
        return ""
    near = get_close_matches(name, _own_names() if is_default else listed_names(provider), 1)
    if not near and not is_default:
        return ""
    meant = f": did you mean {id.removesuffix(name)}{near[0]}?" if near else "."
    return f"{id} is not a known model{meant} It will be used anyway."


def _own_names() -> list[str]:
    """Return the IDs of the default provider's models, and the short names of their families."""
    known = [*known_models()]
    parts = (part for id in known for part in id.split("-")[1:])
    return [*known, *dict.fromkeys(filter(str.isalpha, parts))]
