"""Commands about other sessions: which there are, going on with one of them or in a copy."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from .. import status
from ..screen.menu import Menu, Option, Styled
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...record.listing import Row

LISTED = 10  # sessions in a list
FIRST, MORE = 30, 1_000  # rows that are read at a time
BRANCH = 18  # characters of one in a list


@command("go on with another session", argument="[ID]", complete=offers.sessions)
async def _resume(desk: Desk, argument: str) -> None:
    if not argument:
        chosen = await desk.pick(_menu(desk))
        if chosen is None:
            return
        argument = chosen.key
    elif argument.isdecimal() and int(argument) <= LISTED:
        listed = await asyncio.to_thread(_listed, desk)
        argument = next(islice((row.id for row in listed), int(argument) - 1, None), argument)
    if desk.session == argument and not desk.loop.log.refusal:
        raise UsageError("this is the session you are in")
    await desk.reopen(resume=argument)


@command("the sessions of this project", anytime=True)
async def _sessions(desk: Desk, argument: str) -> None:
    from ..look import render

    listed = await asyncio.to_thread(_listed, desk)
    if not listed:
        desk.put(render.dim("there are no sessions of this project yet"))
        return
    rows = [
        (
            str(number),
            row.id,
            "here" if row.id == desk.session else _when(row),
            row.branch[:BRANCH],
            row.title or "(no words yet)",
        )
        for number, row in enumerate(listed, 1)
    ]
    desk.put(render.table(rows, wrap=False))
    older = len(desk.sessions()) - len(listed)
    more = f"{older:,} older ones · " if older > 0 else ""
    desk.put(render.dim(f"  {more}go on with one: /resume NUMBER or ID, or /resume to choose"))


@command("go on in a copy of this session")
async def _fork(desk: Desk, argument: str) -> None:
    if not desk.loop.log.last_seq:
        raise UsageError("there is nothing to copy yet: this session is empty")
    await desk.reopen(resume=desk.session, fork=True)


def _listed(desk: Desk) -> "list[Row]":
    from ...record.listing import rows

    return [*islice(rows(desk.sessions()), LISTED)]


def _menu(desk: Desk) -> Menu:
    """All sessions but this one that anything was said in, with those of other projects behind
    them."""
    logs: dict[str, Path] = {}
    here = desk.session

    def load(scope: int) -> Iterator[Sequence[Option]]:
        from ...record.listing import rows

        place = _project if scope else None
        found = (row for row in rows((desk.sessions, desk.everywhere)[scope]()) if row.title)
        others = (row for row in found if row.id != here)
        size = FIRST
        while part := [*islice(others, size)]:
            logs.update((row.id, row.log) for row in part)
            yield [_option(row, place) for row in part]
            size = MORE

    return Menu(
        title="Go on with",
        load=load,
        act="open",
        nothing="there is no other session",
        scopes=("this project", "all projects"),
        preview=lambda id: _preview(logs[id], desk.cwd),
    )


def _option(row: "Row", place: Callable[["Row"], str] | None) -> Option:
    facts = (_when(row), _size(row.size), row.branch)
    return Option(
        key=row.id,
        title=row.title,
        facts=(*facts, place(row)) if place else facts,
        below=row.last,
        words=f"{row.branch} {row.cwd if place else ''}",
    )


def _project(row: "Row") -> str:
    return Path(row.cwd).name


def _preview(log: Path, cwd: Path) -> list[Styled]:
    """What a session is, and how it was left."""
    from ...record.listing import ending, last_exchange, rows

    for row in rows([log]):
        facts = [row.id, _when(row), f"{row.entries:,} entries", _size(row.size), row.branch]
        said, answer = last_exchange(ending(log))
        moved = row.cwd and Path(row.cwd) != cwd
        where = [("warning", f"from {status.short(Path(row.cwd))}; goes on here")] if moved else []
        return [
            ("dim", " · ".join(filter(None, facts))),
            *where,
            ("words", f"❯ {said}" if said else ""),
            ("", answer or row.last),
        ]
    return [("warning", "its log cannot be read any more")]


def _when(row: "Row") -> str:
    """How long ago a session has changed last."""
    if row.in_use:
        return "in use"
    seconds = max(0, time.time() - row.changed)
    for size, name in ((31_536_000, "y"), (86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return "now"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
