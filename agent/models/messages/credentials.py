"""Find the credentials that the SDK would use. Imports nothing slow, because a missing key is
reported before the prompt is drawn.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from ...errors import NoCredentials
from .. import keys
from ..providers import CLOUDS, DEFAULT_PROVIDER, Endpoint

KEY_VAR, TOKEN_VAR = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
BASE_URL_VAR = "ANTHROPIC_BASE_URL"
_PROFILE_VAR, _FOLDER_VAR = "ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR"
_HEADERS_VAR = "ANTHROPIC_CUSTOM_HEADERS"
_LOG_VAR = "ANTHROPIC_LOG"  # the SDK's own log
_FEDERATION_VARS = ("ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_ORGANIZATION_ID")
_IDENTITY_VARS = ("ANTHROPIC_IDENTITY_TOKEN", "ANTHROPIC_IDENTITY_TOKEN_FILE")
NO_KEY_HINT = f"""\
To continue, do one of these:
- enter a key: type /login in the terminal, which tests the key and saves it
- set a key in your shell: export {KEY_VAR}=… (or {TOKEN_VAR}=…)
- choose another provider, or a model on this machine: `ctxagent models` lists them
- try ctxagent without a key: `ctxagent demo`"""


def find_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """Return the name of the credentials for requests. Raises NoCredentials."""
    if endpoint.provider.name == DEFAULT_PROVIDER:
        return find_credentials(environ)
    if endpoint.provider.name in CLOUDS:
        from . import cloud_keys

        return cloud_keys.find_key(endpoint, environ)
    return keys.find_key(endpoint, environ)


def needs_sdk(endpoint: Endpoint, environ: Mapping[str, str]) -> bool:
    """Return True if only the SDK can send requests with these credentials or variables."""
    if endpoint.provider.name in CLOUDS or environ.get(_HEADERS_VAR) or environ.get(_LOG_VAR):
        return True
    is_default = endpoint.provider.name == DEFAULT_PROVIDER
    return is_default and not (environ.get(KEY_VAR) or environ.get(TOKEN_VAR))


def find_credentials(environ: Mapping[str, str]) -> str:
    """Return the name of the credentials that the SDK would use, in its search order. Raises
    NoCredentials if there are none, or for a key with invalid characters.
    """
    if name := next((name for name in (KEY_VAR, TOKEN_VAR) if environ.get(name)), ""):
        keys.check_key(name, environ[name], NO_KEY_HINT)
        return name
    if found := _other_source(environ):
        return found
    states = [
        f"{name} is {'set but empty' if name in environ else 'not set'}"
        for name in (KEY_VAR, TOKEN_VAR)
    ]
    raise NoCredentials(f"No key for the model: {', '.join(states)}.", hint=NO_KEY_HINT)


def _other_source(environ: Mapping[str, str]) -> str:
    """Return the name of the SDK's source of credentials other than keys, "" if there is none."""
    lines = [line.partition(":") for line in environ.get(_HEADERS_VAR, "").split("\n")]
    headers = {name.strip().lower() for name, _, value in lines if value.strip()}
    if headers & {"authorization", "x-api-key"}:
        return _HEADERS_VAR
    if environ.get(_PROFILE_VAR):
        return _PROFILE_VAR
    if all(map(environ.get, _FEDERATION_VARS)) and any(map(environ.get, _IDENTITY_VARS)):
        return _FEDERATION_VARS[0]
    if environ.get(_FOLDER_VAR):
        return _FOLDER_VAR
    if not environ.get("HOME"):
        return ""
    folder = Path(environ["HOME"]) / ".config" / "anthropic"
    pointer = folder / "active_config"
    try:
        if pointer.read_text(encoding="utf-8").strip():
            return str(pointer)
    except OSError:
        pass
    default = folder / "configs" / "default.json"
    return str(default) if os.access(default, os.R_OK) else ""
