"""Servers of the Messages API by name: `model.server`.

The addresses are those that each server has by itself, from its own documentation in November 2026;
`model.base_url` names another. What a server does not take is learned (`gaps`), since it
changes with its version and model.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...config.settings import ServerName

KEY_VAR, TOKEN_VAR = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
BASE_URL_VAR = "ANTHROPIC_BASE_URL"
ANY_TOKEN = "none"  # for a server that takes any word


class ServerPreset(NamedTuple):
    """A server, and the variable that has the key for it."""

    address: str
    key_variable: str
    is_local: bool = True  # asks for no key by itself


SERVERS: "dict[ServerName, ServerPreset]" = {
    "ollama": ServerPreset("http://127.0.0.1:11434", "OLLAMA_API_KEY"),
    "lmstudio": ServerPreset("http://127.0.0.1:1234", "LM_API_TOKEN"),
    "llamacpp": ServerPreset("http://127.0.0.1:8080", "LLAMA_API_KEY"),
    "vllm": ServerPreset("http://127.0.0.1:8000", "VLLM_API_KEY"),
    "litellm": ServerPreset("http://127.0.0.1:4000", "LITELLM_API_KEY"),
    "openrouter": ServerPreset("https://openrouter.ai/api", "OPENROUTER_API_KEY", is_local=False),
}


def server_environment(
    server: "ServerName | None", environ: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the environment by which the SDK finds a server and its key, the same for None. The
    key for the public API goes to no other server."""
    if server is None:
        return environ
    preset, keys = SERVERS[server], (KEY_VAR, TOKEN_VAR)
    own = {name: value for name, value in environ.items() if name not in keys}
    token = environ.get(preset.key_variable) or (ANY_TOKEN if preset.is_local else "")
    return {BASE_URL_VAR: preset.address, **own, **({TOKEN_VAR: token} if token else {})}


def key_variables_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that may have the key for the server of an environment."""
    address = environ.get(BASE_URL_VAR)
    own = [preset.key_variable for preset in SERVERS.values() if preset.address == address]
    return tuple(own) or (KEY_VAR, TOKEN_VAR)
