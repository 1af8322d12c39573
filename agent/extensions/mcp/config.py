"""Configured MCP servers: the project's `.mcp.json`, the user's `mcp.json`, and those of plugins.

The format is shared with other agents: `{"mcpServers": {NAME: {"command", "args", "env", "cwd"} |
{"type": "http" | "sse", "url", "headers"}}}`, each also with `timeout` (milliseconds per call), and
`enabled` or `disabled`. `${VAR}` and `${VAR:-default}` are replaced by environment variables.
Servers of a project are used only after the user has trusted the content of the file. A changed
file must be trusted again.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ....tools.system.files import make_private_folder, replace_file
from ....tools.system.phrasing import shorten
from ...border.values import read_object
from ...config.start_gate import ProgramRights, ProgramStart
from ...config.trust import folders_within_project, is_trusted, read_untrusted
from ...errors import ConfigError, conceal
from ...lazy import dataclass, regex
from ..plugins import ROOT_VARIABLE, Plugin, places_of

PROJECT_FILE = ".mcp.json"
OWN_FILE = "mcp.json"  # in the user's configuration folder
SERVERS_KEY = "mcpServers"
MAX_SERVERS = 100
MAX_NAME_CHARS = 64  # of the server part and of the tool part of a name
OAUTH_KEYS = ("clientId", "clientSecret", "scopes", "callbackPort")
HTTP_TYPES = ("http", "streamable-http", "streamable_http", "streamableHttp", "remote")
SSE_TYPES = ("sse",)
URL_KEYS = ("url", "serverUrl", "httpUrl")  # the names in the files of several agents

_VARIABLE = regex(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A configured server: a command to start, or a URL."""

    name: str  # letters, digits, - and _
    source: Path  # file that configures the server
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    url: str = ""
    is_sse: bool = False  # whether the URL is one for server-sent events, without streamable HTTP
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth: Mapping[str, str] = field(default_factory=dict)  # clientId, scopes, callbackPort …
    timeout: float | None = None  # seconds per call, None for the default from the settings
    enabled: bool = True
    of_project: bool = False  # whether a file of the project configures it
    rights: ProgramRights = field(default_factory=ProgramRights)

    def program(self, env: Mapping[str, str], cwd: Path) -> ProgramStart:
        """Return the program of a server with a command."""
        return ProgramStart(
            f"the MCP server {self.name}",
            self.command,
            self.cwd or cwd,
            {**env, **self.env},
            self.of_project,
            self.rights,
        )

    @property
    def where(self) -> str:
        """The program or the URL on one line, without secrets."""
        if self.command:
            return shorten(Path(self.command[0]).name, 200)
        return shorten(conceal(self.url), 200)


def plain_name(name: str, taken: Callable[[str], bool]) -> str:
    """Return a name for tools and rules: characters other than letters, digits, - and _ become _.
    Append a digest if the name is taken or too long.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME_CHARS] or "_"
    if plain == name[: MAX_NAME_CHARS + 1] and not taken(plain):
        return plain
    if len(name) <= MAX_NAME_CHARS and not taken(plain):
        return plain
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:6]
    return f"{plain[: MAX_NAME_CHARS - 7]}_{digest}"


def project_file(cwd: Path, home: Path) -> Path | None:
    """Return the nearest `.mcp.json` within the project, None if there is none."""
    folders = folders_within_project(cwd.resolve(), home.resolve())
    return next((f / PROJECT_FILE for f in folders if (f / PROJECT_FILE).is_file()), None)


def load_servers(
    cwd: Path,
    *,
    config_home: Path,
    home: Path,
    trust_dir: Path,
    environ: Mapping[str, str],
    plugins: Sequence[Plugin] = (),
) -> tuple[list[ServerConfig], list[str]]:
    """Return the servers for `cwd`, and a warning for each skipped file and server. For equal names
    the project's server wins over the user's. If two plugins have different servers of the same
    name, the second server gets its plugin's name as a prefix.
    """
    found: dict[str, ServerConfig] = {}
    warnings: list[str] = []
    files: list[tuple[Path | None, bool, Plugin | None]] = [
        (project_file(cwd, home), True, None),
        (config_home / OWN_FILE, False, None),
        *(
            (path, False, plugin)
            for plugin in plugins
            for path in places_of(plugin.folder, "mcpServers")
        ),
    ]
    for path, is_project, plugin in files:
        if path is None or not path.is_file():
            continue
        try:
            data = read_untrusted(path)
            if is_project and not is_trusted(path, data, trust_dir):
                warnings.append(
                    f"{path} is not trusted, so the MCP servers in it are not started. Read the "
                    "file, then accept it with `ctxagent config --trust`."
                )
                continue
            given = _servers_in(data, of_plugin=plugin is not None)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            warnings.append(f"{path}: no MCP server in it is started: {why}")
            continue
        here: dict[str, ServerConfig] = {}
        more = plugin.environ if plugin else {}
        for name, values in given.items():
            plain = plain_name(name, here.__contains__)
            try:
                server = _server(plain, values, path, {**environ, **more})
            except ValueError as error:
                warnings.append(f"{path}: the MCP server {plain} is not started: {error}")
            else:
                env = {**more, **server.env}
                here[plain] = replace(server, env=env, of_project=is_project)
        if plugin:
            here = _with_unique_names(here, found, plugin)
        found = {**here, **found}
    return [server for server in found.values() if server.enabled], warnings


def servers_in_file(path: Path, environ: Mapping[str, str]) -> list[ServerConfig]:
    """Return the valid servers in a project's file, trusted or not. Raises ValueError and
    OSError.
    """
    found = list[ServerConfig]()
    for name, values in _servers_in(read_untrusted(path)).items():
        with suppress(ValueError):
            server = _server(plain_name(name, lambda taken: False), values, path, environ)
            found.append(replace(server, of_project=True))
    return found


def servers_of(plugin: Plugin) -> dict[str, Any]:
    """Return the servers in the files of a plugin, by name and unchanged. Raises ValueError and
    OSError.
    """
    found = dict[str, Any]()
    for path in places_of(plugin.folder, "mcpServers"):
        found = {**_servers_in(read_untrusted(path), of_plugin=True), **found}
    return found


def _with_unique_names(
    servers: Mapping[str, ServerConfig], found: Mapping[str, ServerConfig], plugin: Plugin
) -> dict[str, ServerConfig]:
    """Return the servers of a plugin. Rename a server if another plugin has a different server of
    the same name; two servers are equal if they differ only in the plugin.
    """
    apart = dict[str, ServerConfig]()
    for name, server in servers.items():
        other = found.get(name)
        if other is not None and ROOT_VARIABLE in other.env:
            same = replace(other, source=server.source, env={**other.env, **plugin.environ})
            if same != server:
                name = plain_name(f"{plugin.name}_{name}", found.__contains__)
                server = replace(server, name=name)
        apart[name] = server
    return apart


def _servers_in(data: bytes, *, of_plugin: bool = False) -> dict[str, Any]:
    """Return the servers in a file. A file of a plugin may omit the `mcpServers` key. Raises
    ValueError with the reason.
    """
    document = read_object(data)
    servers = document.get(SERVERS_KEY, document if of_plugin else {})
    if not isinstance(servers, dict):
        raise ValueError(f'it has no "{SERVERS_KEY}": {{NAME: {{…}}}}')
    if len(servers) > MAX_SERVERS:
        raise ValueError(f"it has {len(servers):,} servers, but at most {MAX_SERVERS} are allowed")
    return servers


def _server(name: str, values: Any, path: Path, environ: Mapping[str, str]) -> ServerConfig:
    """Return a server from its description in a file. Raises ValueError with the reason."""
    if not isinstance(values, dict):
        raise ValueError("it is not an object")
    values = with_variables(values, environ)
    url = next((values[key] for key in URL_KEYS if values.get(key)), None)
    kind = values.get("type") or values.get("transport") or ("stdio" if url is None else "http")
    enabled, disabled = values.get("enabled", True), values.get("disabled", False)
    timeout = values.get("timeout")
    if not isinstance(enabled, bool) or not isinstance(disabled, bool):
        raise ValueError("enabled and disabled must be true or false")
    enabled = enabled and not disabled
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
            raise ValueError("timeout is not a number of milliseconds")
        timeout = timeout / 1000
    common = {"name": name, "source": path, "timeout": timeout, "enabled": enabled}
    if kind in (*HTTP_TYPES, *SSE_TYPES):
        if not isinstance(url, str) or not re.fullmatch(r"(?i:https?)://[!-~]+", url):
            raise ValueError("url is not an http:// or https:// address")
        headers, oauth = _texts(values, "headers"), _oauth(values.get("oauth"))
        is_sse = kind in SSE_TYPES
        return ServerConfig(url=url, is_sse=is_sse, headers=headers, oauth=oauth, **common)
    if kind != "stdio":
        raise ValueError(f'type is {str(kind)[:40]!r}; "stdio", "http" and "sse" are known')
    command, arguments = values.get("command"), values.get("args", [])
    if not isinstance(command, str) or not command.strip():
        raise ValueError('it has neither "command" nor "url"')
    words = [_as_text(each) for each in arguments] if isinstance(arguments, list) else [None]
    if None in words:
        raise ValueError("args is not a list of texts")
    given = values.get("cwd")
    if given is not None and not isinstance(given, str):
        raise ValueError("cwd is not a path")
    cwd = path.parent / Path(given).expanduser() if given else None
    return ServerConfig(
        command=(command, *(word for word in words if word is not None)),
        env=_texts(values, "env"),
        cwd=cwd,
        rights=ProgramRights.of(values),
        **common,
    )


def _oauth(values: Any) -> dict[str, str]:
    """Return the OAuth settings of a server. Raises ValueError."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError("oauth is not an object")
    found = {key: str(values[key]) for key in OAUTH_KEYS if values.get(key) is not None}
    if not found.get("callbackPort", "0").isdecimal():
        raise ValueError("oauth.callbackPort is not a number")
    return found


def _texts(values: Mapping[str, Any], key: str) -> dict[str, str]:
    found = values.get(key) or {}
    texts = {k: _as_text(v) for k, v in found.items()} if isinstance(found, dict) else None
    if texts is None or None in texts.values():
        raise ValueError(f"{key} is not an object of texts")
    return {k: v for k, v in texts.items() if v is not None}


def _as_text(value: Any) -> str | None:
    """Return a text, or a number or flag as text; None for other values."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) else None


def with_variables(value: Any, environ: Mapping[str, str]) -> Any:
    """Replace the variables in all texts of a value, without replacing inside the results. Raises
    ValueError for a variable that is unset or empty and has no default.
    """
    if isinstance(value, dict):
        return {key: with_variables(each, environ) for key, each in value.items()}
    if isinstance(value, list):
        return [with_variables(each, environ) for each in value]
    if not isinstance(value, str):
        return value

    def replaced(found: re.Match[str]) -> str:
        text = environ.get(found[1], "") or found[2]
        if text is None:
            raise ValueError(f"the variable {found[1]} is not set")
        return text

    return _VARIABLE.sub(replaced, value)


def read_document(path: Path) -> dict[str, Any]:
    """Return the content of a file of servers, an empty document if it is missing. Raises
    ConfigError.
    """
    try:
        data = read_untrusted(path)
    except (FileNotFoundError, NotADirectoryError):
        return {SERVERS_KEY: {}}
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            hint="Check the permissions of the file.",
        ) from None
    try:
        _servers_in(data)
    except ValueError as error:
        hint = "Repair it, or move it away."
        raise ConfigError(str(error), where=str(path), hint=hint) from None
    try:
        document: dict[str, Any] = json.loads(data.decode("utf-8-sig"))
    except ValueError:
        why, hint = "it has comments, which a change would remove", "Edit it in an editor."
        raise ConfigError(why, where=str(path), hint=hint) from None
    document.setdefault(SERVERS_KEY, {})
    return document


def check_server(values: Mapping[str, Any], path: Path, environ: Mapping[str, str]) -> ServerConfig:
    """Return the server that these values describe. Raises ValueError with the reason."""
    return _server("new", values, path, environ)


def write_document(path: Path, document: Mapping[str, Any]) -> bytes:
    """Write a file of servers and return the written bytes. Raises ConfigError."""
    data = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    try:
        if path.name == OWN_FILE:
            make_private_folder(path.parent)
        replace_file(path, data)
    except OSError as error:
        own = (
            "Set XDG_CONFIG_HOME to a folder that can be written." if path.name == OWN_FILE else ""
        )
        why = f"cannot be written: {error.strerror}"
        raise ConfigError(why, where=str(path), hint=own) from None
    return data


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
