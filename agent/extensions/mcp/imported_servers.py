"""Convert MCP servers in the settings of other agents to the format of `mcp.json`."""

from collections.abc import Callable, Mapping
from typing import Any

from ...lazy import regex

_OPENCODE_VARIABLE = regex(r"\{env:([A-Za-z_]\w*)\}")
_GEMINI_VARIABLE = regex(r"\$([A-Za-z_]\w*)")
_MS_PER_S = 1_000


def codex_server(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a table `mcp_servers.NAME` of codex's config.toml."""
    values = _taken(given, "command", "args", "env", "cwd", "url", "enabled")
    if names := given.get("env_vars"):
        values["env"] = {**{name: f"${{{name}}}" for name in names}, **values.get("env", {})}
    headers = dict(given.get("http_headers") or {})
    headers |= {key: f"${{{name}}}" for key, name in (given.get("env_http_headers") or {}).items()}
    if token := given.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if seconds := given.get("tool_timeout_sec"):
        values["timeout"] = int(seconds * _MS_PER_S)
    return _http(values, headers)


def opencode_server(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a server of `mcp` in opencode.json. Raises ValueError."""
    given = _replaced(given, lambda text: _OPENCODE_VARIABLE.sub(r"${\1}", text))
    if "{file:" in str(given):
        raise ValueError("it has a value from a file")
    values = _taken(given, "url", "enabled", "timeout")
    if given.get("type") == "local":
        command, *arguments = given["command"]
        values |= {"command": command, "args": arguments}
        values |= {"env": given["environment"]} if given.get("environment") else {}
    return _http(values, dict(given.get("headers") or {}))


def gemini_server(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a server of `mcpServers` in gemini's settings.json. Raises ValueError."""
    given = _replaced(given, lambda text: _GEMINI_VARIABLE.sub(r"${\1}", text))
    values = _taken(given, "command", "args", "env", "cwd", "timeout")
    if url := given.get("httpUrl") or given.get("url"):
        values["url"] = url
    is_sse = "httpUrl" not in given and given.get("type") != "http"
    return _http(values, dict(given.get("headers") or {}), "sse" if is_sse else "http")


def _taken(given: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: given[key] for key in keys if given.get(key) is not None}


def _http(values: dict[str, Any], headers: Mapping[str, str], kind: str = "http") -> dict[str, Any]:
    """Return the values, with the type and the headers added if they contain a URL."""
    if "url" not in values:
        return values
    return {"type": kind, **values, **({"headers": dict(headers)} if headers else {})}


def _replaced(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with `change` applied to all texts in it."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, change) for each in value]
    return change(value) if isinstance(value, str) else value
