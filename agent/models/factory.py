"""The wire protocols, and the model that the settings name. Imports nothing heavy: the key of a
model is looked for before the prompt is painted."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..config.keys import SCRIPTED
from ..errors import UsageError
from .address import UNENCRYPTED, unencrypted_host
from .catalog import MESSAGES, known_model
from .messages.servers import BASE_URL_VAR, KEY_VAR, TOKEN_VAR

if TYPE_CHECKING:
    from ..config.settings import ModelSettings, Settings
    from .base import Model, Provider


class WireProtocol(NamedTuple):
    """A protocol, and the environment variables that belong to it."""

    load: "Callable[[], Provider]"  # imports it
    keys: tuple[str, ...] = ()  # the variables with a key; the first is the usual one
    address: str = ""  # the variable that names the server
    prefix: str = ""  # begins the names of all its variables


def _messages() -> "Provider":
    from .messages import provider

    return provider


def _scripted() -> "Provider":
    from . import scripted

    return scripted


# By the name that the log and `models.toml` have.
PROTOCOLS = {
    MESSAGES: WireProtocol(_messages, (KEY_VAR, TOKEN_VAR), BASE_URL_VAR, "ANTHROPIC_"),
    "scripted": WireProtocol(_scripted),
}


def protocol_of(chosen: "ModelSettings") -> WireProtocol:
    """Return the protocol of the model that the settings name: `scripted:FILE` plays the steps of
    that file, others have it in the table of models. Raises UsageError for an unknown protocol."""
    row = known_model(chosen.id)
    name = row.protocol if row else MESSAGES
    name = "scripted" if chosen.id.startswith(SCRIPTED) else name
    if name not in PROTOCOLS:
        raise UsageError(
            f"models.toml gives {chosen.id} the protocol {name!r}, which is unknown",
            hint=f"Known are: {', '.join(PROTOCOLS)}.",
        )
    return PROTOCOLS[name]


def make_model(settings: "Settings", environ: Mapping[str, str], state: Path) -> "Model":
    """Return the model that the settings name; what is learned of its server is kept in the
    directory `state`. Raises UsageError for a script that cannot be read."""
    return protocol_of(settings.model).load().make(settings.model, environ, state)


def address_of(chosen: "ModelSettings", environ: Mapping[str, str]) -> str:
    """Return the base URL that requests go to; "" for that of the public API, or for none. Raises
    UsageError for an unknown protocol."""
    variable = protocol_of(chosen).address
    return (chosen.base_url or environ.get(variable) or "") if variable else ""


def unencrypted_warnings(chosen: "ModelSettings", environ: Mapping[str, str]) -> list[str]:
    """Return a warning where the key would go to another machine unencrypted."""
    host = unencrypted_host(address_of(chosen, environ))
    return [UNENCRYPTED.format(host=host)] if host else []


def is_of_protocol(variable: str) -> bool:
    """Return True for an environment variable that belongs to a protocol."""
    return any(wire.prefix and variable.startswith(wire.prefix) for wire in PROTOCOLS.values())
