"""The command line: options and commands, and the wiring of everything below.

Imports of anything heavy stand inside the commands that need them, so that `--version` and
`--help` cost nothing and the REPL paints its prompt first.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import __version__
from .errors import CtxagentError, UsageError
from .launch import Bounds, Choice, Launch

if TYPE_CHECKING:
    from .config import Loaded
    from .events import Ask, Emit
    from .loop import Loop
    from .record.sessions import Project

STDIN = "-"
NEWEST = "?"  # --resume without an id: choose in the REPL, the newest one headless


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without -p and a command this is the REPL. Settings: `ctxagent config --explain`.",
)
@click.version_option(__version__, message="ctxagent %(version)s")
@click.option(
    "-p",
    "--print",
    "task",
    is_flag=False,
    flag_value=STDIN,
    metavar="TASK",
    help="Headless: do TASK, print the result, exit. Without TASK, or with -, read it from stdin.",
)
@click.option(
    "--output-format",
    "format",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
)
@click.option("--model", metavar="ID", help="The model, or scripted:FILE for a scripted one.")
@click.option("--context-window", type=click.IntRange(min=1), metavar="N", help="In tokens.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Of one reply.")
@click.option("--effort", type=click.Choice(["low", "medium", "high", "xhigh", "max"]))
@click.option("-c", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting, repeatable.")
@click.option("--permission-mode", type=click.Choice(["ask", "accept-edits", "plan", "bypass"]))
@click.option("--allow", multiple=True, metavar="RULE", help="E.g. 'Bash(git status:*)'.")
@click.option("--deny", multiple=True, metavar="RULE", help="E.g. 'Edit(migrations/**)'.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Model calls at most.")
@click.option("--max-budget-usd", type=click.FloatRange(min=0), metavar="X")
@click.option("--continue", "newest", is_flag=True, help="Go on with the newest session here.")
@click.option(
    "--resume", is_flag=False, flag_value=NEWEST, metavar="[ID]", help="Go on with a session."
)
@click.option("--fork", is_flag=True, help="Go on with a copy of it.")
@click.option("--cwd", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--append-system-prompt", metavar="TEXT", default="")
@click.option("--verbose", is_flag=True)
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """A coding agent for the terminal that keeps its context small and loses nothing."""
    context.obj = options
    if context.invoked_subcommand is None:
        _guarded(lambda: _headless(options) if _is_headless(options) else _repl(options))


@main.command()
@click.option("--fast", is_flag=True, help="No pauses for the eye.")
@click.pass_obj
def demo(options: dict[str, Any], fast: bool) -> None:
    """Show it all on a sample project: a scripted model, real tools, no key, no network."""
    from .demo import play

    _guarded(lambda: play(fast=fast))


@main.group(invoke_without_command=True)
@click.pass_context
def sessions(context: click.Context) -> None:
    """List, show, export or fork sessions."""
    if context.invoked_subcommand is None:
        context.invoke(list_sessions)


@sessions.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Of every directory.")
@click.pass_obj
def list_sessions(options: dict[str, Any], everywhere: bool = False) -> None:
    """The sessions of this directory, the newest first."""

    def run() -> int:
        from .record.sessions import every_log, row

        project = _project(options)
        rows = [row(log) for log in (every_log(project.state) if everywhere else project.logs())]
        for each in rows:
            click.echo(f"{each.id}  {each.size // 1024:>6} KiB  {each.title[:70]}")
        if not rows:
            click.echo(f"No sessions for {project.cwd}.", err=True)
        return 0

    _guarded(run)


@sessions.command("show")
@click.argument("id")
@click.pass_obj
def show_session(options: dict[str, Any], id: str) -> None:
    """Print a session as Markdown."""
    _export(options, id, "md")


@sessions.command("export")
@click.argument("id")
@click.option("--format", type=click.Choice(["md", "json"]), default="md", show_default=True)
@click.pass_obj
def export_session(options: dict[str, Any], id: str, format: str) -> None:
    """Write a session to standard output."""
    _export(options, id, format)


@sessions.command("fork")
@click.argument("id")
@click.pass_obj
def fork_session(options: dict[str, Any], id: str) -> None:
    """Copy a session; prints the id of the copy."""

    def run() -> int:
        project = _project(options)
        click.echo(project.fork(project.find(id)).parent.name)
        return 0

    _guarded(run)


@main.command()
@click.option("--explain", is_flag=True, help="Where each value came from, and what it does.")
@click.option("--trust", is_flag=True, help="Accept this project's settings file as it is now.")
@click.pass_obj
def config(options: dict[str, Any], explain: bool, trust: bool) -> None:
    """Every setting and its value."""

    def run() -> int:
        from .config import explain as rows_of

        if trust:
            _trust(options)
        loaded = _load(options)
        for line in loaded.notices:
            click.echo(f"note: {line}", err=True)
        for row in rows_of(loaded):
            origin = f"  # {row.origin}; {row.help}" if explain else ""
            click.echo(f"{row.key} = {row.value}{origin}")
        return 0

    _guarded(run)


@main.command()
@click.argument("id", required=False)
@click.pass_obj
def doctor(options: dict[str, Any], id: str | None) -> None:
    """Check the set-up, or one session's log."""

    def run() -> int:
        from .doctor import check_session, check_setup

        project = _project(options)
        findings = (
            check_session(project.find(id)) if id else check_setup(_load(options), project.state)
        )
        for finding in findings:
            click.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what}: {finding.found}")
        return 0 if all(f.ok for f in findings) else 1

    _guarded(run)


def _is_headless(options: dict[str, Any]) -> bool:
    return options["task"] is not None or not sys.stdin.isatty()


def _headless(options: dict[str, Any]) -> int:
    from .ui.headless import Headless

    front = Headless(options["format"], sys.stdout, sys.stderr, verbose=options["verbose"])
    try:
        launch, choice = _launch(options), _choice(options)
        _check_key(launch)
        task = _task(options["task"])
        from .compose import open_loop

        return asyncio.run(
            front.run(lambda: open_loop(launch, choice, emit=front.emit, ask=None), task)
        )
    except CtxagentError as error:
        front.fail(error)
        return error.exit_code


def _repl(options: dict[str, Any]) -> int:
    from .config import explain
    from .ui.repl import Repl

    loaded = _load(options)
    project = _project(options, loaded)
    launch = _launch(options, loaded)
    _choice(options)  # what is wrong with it is told before the prompt is there
    for line in loaded.notices:
        click.echo(f"note: {line}", err=True)

    async def open_session(
        emit: "Emit",
        ask: "Ask",
        *,
        resume: str | None = None,
        fork: bool = False,
        fresh: bool = False,
    ) -> "Loop":
        def build() -> "Loop":
            from .compose import open_loop

            first = Choice() if fresh else _choice(options)
            choice = Choice(id=resume, fork=fork) if resume else first
            return open_loop(launch, choice, emit=emit, ask=ask)

        return await asyncio.to_thread(build)

    def set_model(loop: "Loop", id: str) -> None:
        from .compose import change_model

        change_model(loop, launch, id)

    repl = Repl(
        open_session,
        cwd=project.cwd,
        history=project.folder / "history",
        ui=loaded.settings.ui,
        version=__version__,
        warm=_warm,
        sessions=project.logs,
        settings=lambda: [row[:3] for row in explain(loaded)],
        set_model=set_model,
        close=lambda loop: loop.close(),
    )
    return asyncio.run(repl.run())


def _warm() -> None:
    """Import what the first call will need, while the person types."""
    from .model.anthropic import warm

    warm()


def _task(task: str | None) -> str:
    words = sys.stdin.read() if task in (None, STDIN) else task
    if not words or not words.strip():
        raise UsageError("there is no task", hint='Give one: ctxagent -p "what to do".')
    return words


def _choice(options: dict[str, Any]) -> Choice:
    resume = options["resume"]
    newest = options["newest"] or resume == NEWEST
    if options["fork"] and not (newest or resume):
        raise UsageError("--fork needs a session", hint="Add --continue or --resume ID.")
    if options["newest"] and resume not in (None, NEWEST):
        raise UsageError("--continue and --resume ID name two sessions", hint="Give one of them.")
    return Choice(newest=newest, id=None if newest else resume, fork=options["fork"])


def _load(options: dict[str, Any]) -> "Loaded":
    from .config import load
    from .rules import parse_rule

    flags = list(options["settings"])
    for name, key in (
        ("model", "model.id"),
        ("context_window", "model.context_window"),
        ("max_tokens", "model.max_tokens"),
        ("effort", "model.effort"),
        ("permission_mode", "permissions.mode"),
    ):
        if options[name] is not None:
            flags.append(f"{key}={options[name]}")
    flags += [f"permissions.allow={rule}" for rule in options["allow"]]
    flags += [f"permissions.deny={rule}" for rule in options["deny"]]
    return load(_cwd(options), environ=os.environ, flags=flags, check_rule=parse_rule)


def _project(options: dict[str, Any], loaded: "Loaded | None" = None) -> "Project":
    from .config import state_dir
    from .record.sessions import Project

    loaded = loaded or _load(options)
    return Project(state_dir(loaded.settings, os.environ), _cwd(options))


def _export(options: dict[str, Any], id: str, format: str) -> None:
    def run() -> int:
        from .record.sessions import export

        click.echo(export(_project(options).find(id), format), nl=False)
        return 0

    _guarded(run)


def _trust(options: dict[str, Any]) -> None:
    """Accept the project's settings file with the content it has now."""
    from .config import trust

    loaded = _load(options)
    if loaded.project is None:
        raise UsageError("there is no .agentrc in this project to trust")
    trust(loaded.project, loaded.trust_dir)
    click.echo(f"trusted as it is now: {loaded.project}", err=True)


def _check_key(launch: Launch) -> None:
    """Raises NoCredentials before anything is recorded, when nobody could answer."""
    from .compose import SCRIPTED
    from .model.anthropic import check_credentials

    if not launch.settings.model.id.startswith(SCRIPTED):
        check_credentials(launch.environ)


def _launch(options: dict[str, Any], loaded: "Loaded | None" = None) -> Launch:
    from .config import config_home, state_dir

    loaded = loaded or _load(options)
    return Launch(
        settings=loaded.settings,
        state=state_dir(loaded.settings, os.environ),
        config_home=config_home(os.environ),
        cwd=_cwd(options),
        environ=os.environ,
        append_prompt=options["append_system_prompt"],
        bounds=Bounds(options["max_turns"], options["max_budget_usd"]),
    )


def _guarded(run: Callable[[], int]) -> NoReturn:
    """Run a command and leave with its exit code; errors are told without a traceback."""
    try:
        code = run()
    except CtxagentError as error:
        click.echo(f"ctxagent: {error}", err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader of our output went away
        code = 1
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _cwd(options: dict[str, Any]) -> Path:
    try:
        return options["cwd"].absolute() if options["cwd"] else Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory no longer exists", hint="Change to one that does, or give --cwd."
        ) from None
