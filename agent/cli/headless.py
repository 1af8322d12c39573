"""A headless run: one task, or the messages of a program, and the end of the process with the exit
code of the last result."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ...tools.system.hardening import close_memory
from ..errors import UsageError
from ..ui.headless import Headless
from ..ui.headless_stream import StreamHeadless
from .options import (
    STDIN,
    check_key,
    choice_of,
    guarded,
    launch_of,
    load,
    say_notices,
    task_of,
    warm,
    words_of,
)
from .stdin import read_beside_task
from .worktree import ending, enter_worktree

if TYPE_CHECKING:
    from ..launch import AttachedData, LaunchOptions, SessionChoice
    from ..loop.agent import Agent
    from ..loop.attachments import Attached
    from ..session.entries import Content
    from .mcp_servers import RunServers


def run_headless(options: dict[str, Any], context: click.Context) -> NoReturn:
    """Run what the options ask for, and end the process."""
    kind = StreamHeadless if options["input_format"] == "stream-json" else Headless
    front = kind(
        options["format"],
        sys.stdout,
        sys.stderr,
        verbose=options["verbose"],
        wait=options["wait"],
    )
    guarded(lambda: _run(front, options, context), front.fail)


def _run(front: Headless, options: dict[str, Any], context: click.Context) -> int:
    _check_formats(options)
    loaded = load(options)
    say_notices(loaded, safe=options["safe"])
    choice = choice_of(options)
    if choice.pick:
        hint = "Give --resume ID, as `ctxagent sessions list` shows it, or --continue."
        raise UsageError("a headless run can't pick the session to resume", hint=hint)
    if options["json_schema"] is not None:
        from ..loop.result_schema import read_schema

        front.schema = read_schema(options["json_schema"])
    worktree = enter_worktree(options, loaded)
    if worktree is not None:
        front.worktree = {"path": str(worktree.path), "branch": worktree.branch}
    try:
        return _run_in(front, options, context, launch_of(options, loaded), choice)
    finally:
        if worktree is not None:
            front.say(ending(worktree))


def _run_in(
    front: Headless,
    options: dict[str, Any],
    context: click.Context,
    launch: "LaunchOptions",
    choice: "SessionChoice",
) -> int:
    check_key(launch)
    from ..security.sandbox import check_sandbox
    from .mcp_servers import RunServers

    run = _Run(front, launch, choice, RunServers(launch))
    try:
        if isinstance(front, StreamHeadless):
            running = run.messages(front, _first_message(options, context))
        else:
            task, is_given = task_of(options["task"], words_of(context), front.say)
            beside = read_beside_task(front.say) if is_given else None
            running = run.task(task, is_given=is_given, beside=beside)
        check_sandbox(launch)
        close_memory()
        return _outcome(front, running)
    finally:
        run.servers.end()


def _check_formats(options: dict[str, Any]) -> None:
    """Raise UsageError for a form of input that has no answer of its form or source."""
    if options["input_format"] != "stream-json":
        return
    if options["format"] != "stream-json":
        hint = "Add --output-format stream-json."
        raise UsageError("--input-format stream-json answers in stream-json alone", hint=hint)
    if sys.stdin is None:
        hint = "Write the messages to it."
        raise UsageError("--input-format stream-json: standard input is closed", hint=hint)


def _first_message(options: dict[str, Any], context: click.Context) -> str | None:
    """Return the message that stands on the command line, None where all come by stdin."""
    task, words = options["task"], words_of(context)
    if task in (None, STDIN) and words is None:
        return None
    return task_of(task, words, lambda text: None)[0]


@dataclass(slots=True)
class _Run:
    """What a run opens its session with, and what it brings in beside words."""

    front: Headless
    launch: "LaunchOptions"
    choice: "SessionChoice"
    servers: "RunServers"
    beside: "AttachedData | None" = None
    is_typed: bool = True  # the words are a person's or a program's, not a whole file's
    agent: "Agent | None" = field(default=None, init=False)
    first_model: str = field(default="", init=False)

    def task(
        self, task: str, *, is_given: bool, beside: "AttachedData | None"
    ) -> Coroutine[Any, Any, int]:
        """Return the run of one task."""
        self.is_typed, self.beside = is_given, beside

        async def words_of_task(agent: "Agent") -> str:
            return await self._expanded(agent, task) if is_given else task

        return self.front.run(self.opened, words_of_task, self.attached_to)

    def messages(self, front: StreamHeadless, first: str | None) -> Coroutine[Any, Any, int]:
        """Return the run of a program's messages, and of one that comes before them."""

        async def expand(agent: "Agent", words: "Content") -> "Content":
            from ..app import change_model

            if agent.model.id != self.first_model:  # a command had its own for its turn
                change_model(agent, self.launch, self.first_model)
            return await self._expanded(agent, words) if isinstance(words, str) else words

        return front.run_messages(self.opened, sys.stdin.fileno(), first, expand, self.attached_to)

    def opened(self) -> "Agent":
        """Open the session."""
        from ..app import open_agent

        there = self.servers.begin(self.front.say)
        launch, front = replace(self.launch, mcp=there), self.front
        ask = front.ask if isinstance(front, StreamHeadless) else None
        self.agent = open_agent(launch, self.choice, emit=front.emit, ask=ask)
        self.first_model = self.agent.model.id
        warm(launch)  # while git looks at the project
        return self.agent

    def attached_to(self, words: "Content") -> "Sequence[Attached]":
        """Return what words bring in; blocking."""
        from ..loop.attachments import find_mentions, find_skill
        from ..loop.command_words import is_of_command

        typed = self.is_typed and not is_of_command(words)
        skill = find_skill(self.agent, words) if typed and self.agent else []
        there = self.servers.begin(self.front.say)
        names = there.names if there else ()
        named = find_mentions(words, self.launch.cwd, typed=typed, servers=names)
        return [*([self.beside] if self.beside else []), *skill, *named]

    async def _expanded(self, agent: "Agent", words: str) -> str:
        from .command_files import expand_task

        return await expand_task(agent, self.launch, words)


def _outcome(front: Headless, running: Coroutine[Any, Any, int]) -> int:
    """Return the exit code of a headless run; an interrupt that comes too late changes nothing."""
    from ..ui import signals

    try:
        code = asyncio.run(running)
        signals.ignore_signals()
    except KeyboardInterrupt:
        signals.ignore_signals()
        if front.ended is None:
            raise
        code = front.ended  # the result stands
    return code
