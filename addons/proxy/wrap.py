"""`ctxagent wrap CLIENT`: run another agent with the proxy between it and its model.

The proxy is a child process. This process becomes the client, so the client has the terminal, the
signals and the exit code. The proxy ends when the client has ended.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import UsageError, regex
from ...api.cli import WholeNumber, exits_with_code, say
from ...api.files import make_private_folder, private_opener
from .command import DEFAULT_PORT, WITH_PARENT, own_command, proxy_options

if TYPE_CHECKING:
    from .clients import Client, ClientStart
    from .serve import ProxyOptions

LOG_NAME = "proxy.log"  # stderr of the proxy, in the project's folder
ADDRESS = regex(r"http://\S+")  # found in the first line of the proxy's output
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: ctxagent wrap claude",
)
@click.option(
    "--print",
    "only_print",
    is_flag=True,
    help="Print the settings and the command, but start nothing.",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65_535),
    metavar="N",
    help="The port of the proxy; by default a free one.",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="PROTOCOL=URL",
    help="The server for requests, as for `ctxagent proxy`.",
)
@click.option(
    "--no-summaries", is_flag=True, help="Only clear and shorten old results; write no summaries."
)
@click.argument("client")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
@exits_with_code
def wrap(
    options: dict[str, Any],
    only_print: bool,
    port: int | None,
    upstreams: tuple[str, ...],
    no_summaries: bool,
    client: str,
    arguments: tuple[str, ...],
) -> int:
    """Start another agent behind a proxy that keeps its context small.

    CLIENT is claude, codex, opencode, pi, kimi, qwen, gemini, copilot, crush, goose or aider. The
    required settings apply to this start
    only; the client's own settings stay unchanged. Put options of `wrap` before CLIENT.
    """
    from .clients import upstreams_for

    known = _client(client)
    program = _program(client, known, must_exist=not only_print)
    usual = upstreams_for(known, os.environ)
    given = [*(f"{name}={url}" for name, url in usual.items()), *upstreams]
    started = proxy_options(options, port or 0, given, summaries=not no_summaries)
    if only_print:
        start = _start(started, f"http://127.0.0.1:{port or DEFAULT_PORT}")
        _print_start(known, start, [program, *start.flags(known), *arguments])
        return 0
    names = [word for each in given for word in ("--upstream", each)]
    off = ["--no-summaries"] if no_summaries else []
    arguments_of_proxy = ["--port", str(port or 0), *names, *off]
    address = _start_proxy(options, started.project.folder, arguments_of_proxy)
    start = _start(started, address)
    return _become(
        [program, *start.flags(known), *arguments], {**os.environ, **_environ(known, start)}
    )


def _client(command: str) -> "Client":
    """Return the client of a command. Raises UsageError."""
    from .clients import CLIENTS, client_named

    client = client_named(command)
    if client is None:
        hint = f"Known are: {', '.join(CLIENTS)}. Any other client that takes a base URL can use "
        raise UsageError(f"wrap does not know {command}", hint=f"{hint}`ctxagent proxy`.")
    return client


def _program(command: str, client: "Client", *, must_exist: bool) -> str:
    """Return the path of a client's program, or its name if it is not installed. Raises UsageError
    with `must_exist`.
    """
    program = shutil.which(command)
    if program is None and must_exist:
        raise UsageError(f"{command} is not installed", hint=f"Install it: {client.install}")
    return program or command


def _start(started: "ProxyOptions", url: str) -> "ClientStart":
    from .clients import ClientStart

    return ClientStart(url, started.project.folder / "sessions")


def _environ(client: "Client", start: "ClientStart") -> dict[str, str]:
    try:
        return start.environ(client, os.environ)
    except ValueError as error:
        names = ", ".join(client.json_environ)
        raise UsageError(f"{names} is not JSON: {error}", hint="Unset or fix it.") from None


def _print_start(client: "Client", start: "ClientStart", command: list[str]) -> None:
    """Print the start as shell commands."""
    for name, value in _environ(client, start).items():
        say(f"export {name}={shlex.quote(value)}")
    say(shlex.join(command))


def _become(command: list[str], environ: dict[str, str]) -> int:
    """Replace this process by another program, which then sets the exit code. Raises UsageError."""
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # undo Python's SIG_IGN, which programs inherit
    try:
        os.execve(command[0], command, environ)
    except OSError as error:
        raise UsageError(
            f"cannot start {command[0]}: {error.strerror}",
            hint="Check that it is installed and in PATH.",
        ) from error


def _start_proxy(options: dict[str, Any], folder: Path, arguments: list[str]) -> str:
    """Start the proxy as a child of this process, and return its address. The child ends with this
    process, even after this process became another program.
    """
    make_private_folder(folder)
    path = folder / LOG_NAME
    with os.fdopen(private_opener(str(path), _APPEND), "wb") as log:
        begin = log.seek(0, os.SEEK_END)  # a file opened for appending starts at 0
        child = subprocess.Popen(
            [*own_command(options), "proxy", *arguments, WITH_PARENT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C must reach only the client
            text=True,
        )
    assert child.stdout
    line = child.stdout.readline()
    if found := ADDRESS.search(line):
        return found[0]
    child.wait()
    said = path.read_bytes()[begin:].decode(errors="replace").strip().removeprefix("ctxagent: ")
    raise UsageError(said or "the proxy did not start", hint=f"See {path}.")
