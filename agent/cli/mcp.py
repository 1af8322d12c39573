"""`ctxagent mcp`: list, show, add and remove MCP servers."""

import json
import os
from pathlib import Path
from typing import Any

import click

from ...tools.system.unicode import clean
from ..errors import ConfigError, UsageError
from .options import cwd_of, ends_process, load, say


@click.group(invoke_without_command=True)
@click.pass_context
def mcp(context: click.Context) -> None:
    """List, show, add or remove MCP servers."""
    if context.invoked_subcommand is None:
        context.invoke(list_servers)


@mcp.command("list")
@click.pass_obj
@ends_process
def list_servers(options: dict[str, Any]) -> int:
    """List the servers for this directory; none is started."""
    from ..config.load import config_home
    from ..extensions.mcp.server_config import load_servers

    servers, warnings = load_servers(
        cwd_of(options),
        config_home=config_home(os.environ),
        home=Path(os.environ.get("HOME") or Path.home()),
        trust_dir=load(options).trust_dir,
        environ=os.environ,
    )
    for warning in warnings:
        say(f"warning: {clean(warning)}", err=True)
    for server in servers:
        off = "" if server.enabled else "  (switched off)"
        say(f"{server.name}  {clean(server.where)}  {server.origin}{off}")
    if not servers:
        say("No MCP servers; `ctxagent mcp add NAME -- COMMAND` adds one.", err=True)
    return 0


@mcp.command("get")
@click.argument("name")
@click.option("--project", is_flag=True, help="From .mcp.json of this directory.")
@click.pass_obj
@ends_process
def get_server(options: dict[str, Any], name: str, project: bool) -> int:
    """Print a server as its file describes it."""
    path, servers = _file(options, project)
    say(json.dumps(_known(servers, name, path), indent=2, ensure_ascii=False))
    return 0


@mcp.command("add")
@click.argument("name")
@click.argument("command", nargs=-1)
@click.option("--url", default="", help="Of a server that is reached by HTTP.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for its program.")
@click.option("--header", multiple=True, metavar="NAME: VALUE", help="Of each HTTP request.")
@click.option("--project", is_flag=True, help="To .mcp.json of this directory, for everybody.")
@click.pass_obj
@ends_process
def add_server(
    options: dict[str, Any],
    name: str,
    command: tuple[str, ...],
    url: str,
    env: tuple[str, ...],
    header: tuple[str, ...],
    project: bool,
) -> int:
    """Add a server: NAME -- COMMAND ARGUMENT..., or NAME --url URL."""
    from ..extensions.mcp.server_config import check_server

    path, servers = _file(options, project)
    if name in servers:
        raise UsageError(
            f"there is a server {name!r} in {path}", hint=f"`ctxagent mcp remove {name}` first."
        )
    given: dict[str, Any] = {}
    if command:
        given |= {"command": command[0], "args": list(command[1:])}
    if url:
        given |= {"type": "http", "url": url}
    if env:
        given["env"] = dict(_pair(text, "=") for text in env)
    if header:
        given["headers"] = dict(_pair(text, ":") for text in header)
    check_server(name, given, path)
    _write(path, {**servers, name: given})
    say(f"added to {path}: {name}", err=True)
    if project:
        say("`ctxagent config --trust` accepts it for you.", err=True)
    return 0


@mcp.command("remove")
@click.argument("name")
@click.option("--project", is_flag=True, help="From .mcp.json of this directory.")
@click.pass_obj
@ends_process
def remove_server(options: dict[str, Any], name: str, project: bool) -> int:
    """Remove a server."""
    path, servers = _file(options, project)
    _known(servers, name, path)
    _write(path, {key: value for key, value in servers.items() if key != name})
    say(f"removed from {path}: {name}", err=True)
    return 0


def _file(options: dict[str, Any], project: bool) -> tuple[Path, dict[str, Any]]:
    """Return the file that is meant, and the servers in it."""
    from ..config.load import config_home
    from ..extensions.mcp.server_config import PROJECT_FILE, USER_FILE, read_servers

    path = cwd_of(options) / PROJECT_FILE if project else config_home(os.environ) / USER_FILE
    return path, read_servers(path)


def _known(servers: dict[str, Any], name: str, path: Path) -> Any:
    if name not in servers:
        known = ", ".join(map(str, servers)) or "none"
        raise UsageError(f"there is no server {name!r} in {path}", hint=f"There are: {known}.")
    return servers[name]


def _pair(text: str, separator: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise UsageError(f"{text!r} is not NAME{separator}VALUE")
    return name.strip(), value.strip()


def _write(path: Path, servers: dict[str, Any]) -> None:
    from ...tools.system.files import make_private_folder, replace_file

    text = json.dumps({"mcpServers": servers}, indent=2, ensure_ascii=False)
    try:
        make_private_folder(path.parent)
        replace_file(path, f"{text}\n".encode())
    except OSError as error:
        raise ConfigError(f"it could not be written: {error.strerror}", where=str(path)) from error
