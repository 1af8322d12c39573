"""`ctxagent proxy`: run the context engine between another agent and its model."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import UsageError
from ...api.cli import (
    Group,
    WholeNumber,
    cwd_of,
    exits_with_code,
    load,
    project_of,
    say,
    setting_flags,
)
from ...api.programs import isolated_python
from ...api.text import clean, count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...api.settings import PresetName
    from .serve import ProxyOptions
    from .status import ProxyStatus, SessionStatus

DEFAULT_PORT = 8765
# The default preset of the proxy, whose purpose is to save money.
PRESET: "PresetName" = "lean"
WITH_PARENT = "--with-parent"  # used by `wrap`, whose process becomes the client
POLL_S = 0.2  # interval for checking the parent process
MAX_TITLE_CHARS = 40  # in the table of sessions
MAX_NOTES = 3  # newest notes per session
_HEADS = ("session", "client", "calls", "context", "without", "edits", "dollars", "without", "")


@click.group(cls=Group, invoke_without_command=True, epilog="Example: ctxagent proxy --port 8765")
@click.option(
    "--port",
    type=WholeNumber(0, 65_535),
    metavar="N",
    default=DEFAULT_PORT,
    show_default=True,
    help="The port on 127.0.0.1; 0 picks a free one.",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="PROTOCOL=URL",
    help="The server for requests: messages=URL, openai=URL or gemini=URL; by default "
    "ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL, else the APIs of Anthropic, "
    "OpenAI and Google.",
)
@click.option(
    "--no-summaries", is_flag=True, help="Only clear and shorten old results; write no summaries."
)
@click.option(WITH_PARENT, is_flag=True, hidden=True, help="Exit when the parent process exits.")
@click.pass_context
def proxy(
    context: click.Context,
    port: int,
    upstreams: tuple[str, ...],
    no_summaries: bool,
    with_parent: bool,
) -> None:
    """Keep another agent's context small, as a proxy to its model.

    Any client with a configurable base URL can use the proxy. The client sends its own key. Its
    sessions belong to this directory: `ctxagent sessions`, `log`, `replay` and `compact --undo`
    work on them.
    """
    if context.invoked_subcommand is None:
        _serve(context.obj, port, upstreams, no_summaries, with_parent)


@proxy.command("status", epilog="Example: ctxagent proxy status")
@click.option("--all", "everywhere", is_flag=True, help="Include every directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def status(options: dict[str, Any], everywhere: bool, as_json: bool) -> int:
    """Print the proxy's sessions: context, edits and dollars saved.

    It reads the logs, so no proxy needs to run. The figures "without" assume that the client sent
    its whole history each time, as far as it fits the window.
    """
    from ...api.record import all_logs
    from .status import StatusReader, running_address

    loaded = load(options)
    project = project_of(options, loaded)
    logs = all_logs(project.state) if everywhere else project.logs()
    found = StatusReader(loaded.settings.model.context_window).status(logs)
    address = running_address(project.folder)
    if as_json:
        say(json.dumps({**found.to_json(), "address": address or None}, ensure_ascii=False))
        return 0
    _say_table(found)
    say(
        f"A proxy of this directory runs: {address}"
        if address
        else "No proxy of this directory runs: `ctxagent proxy` starts one.",
        err=True,
    )
    return 0


@proxy.command("install", epilog="Example: ctxagent proxy install")
@click.option("--print", "only_print", is_flag=True, help="Print the unit, but install nothing.")
@click.pass_context
@exits_with_code
def install(context: click.Context, only_print: bool) -> int:
    """Run the proxy as a service of systemd for this user.

    The service starts at login. Its sessions belong to the home directory, unless --cwd names
    another one. Put the options of `proxy` before `install`.
    """
    from .forward import HOST, is_at
    from .serve import upstreams_of
    from .service import shell_lines, unit_text, user_service

    options, given = context.obj, context.parent.params if context.parent else {}
    address = f"http://{HOST}:{given['port']}"
    if not given["port"]:
        raise UsageError("a service needs a fixed port", hint="Give --port before `install`.")
    if options["cwd"] is None:
        options = {**options, "cwd": Path.home()}
    started = proxy_options(options, given["port"], given["upstreams"], summaries=True)
    # After an earlier installation, the variables lead to the service itself.
    environ = {name: value for name, value in os.environ.items() if not is_at(value, address)}
    upstreams = upstreams_of(started.upstreams, environ)
    words = ["--port", str(given["port"])]
    words += [word for name, url in upstreams.items() for word in ("--upstream", f"{name}={url}")]
    words += ["--no-summaries"] if given["no_summaries"] else []
    text = unit_text([*own_command(options), "proxy", *words], environ)
    if only_print:
        say(text, nl=False)
        return 0
    service = user_service(Path.home(), os.environ)
    service.install(text, given["port"])
    say(f"The proxy runs at {address}: {service.unit}", err=True)
    say("Add these lines to the startup file of your shell, such as ~/.profile:", err=True)
    say("\n".join(shell_lines(address)))
    return 0


@proxy.command("uninstall", epilog="Example: ctxagent proxy uninstall")
@exits_with_code
def uninstall() -> int:
    """Stop the service that `proxy install` made, and remove it."""
    from .forward import UPSTREAMS
    from .service import user_service

    service = user_service(Path.home(), os.environ)
    if not service.uninstall():
        say(f"The proxy is not installed: there is no {service.unit}.", err=True)
        return 0
    names = ", ".join(upstream.variable for upstream in UPSTREAMS.values())
    say(f"Removed {service.unit}. Unset {names} if they lead to the proxy.", err=True)
    return 0


def own_command(options: dict[str, Any]) -> list[str]:
    """Return the words that start ctxagent with the same directory and settings."""
    settings = [word for flag in setting_flags(options) for word in ("-c", flag)]
    return [*isolated_python(), "-m", "ctxagent", "--cwd", str(cwd_of(options)), *settings]


def _say_table(found: "ProxyStatus") -> None:
    from ...api.pages import format_dollars, format_percent
    from .status import share_saved

    if not found.sessions:
        say("No session of the proxy.", err=True)
        return
    rows = [_HEADS, *map(_row, found.sessions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        names = (f"{each:<{width}}" for each, width in zip(row[:2], widths, strict=False))
        figures = (f"{each:>{width}}" for each, width in zip(row[2:-1], widths[2:], strict=False))
        say(clean("  ".join((*names, *figures, row[-1]))).rstrip())
    for session in found.sessions:
        if session.warning:
            say(f"! {session.id}: {session.warning}")
        for note in session.notes[-MAX_NOTES:]:
            say(clean(f"! {session.id}: {note.text}"))
    if found.left_out:
        say(f"{count_of(found.left_out, 'older log')} not read", err=True)
    spent, unedited = found.with_dollars, found.without_dollars
    share = share_saved(spent, unedited)
    if share is None:
        say("\nThe prices of these models are unknown: add them to models.toml.")
        return
    change = f"{format_percent(abs(share))} {'saved' if share >= 0 else 'more'}"
    sums = f"${format_dollars(spent)} instead of ${format_dollars(unedited)}"
    say(f"\n{sums}: {change if spent != unedited else 'the same'}")


def _row(session: "SessionStatus") -> tuple[str, ...]:
    """Return a row of the table of sessions: names, figures and the title."""
    from ...api.pages import NO_FIGURE, format_dollars, format_tokens

    turns = session.turns
    contexts = [call.with_tokens for call in turns], [call.without_tokens for call in turns]
    amounts = session.with_dollars, session.without_dollars
    return (
        session.id,
        session.client or NO_FIGURE,
        f"{len(turns):,}",
        *(format_tokens(max(each)) if each else NO_FIGURE for each in contexts),
        f"{sum(not edit.is_undone for edit in session.edits):,}",
        *(NO_FIGURE if amount is None else format_dollars(amount) for amount in amounts),
        session.title[:MAX_TITLE_CHARS],
    )


@exits_with_code
def _serve(
    options: dict[str, Any],
    port: int,
    upstreams: tuple[str, ...],
    no_summaries: bool,
    with_parent: bool,
) -> int:
    parent = os.getppid() if with_parent else None
    started = proxy_options(options, port, upstreams, summaries=not no_summaries)
    return asyncio.run(_run(started, parent))


async def _run(started: "ProxyOptions", parent: int | None) -> int:
    """Serve until a signal arrives or the process `parent` ends."""
    from .serve import serving
    from .service import shell_lines

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def check_parent() -> None:
        if os.getppid() == parent:
            loop.call_later(POLL_S, check_parent)
        else:
            stopped.set()

    if parent is not None:
        check_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with serving(started, os.environ) as address:
        say(f"ctxagent proxy: {address} (Ctrl-C stops it)")
        if parent is None:
            say("In the terminal of the client, before it starts:")
            say("\n".join(shell_lines(address)))
        await stopped.wait()
    return 0


def proxy_options(
    options: dict[str, Any], port: int, upstreams: "Sequence[str]", *, summaries: bool
) -> "ProxyOptions":
    """Return the options of a proxy for this directory. Raises UsageError and ConfigError."""
    from ...api.context import policy_of
    from ...api.guard import redaction_for
    from .forward import UPSTREAMS
    from .serve import ProxyOptions

    given = {}
    for each in upstreams:
        name, _, url = each.partition("=")
        if name not in UPSTREAMS or not url.startswith(("http://", "https://")):
            names = " or ".join(f"{name}=https://…" for name in UPSTREAMS)
            raise UsageError(f"--upstream {each!r} is not PROTOCOL=URL", hint=f"Write {names}.")
        given[name] = url
    loaded = load(options)
    settings = loaded.settings
    if loaded.origins["compact.preset"] == "default":
        settings = replace(settings, compact=replace(settings.compact, preset=PRESET))
    return ProxyOptions(
        project_of(options, loaded),
        policy_of(settings),
        port,
        given,
        summaries=summaries,
        window=loaded.settings.model.context_window,
        report=lambda text: say(f"ctxagent proxy: {text}", err=True),
        redact=redaction_for(os.environ, shapes=settings.state.redact).clean,
    )
