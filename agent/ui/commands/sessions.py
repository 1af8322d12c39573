"""Commands about other sessions: list them, resume one, or continue in a copy."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.plural import count_of, format_size
from ...errors import UsageError
from .. import status
from ..menu import Menu, Option, Styled
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
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
        raise UsageError("you are already in this session")
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
            ("copy: " if row.copy_of else "") + (row.title or "(no words yet)"),
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
        raise UsageError("there is nothing to copy yet: this session is empty")
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


def _menu(repl: CommandContext) -> Menu:
    """Return a menu of the other sessions that have messages, of this project and of all."""
    logs: dict[str, Path] = {}
    here = repl.session

    def load(scope: int) -> Iterator[Sequence[Option]]:
        from ...session.listing import session_rows

        logs_of = repl.services.all_sessions if scope else repl.services.sessions
        others = (row for row in session_rows(logs_of()) if row.title and row.id != here)
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
