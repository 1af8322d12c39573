"""A headless run: run one task, or the messages of a program, then exit with the code of the
last result.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import UsageError
from ..ui.headless import Headless
from ..ui.headless_stream import StreamHeadless
from .options import (
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
from .terminal_commands import check_task
from .worktree import enter_worktree, worktree_summary

if TYPE_CHECKING:
    from ..launch import LaunchOptions, SessionChoice
    from ..library.agent import AgentRun
    from ..session.entries import Content


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
        return _run_in(front, options, words, launch_of(options, loaded), choice, early)
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
    from ..library.command_files import SESSION_COMMANDS

    given = words if options["task"] in (None, STDIN) else options["task"]
    takes = SESSION_COMMANDS if isinstance(front, StreamHeadless) else ()
    if given is not None:
        check_task(given, launch, takes=takes)
    if isinstance(front, StreamHeadless):
        agent = Agent.launched(
            launch,
            choice,
            on_event=front.emit,
            ask=front.ask,
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
