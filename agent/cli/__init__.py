"""The command line: options and commands, and the wiring of everything below.

Imports of anything heavy stand inside the commands that need them, so that `--version` and
`--help` cost nothing and the REPL paints its prompt first.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ... import __version__
from ..errors import UsageError
from .compact import compact
from .doctor import doctor, look_over, row_of
from .log import log
from .options import (
    NEWEST,
    STDIN,
    check_choice,
    check_command,
    check_finite,
    check_key,
    choice_of,
    cwd_of,
    guarded,
    launch_of,
    load,
    project_of,
    say,
    steady_streams,
    task_of,
    warm,
    with_rules,
)
from .preserve import preserve, rules
from .recover import recover
from .replay import replay
from .sessions import sessions
from .unreadable import close_memory

if TYPE_CHECKING:
    from ..events import Ask, Emit
    from ..keeping import RuleFiles
    from ..launch import Launch
    from ..loop import Loop
    from ..ui.backing import Opener


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
@click.option(
    "--preset",
    type=click.Choice(["default", "v5", "ctx-001", "anchored", "ledger"]),
    help="When and how the context gets smaller.",
)
@click.option("-c", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting, repeatable.")
@click.option("--permission-mode", type=click.Choice(["ask", "accept-edits", "plan", "bypass"]))
@click.option("--allow", multiple=True, metavar="RULE", help="E.g. 'Bash(git status:*)'.")
@click.option("--deny", multiple=True, metavar="RULE", help="E.g. 'Edit(migrations/**)'.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Model calls at most.")
@click.option("--max-budget-usd", type=click.FloatRange(min=0), callback=check_finite, metavar="X")
@click.option("--continue", "newest", is_flag=True, help="Go on with the newest session here.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[ID]",
    help="Go on with a session; without ID as --continue.",
)
@click.option("--fork", is_flag=True, help="Go on with a copy of it.")
@click.option("--wait", is_flag=True, help="Wait for it, if another process has it open.")
@click.option(
    "--from",
    "origin",
    metavar="ID[:N]",
    help="A fresh session that is told of another, as it stood at checkpoint N or the newest one.",
)
@click.option("--cwd", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--append-system-prompt", metavar="TEXT", default="")
@click.option("--plain", is_flag=True, help="Lines only, as a screen reader likes them.")
@click.option("--verbose", is_flag=True)
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """A coding agent for the terminal that keeps its context small and loses nothing."""
    steady_streams()
    context.obj = options
    if context.invoked_subcommand is not None:
        check_command(options, context.invoked_subcommand)
        return
    if _is_headless(options):
        _headless(options)
    guarded(lambda: _repl(options))


@main.command()
@click.option("--fast", is_flag=True, help="No pauses for the eye.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Play in DIR, a new one, and leave it there, with the session to look at and replay.",
)
@click.pass_obj
def demo(options: dict[str, Any], fast: bool, keep: Path | None) -> None:
    """Show it all on a sample project: a scripted model, real tools, no key, no network."""

    def run() -> int:
        from ..demo import play, play_in
        from ..record.lock import make_private

        if keep is None:
            return play(fast=fast)
        if keep.exists() or keep.is_symlink():
            raise UsageError(f"{keep} is there already", hint="Name a directory that is not.")
        try:
            make_private(keep)
        except OSError as error:
            raise UsageError(f"cannot make the directory {keep}: {error.strerror}") from error
        code = play_in(keep.resolve(), fast=fast)
        for path in (keep / "state").glob("projects/*/sessions/*/log.jsonl"):
            say(f"What was recorded: ctxagent replay --context-window 20000 {path}", err=True)
        return code

    guarded(run)


main.add_command(sessions)
main.add_command(compact)
main.add_command(rules)
main.add_command(preserve)
main.add_command(log)
main.add_command(recover)
main.add_command(doctor)
main.add_command(replay)


@main.command()
@click.option("--explain", is_flag=True, help="Where each value came from, and what it does.")
@click.option("--trust", is_flag=True, help="Accept this project's files as they are now.")
@click.pass_obj
def config(options: dict[str, Any], explain: bool, trust: bool) -> None:
    """Every setting and its value."""

    def run() -> int:
        from ..config import explain as rows_of

        if trust:
            _trust(options)
        loaded = load(options)
        for line in loaded.notices:
            say(f"note: {line}", err=True)
        for row in rows_of(loaded):
            origin = f"  # {row.origin}; {row.help}" if explain else ""
            say(f"{row.key} = {row.value}{origin}")
        return 0

    guarded(run)


def _is_headless(options: dict[str, Any]) -> bool:
    return options["task"] is not None or sys.stdin is None or not sys.stdin.isatty()


def _headless(options: dict[str, Any]) -> NoReturn:
    import asyncio

    from ..ui.headless import Headless
    from ..ui.screen import signals

    front = Headless(
        options["format"],
        sys.stdout,
        sys.stderr,
        verbose=options["verbose"],
        wait=options["wait"],
    )

    def run() -> int:
        launch, choice = launch_of(options), choice_of(options)
        check_key(launch)
        task = task_of(options["task"])
        from ..compose import open_loop
        from ..confinement import check_sandbox

        check_sandbox(launch)
        close_memory()

        def opened() -> "Loop":
            loop = open_loop(launch, choice, emit=front.emit, ask=None)
            warm(launch)  # while git looks at the project
            return loop

        try:
            code = asyncio.run(front.run(opened, task))
            signals.ignored()
        except KeyboardInterrupt:
            signals.ignored()
            if front.ended is None:
                raise
            code = front.ended  # it comes too late: the result stands
        return code

    guarded(run, front.fail)


def _repl(options: dict[str, Any]) -> int:
    import asyncio

    from ..config import explain
    from ..keeping import RuleFiles
    from ..record.sessions import every_log
    from ..ui.backing import Backing
    from ..ui.repl import Repl

    loaded = load(options)
    project = project_of(options, loaded)
    launch = launch_of(options, loaded)
    check_choice(choice_of(options), project)  # what is wrong is told before the prompt is there
    for line in loaded.notices:
        say(f"note: {line}", err=True)

    rules = RuleFiles(loaded, cwd=project.cwd, environ=os.environ)

    def set_model(loop: "Loop", id: str) -> None:
        from ..compose import change_model

        change_model(loop, launch, id)

    backing = Backing(
        open=_opener(options, launch, rules),
        cwd=project.cwd,
        version=__version__,
        history=project.folder / "history",
        warm=lambda: warm(launch),
        sessions=project.logs,
        everywhere=lambda: every_log(project.state),
        copy=project.fork,
        settings=lambda: [row[:3] for row in explain(loaded)],
        checks=lambda: [row_of(each) for each in look_over(loaded, project.state)],
        models=_models,
        set_model=set_model,
        rules=rules,
        wait=options["wait"],
    )
    return asyncio.run(Repl(backing, loaded.settings.ui).run())


def _opener(options: dict[str, Any], launch: "Launch", rules: "RuleFiles") -> "Opener":
    """What opens a session of the REPL."""
    import asyncio
    from dataclasses import replace

    from ..launch import Choice

    async def open_session(
        emit: "Emit",
        ask: "Ask",
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
    ) -> "Loop":
        def build() -> "Loop":
            from ..compose import open_loop

            close_memory()
            now = with_rules(launch, rules.allow)
            if prior is not None:
                return open_loop(replace(now, prior=prior), Choice(), emit=emit, ask=ask)
            asked = Choice(id=resume, fork=fork, read_only=read_only)
            choice = asked if resume else choice_of(options)
            return open_loop(now, choice, emit=emit, ask=ask)

        return await asyncio.to_thread(build)

    return open_session


def _models() -> list[tuple[str, str]]:
    """The models that are known, with window and prices."""
    from ..model.base import MODELS

    return [
        (id, f"{limits.window:,} tokens · ${price.input:g} in, ${price.output:g} out per million")
        for id, (limits, price) in MODELS.items()
    ]


def _trust(options: dict[str, Any]) -> None:
    """Accept the project's settings file and its types of subagents with the content they have
    now."""
    from ..agents import project_files
    from ..config import trust

    loaded = load(options)
    home = Path(os.environ.get("HOME") or Path.home())
    files = [*filter(None, [loaded.project]), *project_files(cwd_of(options), home)]
    if not files:
        raise UsageError("there is no .agentrc and no .ctxagent/agents in this project to trust")
    for path in files:
        trust(path, loaded.trust_dir)
        say(f"trusted as it is now: {path}", err=True)
