"""Commands about other sessions: list them, resume one, or continue in a copy.

/history shows the user's earlier messages in this project. /from-recording continues a session of
another agent.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.history import FileHistory

from ....tools.system.phrasing import count_of, format_size, one_line
from ...errors import UsageError
from ...extensions.command import Command, command
from .. import status
from ..screen import Menu, Option, Styled
from . import completions
from .command_context import COMMANDS, CommandContext, parse
from .files import all_commands

if TYPE_CHECKING:
    from ...recordings.other_sessions import FoundRecording, OtherSessions
    from ...session.listing import SessionRow

MAX_LISTED_SESSIONS = 10
FIRST_PAGE_ROWS, PAGE_ROWS = 30, 1_000  # menu rows read at a time
MAX_BRANCH_CHARS = 18
MAX_PREVIEW_CHARS = 4_000  # of an answer in a preview


@command(
    "resume another session",
    argument="[ID]",
    complete=completions.sessions,
    group="conversation",
)
async def _resume(repl: CommandContext, argument: str) -> None:
    if not argument:
        await pick_session(repl)
        return
    if argument.isdecimal() and int(argument) <= MAX_LISTED_SESSIONS:
        listed = await asyncio.to_thread(_listed, repl)
        argument = next(islice((row.id for row in listed), int(argument) - 1, None), argument)
    if repl.session == argument and not repl.agent.log.refusal:
        raise UsageError(
            "you are already in this session", hint="/resume without an ID lists the others."
        )
    if not await repl.may_end_tasks():
        return
    await repl.switch_session(resume=argument)


@command("the sessions of this project", anytime=True, group="conversation")
async def _sessions(repl: CommandContext, argument: str) -> None:
    listed = await asyncio.to_thread(_listed, repl)
    if not listed:
        repl.say("there are no sessions of this project yet")
        return
    rows = [
        (
            str(number),
            row.id,
            "here" if row.id == repl.session else _when(row),
            row.branch[:MAX_BRANCH_CHARS],
            _marks(row) + (row.title or "(no words yet)"),
        )
        for number, row in enumerate(listed, 1)
    ]
    repl.show_table(rows, wrap=False)
    older = len(repl.services.sessions()) - len(listed)
    more = f"{older:,} older ones · " if older > 0 else ""
    repl.say(f"  {more}resume one: /resume NUMBER or ID, or /resume to choose")


@command(
    "give this session a title, which lists show",
    argument="NAME",
    complete=completions.titles,
    group="conversation",
)
async def _rename(repl: CommandContext, argument: str) -> None:
    from ...loop.user_commands import rename

    title = rename(repl.agent, argument)
    repl.show_title()
    repl.say(f"this session is now called: {title}")


@command("continue in a copy of this session", group="conversation")
async def _fork(repl: CommandContext, argument: str) -> None:
    if not repl.agent.log.last_seq:
        raise UsageError(
            "there is nothing to copy yet: this session is empty", hint="Send a message first."
        )
    if not await repl.may_end_tasks():
        return
    await repl.switch_session(resume=repl.session, fork=True)


async def pick_session(repl: CommandContext, *, fork: bool = False) -> bool:
    """Resume a session that the user picks, or a copy of it. Return True if one was picked."""
    picked = await repl.screen.pick(_menu(repl))
    if picked is not None:
        await repl.switch_session(resume=picked.key, fork=fork)
    return picked is not None


def _listed(repl: CommandContext) -> "list[SessionRow]":
    from ...session.listing import session_rows

    return [*islice(session_rows(repl.services.sessions()), MAX_LISTED_SESSIONS)]


def _marks(row: "SessionRow") -> str:
    return ("failed: " if row.has_failed else "") + ("copy: " if row.copy_of else "")


def _menu(repl: CommandContext) -> Menu:
    """Return a menu of the other sessions that have messages and did not fail, of this project and
    of all.
    """
    logs: dict[str, Path] = {}
    here = repl.session

    def load(scope: int) -> Iterator[Sequence[Option]]:
        from ...session.listing import session_rows

        logs_of = repl.services.all_sessions if scope else repl.services.sessions
        found = (row for row in session_rows(logs_of()) if row.title and not row.has_failed)
        others = (row for row in found if row.id != here)
        size = FIRST_PAGE_ROWS
        while part := [*islice(others, size)]:
            logs.update((row.id, row.log) for row in part)
            yield [_option(row, with_project=bool(scope)) for row in part]
            size = PAGE_ROWS

    return Menu(
        title="Resume",
        load=load,
        action="open",
        empty_text="there is no other session" if here else "there is no session",
        scopes=("this project", "all projects"),
        preview=lambda id: _preview(logs[id], repl.services.cwd),
    )


def _option(row: "SessionRow", *, with_project: bool) -> Option:
    from ..render.markdown import strip_markdown

    facts = (_when(row), format_size(row.size), row.branch, "copy" if row.copy_of else "")
    return Option(
        key=row.id,
        title=row.title,
        facts=(*facts, Path(row.cwd).name) if with_project else facts,
        detail=strip_markdown(row.last),
        words=f"{row.branch} {row.cwd if with_project else ''}",
    )


def _preview(log: Path, cwd: Path) -> list[Styled]:
    """Return the facts of a session and its last exchange as styled lines."""
    from ...session.listing import last_exchange, newest_entries, session_rows
    from ..render.markdown import strip_markdown

    for row in session_rows([log]):
        entries = count_of(row.entries, "entry", "entries")
        copy = f"copy of {row.copy_of}" if row.copy_of else ""
        facts = [row.id, _when(row), entries, format_size(row.size), row.branch, copy]
        said, answer = last_exchange(newest_entries(log))
        moved = row.cwd and Path(row.cwd) != cwd
        where = (
            [("warning", f"from {status.short_path(Path(row.cwd))}; continues here")]
            if moved
            else []
        )
        return [
            ("dim", " · ".join(filter(None, facts))),
            *where,
            ("message", f"❯ {said}" if said else ""),
            ("", strip_markdown(answer[:MAX_PREVIEW_CHARS] or row.last)),
        ]
    return [("warning", "its log can no longer be read")]


def _when(row: "SessionRow") -> str:
    """Return the age of a session's last change, "in use" if another process has it open."""
    return "in use" if row.in_use else age(row.changed)


def age(changed: float) -> str:
    """Return how long ago a timestamp is."""
    seconds = max(0, time.time() - changed)
    for size, name in ((31_536_000, "y"), (86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return "now"


MAX_MESSAGES = 2_000  # newest messages
MAX_PRINTED = 20
MAX_ROW_CHARS = 300
EMPTY_TEXT = "no earlier messages yet"


@command(
    "your earlier messages in this project; Enter edits one again",
    argument="[WORDS]",
    group="conversation",
)
async def _history(repl: CommandContext, argument: str) -> None:
    messages = await asyncio.to_thread(_messages, repl)
    words = argument.casefold().split()
    found = [each for each in messages if all(word in each.casefold() for word in words)]
    if not found:
        raise UsageError(
            "no earlier message has these words" if words else EMPTY_TEXT,
            hint="Give fewer words, or none for all messages.",
        )
    if not repl.screen.paints:
        repl.show("\n".join(one_line(each, MAX_ROW_CHARS) for each in found[:MAX_PRINTED][::-1]))
    elif chosen := await repl.screen.pick(_history_menu(found)):
        repl.screen.restore(found[int(chosen.key)])


def _messages(repl: CommandContext) -> list[str]:
    """Return the distinct messages, newest first. Built-in commands are left out; Up and Ctrl-R
    find them. Blocks.
    """
    path = repl.services.history
    if path is None or not path.is_file():
        return []
    newest = islice(FileHistory(str(path)).load_history_strings(), MAX_MESSAGES)
    commands = all_commands(repl)
    return [each for each in dict.fromkeys(newest) if _is_message(each, commands)]


def _is_message(text: str, commands: Mapping[str, Command]) -> bool:
    try:
        found = parse(text, commands) if text.startswith("/") else None
    except UsageError:  # a mistyped command
        return False
    return found is None or found[0].name not in COMMANDS


def _history_menu(messages: Sequence[str]) -> Menu:
    def load(scope: int) -> Iterator[Sequence[Option]]:
        yield [
            Option(str(n), one_line(each, MAX_ROW_CHARS), words=each)
            for n, each in enumerate(messages)
        ]

    return Menu(
        title="Your earlier messages",
        load=load,
        action="put it into the input",
        empty_text=EMPTY_TEXT,
        preview=lambda key: [("", messages[int(key)])],
        preview_rows=6,
    )


RECORDING_ROWS = 20  # menu rows read at a time
MAX_TITLE_CHARS, MAX_PREVIEW_MESSAGES = 200, 4


@command(
    "continue a session of another agent",
    argument="[FILE]",
    complete=completions.paths,
    group="conversation",
)
async def _from_recording(repl: CommandContext, argument: str) -> None:
    if not argument:
        await pick_recording(repl)
    elif await repl.may_end_tasks():
        await _continue(repl, argument)


async def pick_recording(repl: CommandContext) -> bool:
    """Continue a recording that the user picks. Return True if one was picked."""
    picked = await repl.screen.pick(_recording_menu(_recordings(repl)))
    if picked is None or (repl.session and not await repl.may_end_tasks()):
        return False
    await _continue(repl, picked.key)
    return True


async def _continue(repl: CommandContext, path: str) -> None:
    made = await asyncio.to_thread(_recordings(repl).import_session, path)
    await repl.switch_session(resume=made.id)
    repl.say(made.line)


def _recordings(repl: CommandContext) -> "OtherSessions":
    if repl.services.recordings is None:
        raise UsageError(
            "sessions of other agents cannot be read here", hint="Run `ctxagent --from-recording`."
        )
    return repl.services.recordings()


def _recording_menu(recordings: "OtherSessions") -> Menu:
    """Return a menu of the recordings, with scopes for this project and all projects."""

    def load(scope: int) -> Iterator[Sequence[Option]]:
        found = iter(recordings.find(everywhere=bool(scope)))
        while part := [*islice(found, RECORDING_ROWS)]:
            options = map(partial(_recording_option, recordings), part)
            yield [option for option in options if option.title]

    return Menu(
        title="Continue",
        load=load,
        action="continue",
        empty_text="no session of another agent was found",
        scopes=("this project", "all projects"),
        preview=partial(_recording_preview, recordings),
    )


def _recording_option(recordings: "OtherSessions", found: "FoundRecording") -> Option:
    """Return the option for a recording; its title is empty if there is no message."""
    said = recordings.first_messages(found.path)[:1] if not found.title else []
    title = one_line(found.title or "".join(said), MAX_TITLE_CHARS)
    size = format_size(found.size) if found.size else ""
    return Option(
        key=found.path,
        title=title,
        words=found.agent,
        facts=(found.agent, age(found.changed), size),
    )


def _recording_preview(recordings: "OtherSessions", path: str) -> list[Styled]:
    """Return the path of a recording and the user's first messages as styled lines."""
    said = recordings.first_messages(path)[:MAX_PREVIEW_MESSAGES]
    lines = [("message", f"❯ {one_line(text, MAX_TITLE_CHARS)}") for text in said]
    return [("dim", status.short_path(Path(path))), *lines]
