"""The model from the settings: its full ID, its protocol, its key and its address.

Imports nothing slow, because the key of a model is checked before the prompt is drawn. A model may
have a short name, such as `haiku` or `gpt-5`. Unknown names give a notice.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.keys import SCRIPTED
from ..errors import UsageError
from .catalog import known_model, known_models, listed_model, listed_names, model_of_family
from .providers import (
    CHAT,
    DEFAULT_PROVIDER,
    MESSAGES,
    RESPONSES,
    UNENCRYPTED,
    Endpoint,
    canonical_id,
    check_address,
    endpoint_of,
    find_provider,
    providers,
    resolve_model,
    unencrypted_host,
    variables,
)

if TYPE_CHECKING:
    from ..config.settings import ModelSettings, Settings
    from .base import Model, ProtocolModule
    from .wire import Wire

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


# Prefix of all variables of the `anthropic` SDK, including some not in the table of providers.
_SDK_PREFIX = "ANTHROPIC_"


def _messages() -> "ProtocolModule":
    from .messages import protocol

    return protocol


def _responses() -> "ProtocolModule":
    from .http_protocol import HttpProtocol

    return HttpProtocol(_responses_wire)


def _responses_wire() -> "Wire":
    from .responses.wire import WIRE

    return WIRE


def _chat() -> "ProtocolModule":
    from .http_protocol import HttpProtocol

    return HttpProtocol(_chat_wire)


def _chat_wire() -> "Wire":
    from .chat.wire import WIRE

    return WIRE


def _scripted() -> "ProtocolModule":
    from . import scripted

    return scripted


# By the name in the log. Each is imported when needed.
PROTOCOLS: "dict[str, Callable[[], ProtocolModule]]" = {
    MESSAGES: _messages,
    RESPONSES: _responses,
    CHAT: _chat,
    "scripted": _scripted,
}


def endpoint_for(chosen: "ModelSettings", environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint for the model of the settings."""
    return endpoint_of(canonical_id(chosen.id), chosen.base_url, environ)


def protocol_for(chosen: "ModelSettings", environ: Mapping[str, str]) -> "ProtocolModule":
    """Return the protocol of the model of the settings. `scripted:FILE` replays the steps in that
    file; other models use the protocol of their provider.
    """
    if chosen.id.startswith(SCRIPTED):
        return _scripted()
    return PROTOCOLS[endpoint_for(chosen, environ).protocol]()


def start_import(chosen: "ModelSettings", environ: Mapping[str, str]) -> None:
    """Start to import the modules for the first request, in the background."""
    protocol_for(chosen, environ).start_import(endpoint_for(chosen, environ), environ)


def make_model(settings: "Settings", environ: Mapping[str, str], state: Path) -> "Model":
    """Return the model of the settings. Findings about its server are stored in the directory
    `state`. Raises UsageError for an unreadable script, an unknown provider, or a provider without
    a model.
    """
    _check_provider(settings.model, environ)
    chosen = replace(settings.model, id=canonical_id(settings.model.id))
    return protocol_for(chosen, environ).make(chosen, environ, state)


def _check_provider(chosen: "ModelSettings", environ: Mapping[str, str]) -> None:
    """Raise UsageError for an unknown provider, and for a provider's name without a model. If
    ANTHROPIC_BASE_URL or `model.base_url` is set, a model's own name may contain a slash.
    """
    name = chosen.id.rstrip("/")
    if name in providers():
        raise UsageError(
            f"{name} is a provider, not a model",
            hint=f"Name one of its models: {name}/NAME. `ctxagent models {name}` lists them.",
        )
    first, slash, rest = canonical_id(chosen.id).partition("/")
    endpoint = endpoint_for(chosen, environ)
    unknown = slash and endpoint.provider.name == DEFAULT_PROVIDER and not endpoint.address
    if unknown and not chosen.id.startswith(SCRIPTED):
        from difflib import get_close_matches

        meant = find_provider(first)
        near = [meant.name] if meant else get_close_matches(first.lower(), providers(), 3)
        instead = " or ".join(f"{name}/{rest}" for name in near)
        hint = f"Did you mean {instead}? " if near else ""
        hint += "`ctxagent models` lists the providers."
        raise UsageError(f"{first!r} is not a provider of models", hint=hint)


def find_key(chosen: "ModelSettings", environ: Mapping[str, str]) -> str:
    """Return the name of the credentials for requests, "" if none are needed. Raises NoCredentials,
    RequestRejected for an invalid address, and UsageError for an unknown provider.
    """
    _check_provider(chosen, environ)
    protocol, endpoint = protocol_for(chosen, environ), endpoint_for(chosen, environ)
    if endpoint.address and not chosen.id.startswith(SCRIPTED):
        check_address(endpoint.address, endpoint.provider.address_variable)
    return protocol.find_key(endpoint, environ)


def main_key_variable(chosen: "ModelSettings") -> str:
    """Return the main key variable for the model of the settings, "" if there is none."""
    keys = (
        ()
        if chosen.id.startswith(SCRIPTED)
        else resolve_model(canonical_id(chosen.id)).provider.keys
    )
    return keys[0] if keys else ""


def with_model(chosen: "ModelSettings", id: str) -> "ModelSettings":
    """Return the settings with another model. Keep the address and the window only if the provider
    is the same.
    """
    if resolve_model(canonical_id(id)).provider == resolve_model(canonical_id(chosen.id)).provider:
        return replace(chosen, id=id)
    return replace(chosen, id=id, base_url=None, context_window=None)


def address_of(chosen: "ModelSettings", environ: Mapping[str, str]) -> str:
    """Return the base URL for requests, "" for the default of the public API and for scripted
    models.
    """
    return "" if chosen.id.startswith(SCRIPTED) else endpoint_for(chosen, environ).address


def unencrypted_warnings(chosen: "ModelSettings", environ: Mapping[str, str]) -> list[str]:
    """Return a warning if the key would be sent unencrypted to another machine."""
    host = unencrypted_host(address_of(chosen, environ))
    return [UNENCRYPTED.format(host=host)] if host else []


def is_provider_variable(variable: str) -> bool:
    """Return True for an environment variable with the key or address of a provider."""
    return variable.startswith(_SDK_PREFIX) or variable in {*variables()}
