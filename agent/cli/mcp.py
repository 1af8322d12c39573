"""`ctxagent mcp`: add, list, get, remove and log in to MCP servers."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .group import Group
from .options import WholeNumber, cwd_of, exits_with_code, launch_of, load, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..extensions.mcp.servers import ServerStatus
    from ..launch import LaunchOptions


@click.group(cls=Group, epilog="Example: ctxagent mcp list")
def mcp() -> None:
    """The MCP servers: programs and addresses that offer tools."""


TRANSPORTS = ("stdio", "http", "sse")
SCOPES = ("user", "project")  # "local" of other agents, one user in one project, has no file here


def _of_project(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options that select the file of the project."""
    project = click.option(
        "--project", is_flag=True, help="Use this project's .mcp.json, not your own file."
    )
    scope = click.option(
        "--scope", "-s", type=click.Choice(SCOPES), help="`--scope project` is `--project`."
    )
    return project(scope(command))


@mcp.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: ctxagent mcp add docs https://mcp.example.com/mcp",
)
@_of_project
@click.option(
    "--transport",
    "-t",
    type=click.Choice(TRANSPORTS),
    help="How the server is reached; an address without it is http.",
)
@click.option(
    "--env",
    "-e",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable for the COMMAND's environment.",
)
@click.option(
    "--header",
    "-H",
    multiple=True,
    metavar="NAME: VALUE",
    help="An HTTP header, if the server is an address.",
)
@click.option("--url", metavar="URL", help="The address, in place of COMMAND.")
@click.option(
    "--bearer-token-env-var",
    metavar="NAME",
    help="Send the value of this variable as the token of an address.",
)
@click.option("--client-id", metavar="ID", help="The OAuth client ID for an address.")
@click.option(
    "--callback-port",
    type=WholeNumber(min=1),
    metavar="PORT",
    help="The port of 127.0.0.1 to which an OAuth login returns.",
)
@click.option(
    "--timeout",
    type=WholeNumber(min=1),
    metavar="MS",
    help="The timeout of a call, in milliseconds.",
)
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
@exits_with_code
def add(
    options: dict[str, Any],
    /,
    project: bool,
    scope: str | None,
    name: str,
    command: tuple[str, ...],
    **given: Any,
) -> int:
    """Add the server NAME: a COMMAND with its arguments, or an http(s):// address.

    Put `--` before the COMMAND if its arguments start with a dash.
    """
    return _add(options, name, _entry(command, **given), project=project or scope == "project")


def _entry(
    command: tuple[str, ...],
    *,
    transport: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    url: str | None,
    bearer_token_env_var: str | None,
    client_id: str | None,
    callback_port: int | None,
    timeout: int | None,
) -> dict[str, Any]:
    """Return the description of a server from the options of `mcp add`. Raises UsageError."""
    if url is not None:
        if command:
            raise UsageError(f"--url and {command[0][:200]!r} are two servers", hint="Give one.")
        command = (url,)
    if not command:
        raise UsageError(
            "there is neither a COMMAND nor an address",
            hint="`ctxagent mcp add --help` has an example.",
        )
    if command[0].startswith("-"):
        raise UsageError(f"there is no option {command[0][:200]}", hint="See `mcp add --help`.")
    if re.match(r"[A-Za-z_]\w*=", command[0]):
        raise UsageError(
            f"{command[0].partition('=')[0]!r} is a variable, not a command",
            hint="Put --env before each variable, and -- before the COMMAND.",
        )
    is_address = url is not None or "://" in command[0]
    if transport is not None and is_address == (transport == "stdio"):
        needed = "a command" if transport == "stdio" else "an http:// or https:// address"
        raise UsageError(
            f"--transport {transport} needs {needed}, not {command[0][:200]!r}",
            hint="Change one of the two, or leave out --transport.",
        )
    if is_address and (len(command) > 1 or env):
        raise UsageError("an address does not take arguments or --env", hint="See --header.")
    if not is_address and (header or bearer_token_env_var or client_id or callback_port):
        raise UsageError("headers and logins are for an address", hint="A command takes --env.")
    values: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    if is_address:
        values = {"type": transport or "http", "url": command[0]}
    if env:
        values["env"] = dict(_pair(each, "=") for each in env)
    headers = dict(_pair(each, ":") for each in header)
    if bearer_token_env_var:
        headers["Authorization"] = f"Bearer ${{{bearer_token_env_var}}}"
    oauth = {"clientId": client_id, "callbackPort": callback_port}
    more = {"headers": headers, "oauth": {k: v for k, v in oauth.items() if v}, "timeout": timeout}
    return {**values, **{key: value for key, value in more.items() if value}}


@mcp.command(
    name="add-json", epilog="""Example: ctxagent mcp add-json files '{"command": "mcp-files"}'"""
)
@_of_project
@click.argument("name")
@click.argument("description", metavar="JSON")
@click.pass_obj
@exits_with_code
def add_json(
    options: dict[str, Any], project: bool, scope: str | None, name: str, description: str
) -> int:
    """Add the server NAME as JSON describes it, in the format of .mcp.json."""
    try:
        values = json.loads(description)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{name[:80]}: it is not JSON: {error}",
            hint="Quote the JSON for the shell; `ctxagent mcp add-json --help` has an example.",
        ) from None
    if not isinstance(values, dict):
        raise UsageError(
            f"{name[:80]}: it is not an object of JSON",
            hint="`ctxagent mcp add-json --help` has an example.",
        )
    return _add(options, name, values, project=project or scope == "project")


def _add(options: dict[str, Any], name: str, values: dict[str, Any], *, project: bool) -> int:
    """Add a server to a file. Return the exit code. Raises UsageError for an invalid server."""
    from ..config.trust import accept, is_file_trusted
    from ..extensions.mcp.config import (
        SERVERS_KEY,
        check_server,
        plain_name,
        read_document,
        write_document,
    )
    from .project_trust import accept_server

    if plain_name(name, lambda taken: False) != name or name.startswith("-"):
        raise UsageError(
            f"{name[:80]!r} cannot be a server's name",
            hint="Up to 64 letters, digits, - and _, no dash first.",
        )
    path = _file(options, project=project)
    loaded = load(options)
    was_trusted = not path.exists() or is_file_trusted(path, loaded.trust_dir)
    document = read_document(path)
    if name in document[SERVERS_KEY]:
        raise UsageError(f"{path} already has a server {name}", hint="Remove it first.")
    try:
        check_server(values, path, os.environ)
    except ValueError as error:
        raise UsageError(
            f"{name}: {error}", hint="`ctxagent guide mcp` describes the fields."
        ) from None
    document[SERVERS_KEY][name] = values
    data = write_document(path, document)
    if project and was_trusted:
        accept(path, data, loaded.trust_dir)
        accept_server(options, name)
    say(f"added to {path}: {name}; `ctxagent mcp get {name}` tests it")
    return 0


@mcp.command(name="list", epilog="Example: ctxagent mcp list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def list_servers(options: dict[str, Any], as_json: bool) -> int:
    """Start every server and print its state and what it offers; exit code 1 if one fails to
    start.
    """
    launch = launch_of(options)
    found = _start_servers(launch, None)
    if as_json:
        from dataclasses import asdict

        rows = [asdict(status) for status, _ in found]
        say(json.dumps(rows, ensure_ascii=False))
    elif not found:
        say("no MCP server is configured: `ctxagent mcp add NAME COMMAND` adds one")
    else:
        for status, _ in found:
            say(_line(status))
    return 0 if all(status.state == "ready" for status, _ in found) else 1


@mcp.command(epilog="Example: ctxagent mcp get docs")
@click.argument("name")
@click.pass_obj
@exits_with_code
def get(options: dict[str, Any], name: str) -> int:
    """Start the server NAME and list its tools; exit code 1 if it fails to start."""
    launch = launch_of(options)
    found = _start_servers(launch, name)
    if not found:
        raise UsageError(f"there is no MCP server {name}", hint="`ctxagent mcp list` lists them.")
    (status, tools), *_ = found
    say(_line(status))
    for tool, tokens, description in tools:
        say(f"  {tool} ({tokens:,} tokens): {description}")
    for note in status.notes:
        say(f"  note: {note}")
    return 0 if status.state == "ready" else 1


@mcp.command(epilog="Example: ctxagent mcp remove docs")
@_of_project
@click.argument("name")
@click.pass_obj
@exits_with_code
def remove(options: dict[str, Any], project: bool, scope: str | None, name: str) -> int:
    """Remove the server NAME."""
    from ..config.trust import accept, is_file_trusted
    from ..extensions.mcp.config import SERVERS_KEY, plain_name, read_document, write_document

    project = project or scope == "project"
    path, loaded = _file(options, project=project), load(options)
    was_trusted = is_file_trusted(path, loaded.trust_dir)
    document = read_document(path)
    plain = (key for key in document[SERVERS_KEY] if plain_name(key, lambda taken: False) == name)
    name = name if name in document[SERVERS_KEY] else next(plain, name)
    if name not in document[SERVERS_KEY]:
        names = ", ".join(document[SERVERS_KEY]) or "none"
        raise UsageError(f"there is no server {name} in {path}", hint=f"There are: {names}")
    del document[SERVERS_KEY][name]
    data = write_document(path, document)
    if project and was_trusted:
        accept(path, data, loaded.trust_dir)
    say(f"removed from {path}: {name}")
    return 0


@mcp.command(epilog="Example: ctxagent mcp login docs")
@click.argument("name")
@click.pass_obj
@exits_with_code
def login(options: dict[str, Any], name: str) -> int:
    """Log in at the server NAME, in a browser; exit code 1 if that fails."""
    launch = launch_of(options)

    def show(url: str) -> None:
        say(f"Log in at this address, in a browser on this machine:\n{url}")
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            import webbrowser

            webbrowser.open(url)

    found = _start_servers(launch, name, show)
    if not found:
        raise UsageError(f"there is no MCP server {name}", hint="`ctxagent mcp list` lists them.")
    ((status, _),) = found
    say(_line(status))
    return 0 if status.state == "ready" else 1


def _file(options: dict[str, Any], *, project: bool) -> Path:
    """Return the configuration file for servers: the project's nearest one, or the user's."""
    from ..config.places import config_home, home_folder
    from ..extensions.mcp.config import OWN_FILE, PROJECT_FILE, project_file

    if not project:
        return config_home(os.environ) / OWN_FILE
    home = home_folder(os.environ)
    return project_file(cwd_of(options), home) or cwd_of(options) / PROJECT_FILE


def _pair(text: str, sign: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not (name.strip() and found):
        raise UsageError(
            f"{text!r} is not NAME{sign}VALUE",
            hint="Quote it, with the sign between name and value.",
        )
    if any(ord(char) < 32 for char in value.strip()):
        raise UsageError(
            f"the value of {name.strip()[:80]!r} has a line break or a control character",
            hint="Give the value on one line.",
        )
    return name.strip(), value.strip()


def _start_servers(
    launch: "LaunchOptions", name: str | None, show: "Callable[[str], None] | None" = None
) -> "list[tuple[ServerStatus, list[tuple[str, int, str]]]]":
    """Start the servers, or one of them. Return the state and the tools of each."""
    import asyncio

    from ..extensions.mcp.config import plain_name
    from ..library.launch_parts import configured, start_servers

    configs, warnings = configured(launch)
    for warning in warnings:
        say(f"note: {warning}", err=True)
    plain = name and plain_name(name, lambda taken: False)
    configs = [each for each in configs if name is None or each.name in (name, plain)]
    if not configs:
        return []
    servers = start_servers(launch, configs, show)
    try:
        asyncio.run(servers.wait_for(servers.names))
        return [(status, servers.tools(status.name)) for status in servers.status()]
    finally:
        servers.close()


def _line(status: "ServerStatus") -> str:
    offers = f"{status.tools:,} tools ({status.tokens:,} tokens), {status.prompts:,} prompts, "
    offers += f"{status.resources:,} resources · {status.protocol}"
    what = offers if status.state == "ready" else status.error
    return f"{status.name}: {status.state} · {what} · {status.where}"
