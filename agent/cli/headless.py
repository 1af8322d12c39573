"""A headless run: run one task, or the messages of a program, then exit with the last result's
code.

A task that is a slash command of the terminal, such as `/compact`, is rejected and not sent to a
model.
"""

import asyncio
import difflib
import os
import re
import sys
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import UsageError
from ..lazy import regex
from ..ui.headless import Headless, StreamHeadless
from .options import (
    LITERAL_WORDS,
    STDIN,
    choice_of,
    launch_of,
    load,
    message_of,
    resume_recording,
    run_and_exit,
    say_notices,
    task_of,
)
from .stdin import read_attached_data
from .worktree import enter_worktree, worktree_summary

if TYPE_CHECKING:
    from ..launch import LaunchOptions, SessionChoice
    from ..library.agent import AgentRun
    from ..session.entries import Content

MAX_LEFT_OUT = 10  # ignored commands, skills and plugins in a hint
MIN_NAME_LIKENESS = 0.8  # similarity from which a name counts as mistyped
_CALL = regex(r"/([A-Za-z][\w-]*)(?:\s+(.*))?", re.DOTALL)
_COMMAND_LINES = {  # equivalent command lines
    "clear": "ctxagent -p TASK",
    "compact": "ctxagent compact --dry-run | --apply",
    "context": "ctxagent context",
    "cost": "ctxagent -p TASK --output-format json",
    "doctor": "ctxagent doctor",
    "effort": "ctxagent --effort LEVEL -p TASK",
    "export": "ctxagent sessions export ID",
    "fork": "ctxagent sessions fork ID",
    "from-recording": "ctxagent --from-recording FILE -p TASK",
    "help": "ctxagent --help lists options and commands, ctxagent guide explains them",
    "log": "ctxagent log",
    "mcp": "ctxagent mcp list",
    "model": "ctxagent --model ID -p TASK",
    "new": "ctxagent -p TASK",
    "permissions": "ctxagent --permission-mode MODE --allow RULE -p TASK",
    "plan": "ctxagent --permission-mode plan -p TASK",
    "preserve": "ctxagent preserve",
    "recover": "ctxagent recover 1|2|3|TOPIC",
    "rename": "ctxagent sessions rename ID NAME",
    "resume": "ctxagent --resume ID -p TASK",
    "rules": "ctxagent rules",
    "sessions": "ctxagent sessions list",
    "settings": "ctxagent config --explain",
    "uncompact": "ctxagent compact --undo",
}


def check_task(task: str, launch: "LaunchOptions", *, takes: Collection[str] = ()) -> None:
    """Raise UsageError for a task that is a terminal command, or that is probably a mistyped
    command or skill. Paths, other text and the commands in `takes` pass.
    """
    called = _CALL.fullmatch(task.strip())
    if called is None or os.path.lexists(f"/{called[1]}"):
        return
    from ..features import add_on_classes, plain_features
    from ..features.extension_features import extensions_of
    from ..features.skills import skills_of
    from ..library.launch_parts import command_files_of
    from ..ui.commands import COMMANDS
    from ..ui.foreign_names import foreign_names

    (known_skills, no_skills), (files, no_files) = skills_of(launch), command_files_of(launch)
    skills = [name for name, skill in known_skills.items() if skill.for_user]
    kinds = [*plain_features(launch.settings.features.off), *extensions_of(launch).classes]
    callable_here = {
        *takes,
        *files,
        *skills,
        *(each for kind in kinds for each in kind.command_names()),
    }
    name, has_more = called[1], bool(called[2])
    is_path = name == "settings" and has_more and not _names_setting(called[2])
    if name in callable_here or is_path:
        return
    add_ons = [] if launch.extras.safe else add_on_classes(launch.settings.features.off)
    if any(name in kind.command_names() for kind in add_ons):
        return
    if name not in COMMANDS and not has_more:
        if hint := foreign_names("commands").get(name):
            raise UsageError(f"there is no command /{name}", hint=hint)
        name = foreign_names("aliases").get(name, f"/{name}").split()[0].removeprefix("/")
    if name in COMMANDS:
        way = _COMMAND_LINES.get(name, f'ctxagent "/{name}"')
        where = "On the command line" if name in _COMMAND_LINES else "Open the terminal with it"
        raise UsageError(f"/{name} is a command of the terminal", hint=f"{where}: {way}")
    if near := _nearest(name, {*callable_here, *COMMANDS}, may_be_short=not has_more):
        hint = f"Did you mean /{near}? To send it to the agent, put a word before the slash."
        no_plugins = launch.extras.installed.warnings if launch.extras.installed else ()
        left_out = [*no_plugins, *no_skills, *no_files][:MAX_LEFT_OUT]
        raise UsageError(f"there is no command /{name}", hint="\n".join([hint, *left_out]))


def _check_files(task: str, cwd: Path) -> None:
    """Raise UsageError for a file that the task names with @ and that does not exist."""
    if "@" not in task:
        return
    from ..features.mentions import missing_names, similar_name

    for name in (name for name, is_file in missing_names(task, cwd).items() if is_file):
        near = similar_name(name, cwd)
        right = f"Did you mean @{near}?\n" if near else ""
        hint = f"{right}To send the name as text, quote it: '@{name}', or put -- before the task."
        raise UsageError(f"there is no file {name}", hint=hint)


def _names_setting(argument: str) -> bool:
    """Return True if the argument of /settings starts with (part of) the name of a setting."""
    from ..config.settings import KEYS, current_name

    name = current_name(argument.split()[0])
    return any(name in key for key in KEYS)


def _nearest(name: str, names: Collection[str], *, may_be_short: bool) -> str:
    """Return the name that was probably meant, or ""."""
    if near := difflib.get_close_matches(name, sorted(names), 1, MIN_NAME_LIKENESS):
        return near[0]
    longer = [each for each in sorted(names) if each.startswith(name)] if may_be_short else []
    return longer[0] if len(longer) == 1 else ""


def run_headless(options: dict[str, Any], context: click.Context) -> NoReturn:
    """Run the task in the options, and exit."""
    kind = StreamHeadless if options["input_format"] == "stream-json" else Headless
    front = kind(
        options["format"],
        sys.stdout,
        sys.stderr,
        verbose=options["verbose"],
        wait=options["wait"],
    )
    run_and_exit(lambda: _run(front, options, context), front.fail)


def _run(front: Headless, options: dict[str, Any], context: click.Context) -> int:
    _check_formats(options)
    words = message_of(context)  # report a mistyped command before a missing key
    loaded = load(options)
    say_notices(loaded, safe=options["safe"])
    choice = choice_of(options)
    if choice.pick:
        hint = "Give --resume ID, as `ctxagent sessions list` shows it, or --continue."
        raise UsageError("a headless run can't pick the session to resume", hint=hint)
    if choice.pick_recording:
        hint = "Give the file: --from-recording FILE."
        raise UsageError("a headless run can't pick the recording to continue", hint=hint)
    if options["json_schema"] is not None:
        from ..features.result_schema import read_schema

        front.schema = read_schema(options["json_schema"])
    early = None  # read first: without a task, no session is created from a recording
    if options["recording"] is not None and not isinstance(front, StreamHeadless):
        early = task_of(options["task"], words, front.say)
    worktree = enter_worktree(options, loaded)
    if worktree is not None:
        front.worktree = {"path": str(worktree.path), "branch": worktree.branch}
    try:
        resume_recording(options, loaded)
        choice = choice_of(options)
        launch = launch_of(options, loaded)
        given = words if options["task"] in (None, STDIN) else options["task"]
        if given is not None and not context.meta.get(LITERAL_WORDS):
            _check_files(given, launch.places.cwd)
        return _run_in(front, options, words, launch, choice, early)
    finally:
        if worktree is not None:
            front.say(worktree_summary(worktree))


def _run_in(
    front: Headless,
    options: dict[str, Any],
    words: str | None,
    launch: "LaunchOptions",
    choice: "SessionChoice",
    early: tuple[str, bool] | None,
) -> int:
    """Run the task of the command line, or the task that was read `early`."""
    from ..library.agent import Agent
    from ..library.launch_parts import SESSION_COMMANDS

    given = words if options["task"] in (None, STDIN) else options["task"]
    takes = SESSION_COMMANDS if isinstance(front, StreamHeadless) else ()
    if given is not None:
        check_task(given, launch, takes=takes)
    if isinstance(front, StreamHeadless):
        agent = Agent.launched(
            launch,
            choice,
            on_event=front.emit,
            approve=front.ask,
            check_words=lambda message: check_task(message, launch, takes=takes),
        )
        first = None if given is None else task_of(options["task"], words, front.say)[0]

        def make_run(content: "Content", next_words: Any) -> "AgentRun":
            return agent.run(content, schema=front.schema, next_words=next_words)

        return _outcome(front, front.run_messages(agent, sys.stdin.fileno(), first, make_run))
    agent = Agent.launched(launch, choice, on_event=front.emit)
    task, is_given = early or task_of(options["task"], words, front.say)
    attached = read_attached_data(front.say) if is_given else None
    run = agent.run(task, schema=front.schema, verbatim=not is_given, attached=attached)
    return _outcome(front, front.run(agent, run))


def _check_formats(options: dict[str, Any]) -> None:
    """Raise UsageError if `--input-format stream-json` is combined with incompatible options or a
    closed stdin.
    """
    if options["input_format"] != "stream-json":
        return
    if options["session_id"] is not None:
        hint = "Give --resume ID to continue a session."
        raise UsageError("--session-id is for one task, -p TASK", hint=hint)
    if options["format"] != "stream-json":
        hint = "Add --output-format stream-json."
        raise UsageError("--input-format stream-json answers only in stream-json", hint=hint)
    if sys.stdin is None:
        hint = "Write the messages to it."
        raise UsageError("--input-format stream-json: standard input is closed", hint=hint)


def _outcome(front: Headless, running: Coroutine[Any, Any, int]) -> int:
    """Return the exit code of a headless run. Ignore an interrupt after the result."""
    from ..ui import signals

    try:
        code = asyncio.run(running)
        signals.ignore_signals()
    except KeyboardInterrupt:
        signals.ignore_signals()
        if front.ended is None:
            raise
        code = front.ended  # keep the result
    return code
