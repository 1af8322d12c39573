"""Find the key of a provider in the environment. Imports nothing slow, because a missing key is
reported before the prompt is drawn.
"""

from collections.abc import Mapping

from ..errors import NoCredentials
from .providers import FILE_NAME, LOCAL, Endpoint, Provider

ANY_TOKEN = "none"  # for a server that accepts any token


def find_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """Return the variable with the key for a server, "" if it needs none. Raises NoCredentials for
    a missing address or key, and for a key with invalid characters.
    """
    provider = endpoint.provider
    if not endpoint.address and provider.name != LOCAL:
        variable = provider.address_variable
        what = variable or f"[{provider.name}] address"
        raise NoCredentials(
            f"No address for {provider.name}: {what} is not set.",
            hint=f"export {variable}=https://…" if variable else f"Add it to {FILE_NAME}.",
        )
    if name := next((name for name in provider.keys if environ.get(name)), ""):
        check_key(name, environ[name])
        return name
    if not endpoint.needs_key or provider.key_header in map(str.lower, provider.headers):
        return ""
    if not provider.keys:
        raise NoCredentials(
            f"No key for {provider.name}: no variable for its key is configured.",
            hint=f'Set it in providers.toml: keys = ["NAME"] in [{provider.name}], or local = true '
            "for a server that needs no key.",
        )
    states = [
        f"{name} is {'set but empty' if name in environ else 'not set'}" for name in provider.keys
    ]
    raise NoCredentials(
        f"No key for {provider.name}: {', '.join(states)}.", hint=f"export {provider.keys[0]}=…"
    )


def check_key(name: str, value: str, hint: str = "") -> None:
    """Raise NoCredentials for a blank key, or a key with invalid characters."""
    if not value.strip():
        hint = hint or f"Set it: export {name}=…"
        raise NoCredentials(f"No key for the model: {name} is set but blank.", hint=hint)
    if value != value.strip():
        what = "a line break" if set("\r\n") & {value[0], value[-1]} else "a blank"
        raise NoCredentials(
            f"{name} begins or ends with {what}, which cannot be part of a key.",
            hint=f"Set it again without it: export {name}=…",
        )
    if not (value.isascii() and value.isprintable()):
        raise NoCredentials(
            f"{name} contains a line break or a character that is invalid in a key.",
            hint=f"Set it again: export {name}=…",
        )


def secrets_of(provider: Provider, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of a provider, from the environment and from its configured headers."""
    found = [environ[name] for name in provider.keys if environ.get(name)]
    return (*found, *(value for _, value in provider.written_keys()))


def key_headers(endpoint: Endpoint, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for each request to a server, including the key. Raises NoCredentials."""
    provider, name = endpoint.provider, find_key(endpoint, environ)
    headers = dict(provider.headers)
    if name:
        bearer = "Bearer " if provider.key_header == "authorization" else ""
        headers[provider.key_header] = f"{bearer}{environ[name]}"
    return headers
