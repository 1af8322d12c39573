"""Which MCP servers there are: `.mcp.json` of the project, and the person's `mcp.json`.

The format is that of other agents: `{"mcpServers": {NAME: {...}}}`, each with `command`, `args`,
`env` and `cwd`, or with `url` and `headers`; beside them `timeout` (seconds of a call) and
`enabled`. `${VAR}` and `${VAR:-default}` stand for variables of the environment. A project's file
starts nothing before the person has trusted its content.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...config.trust import folders_within_project, is_trusted, read_untrusted
from ...errors import ConfigError

PROJECT_FILE, USER_FILE = ".mcp.json", "mcp.json"
DEFAULT_TIMEOUT_S = 60.0  # for which a call may take
MAX_TIMEOUT_S = 600.0
MAX_SERVERS = 50
UNTRUSTED = (
    "{path} is not trusted, so its MCP servers are not started. Read it, then accept it with "
    "`ctxagent config --trust`."
)

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """A server as a file describes it: a command to start, or an address."""

    name: str
    origin: Path  # the file
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = DEFAULT_TIMEOUT_S  # seconds
    enabled: bool = True

    @property
    def where(self) -> str:
        """The command or the address, for people."""
        return self.url or " ".join(self.command)


def load_servers(
    cwd: Path, *, config_home: Path, home: Path, trust_dir: Path, environ: Mapping[str, str]
) -> tuple[list[McpServerConfig], list[str]]:
    """Return the servers for work in `cwd`, the project's before the person's of the same name, and
    a warning for each file and server that was left out."""
    found: dict[str, McpServerConfig] = {}
    warnings: list[str] = []
    for path in [*project_files(cwd, home), config_home / USER_FILE]:
        try:
            data = read_untrusted(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            warnings.append(f"{path} is left out: {error.strerror}")
            continue
        if path.name == PROJECT_FILE and not is_trusted(path, data, trust_dir):
            warnings.append(UNTRUSTED.format(path=path))
            continue
        try:
            servers = _servers(data)
        except ValueError as error:
            warnings.append(f"{path} is left out: {error}")
            continue
        for name, given in servers.items():
            try:
                found.setdefault(name, _server(name, given, path, environ))
            except ValueError as error:
                warnings.append(f"{path}: the server {name!r:.80} is left out: {error}")
    return list(found.values())[:MAX_SERVERS], warnings


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the project's files of servers, the nearest first."""
    folders = folders_within_project(cwd.resolve(), home.resolve())
    return [path for folder in folders if os.path.lexists(path := folder / PROJECT_FILE)]


def read_servers(path: Path) -> dict[str, Any]:
    """Return what a file says of servers, by name; {} where there is none. Raises ConfigError."""
    try:
        return _servers(read_untrusted(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise ConfigError(str(error), where=str(path)) from error


def check_server(name: str, given: Mapping[str, Any], path: Path) -> None:
    """Raise ConfigError for a server that could not be used as it is."""
    try:
        _server(name, {**given}, path, os.environ)
    except ValueError as error:
        raise ConfigError(f"the server {name!r}: {error}", where=str(path)) from error


def _servers(data: bytes) -> dict[str, Any]:
    try:
        servers = json.loads(data.decode("utf-8-sig"))["mcpServers"]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except (LookupError, TypeError):
        raise ValueError('it has no object "mcpServers"') from None
    if not isinstance(servers, dict):
        raise ValueError('"mcpServers" is no object')
    return servers


def _server(name: str, given: Any, origin: Path, environ: Mapping[str, str]) -> McpServerConfig:
    """Return a server as its file says. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError("its name is not made of up to 64 letters, digits, dots, - and _")
    if not isinstance(given, dict):
        raise ValueError("it is no object")
    values = _filled(given, environ)
    kind = values.get("type", "http" if "url" in values else "stdio")
    if kind not in ("stdio", "http"):
        raise ValueError(f"its type is {kind!r:.40}; only stdio and http are known")
    timeout = values.get("timeout", DEFAULT_TIMEOUT_S)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError("its timeout is no number of seconds above 0")
    args = values.get("args", [])
    command, url = values.get("command", ""), values.get("url", "")
    texts = [command, url, *(args if isinstance(args, list) else [None])]
    tables = [values.get("env", {}), values.get("headers", {})]
    texts += [text for table in tables for text in _texts_of(table)]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("command, url, args, env and headers are texts")
    if bool(command) == bool(url) or (kind == "http") != bool(url):
        raise ValueError("it needs a command, or the type http and a url")
    if url and not re.match(r"https?://[^/\s]+", url):
        raise ValueError("its url is no http address")
    cwd = values.get("cwd")
    return McpServerConfig(
        name, origin, (command, *args) if command else (), tables[0],
        Path(str(cwd)).expanduser() if cwd else None, url, tables[1],
        min(float(timeout), MAX_TIMEOUT_S), values.get("enabled", True) is not False,
    )  # fmt: skip


def _texts_of(table: Any) -> Iterator[Any]:
    yield from table.values() if isinstance(table, dict) else [None]


def _filled(value: Any, environ: Mapping[str, str]) -> Any:
    """Return a value of a file with its variables filled in. Raises ValueError for one that is not
    set and has no default."""
    if isinstance(value, dict):
        return {key: _filled(inner, environ) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, environ) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        text = environ.get(found[1]) or found[2]
        if text is None:
            raise ValueError(f"the variable {found[1]} is not set, and has no default")
        return text

    return _VARIABLE.sub(fill, value)
