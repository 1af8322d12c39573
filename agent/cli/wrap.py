"""`ctxagent wrap CLIENT`: another agent, with the proxy between it and its model.

The proxy is a child process of its own. This process becomes the client, which so has the terminal,
the signals and the exit code for itself. The proxy ends when the client has ended.
"""

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ...tools.system.files import make_private_folder, private_opener
from ...tools.system.programs import isolated_python
from ..errors import CtxagentError, UsageError
from .options import cwd_of, ends_process, guarded, say
from .proxy import DEFAULT_PORT, proxy_options

if TYPE_CHECKING:
    from ..proxy.clients import Client, ClientStart
    from ..proxy.serve import ProxyOptions

LOG_NAME = "proxy.log"  # in the project's folder: what the proxy reports
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
POLL_S = 0.2  # between two looks whether the client is still there


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--print",
    "only_print",
    is_flag=True,
    help="Print what is set and the command, and start nothing.",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Of the proxy; any free one by default."
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="PROTOCOL=URL",
    help="Where the proxy sends requests, as for `ctxagent proxy`.",
)
@click.option("--no-summaries", is_flag=True, help="Clear and shorten only, never summarize.")
@click.argument("client")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
@ends_process
def wrap(
    options: dict[str, Any],
    only_print: bool,
    port: int | None,
    upstreams: tuple[str, ...],
    no_summaries: bool,
    client: str,
    arguments: tuple[str, ...],
) -> int:
    """Start CLIENT with its ARGUMENTS and with a proxy that keeps its context small.

    CLIENT is claude, codex, opencode, pi, kimi or aider. What it needs is set for this start only;
    its settings stay as they are. Options of `wrap` stand before CLIENT.
    """
    from ..proxy.clients import upstreams_for

    known, program = _found(client)
    usual = upstreams_for(known, os.environ)
    given = [*(f"{name}={url}" for name, url in usual.items()), *upstreams]
    started = proxy_options(options, port or 0, given, summaries=not no_summaries)
    if only_print:
        start = _start(options, started, f"http://127.0.0.1:{port or DEFAULT_PORT}")
        _print_start(known, start, [program, *start.flags(known), *arguments])
        return 0
    start = _start(options, started, _start_proxy(started))
    return _become(
        [program, *start.flags(known), *arguments], {**os.environ, **_environ(known, start)}
    )


def _found(command: str) -> "tuple[Client, str]":
    """Return a client and the path of its program. Raises UsageError."""
    from ..proxy.clients import CLIENTS, client_named

    client = client_named(command)
    if client is None:
        hint = f"Known are: {', '.join(CLIENTS)}. Any other client that takes a base URL can use "
        raise UsageError(f"wrap does not know {command}", hint=f"{hint}`ctxagent proxy`.")
    program = shutil.which(command)
    if program is None:
        raise UsageError(f"{command} is not installed", hint=f"Install it: {client.install}")
    return client, program


def _start(options: dict[str, Any], started: "ProxyOptions", url: str) -> "ClientStart":
    from ..proxy.clients import ClientStart

    project = started.project
    settings = ["-c", f"state.dir={project.state}", "--cwd", str(cwd_of(options))]
    server = [*isolated_python(), "-m", "ctxagent", *settings, "mcp-server"]
    return ClientStart(url, project.folder / "sessions", server)


def _environ(client: "Client", start: "ClientStart") -> dict[str, str]:
    try:
        return start.environ(client, os.environ)
    except ValueError as error:
        names = ", ".join(client.json_environ)
        raise UsageError(f"{names} is not JSON: {error}", hint="Unset or repair it.") from None


def _print_start(client: "Client", start: "ClientStart", command: list[str]) -> None:
    """Print the start as lines for a shell."""
    for name, value in _environ(client, start).items():
        say(f"export {name}={shlex.quote(value)}")
    say(shlex.join(command))


def _become(command: list[str], environ: dict[str, str]) -> int:
    """Put another program in the place of this one, whose exit code is its own then. Raises
    UsageError."""
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and programs inherit
    try:
        os.execve(command[0], command, environ)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error


def _start_proxy(started: "ProxyOptions") -> str:
    """Start the proxy as a child of this process, and return its address."""
    make_private_folder(started.project.folder)
    log = started.project.folder / LOG_NAME
    ours, theirs = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(ours)
        _be_proxy(started, parent, log, theirs)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        told = json.loads(pipe.read() or "{}")
    if "error" in told:
        raise UsageError(told["error"], hint=told["hint"])
    if "url" not in told:
        raise CtxagentError("the proxy did not start", hint=f"See {log}.")
    return str(told["url"])


def _be_proxy(started: "ProxyOptions", parent: int, log: Path, pipe: int) -> NoReturn:
    """Serve until the parent has ended, apart from the terminal, and end this process."""

    def serve() -> int:
        os.setsid()
        nothing, out = os.open(os.devnull, os.O_RDONLY), private_opener(str(log), _APPEND)
        for target, source in ((0, nothing), (1, out), (2, out)):
            os.dup2(source, target)
        asyncio.run(_serve(started, parent, pipe))
        return 0

    def report(error: CtxagentError, code: int) -> None:
        say(f"ctxagent wrap: {error}", err=True)
        with suppress(OSError):  # closed once the proxy has started
            os.write(pipe, json.dumps({"error": error.message, "hint": error.hint}).encode())

    try:
        guarded(serve, report)
    finally:
        os._exit(1)


async def _serve(started: "ProxyOptions", parent: int, pipe: int) -> None:
    from ..proxy.serve import serving

    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def look() -> None:
        if os.getppid() == parent:
            loop.call_later(POLL_S, look)
        else:
            ended.set()

    async with serving(started, os.environ) as url:
        os.write(pipe, json.dumps({"url": url}).encode())
        os.close(pipe)
        look()
        await ended.wait()
