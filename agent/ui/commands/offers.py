"""What may be typed in some place: refs, paths, what a command takes, each with what it is.

All of it is taken from what is in memory, and little of that, so that it can be asked for with
every key; what has to be read from disk is read in a thread.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ...errors import CtxagentError
from .registry import COMMANDS, Complete, Desk, Offer

if TYPE_CHECKING:
    from ...context.view import Item, View
    from ...loop import Loop
    from ...record.ledger import Ledger

REFS = 200  # newest of each kind
FILES = 50  # that the session has to do with
SESSIONS = 100  # newest
SHOWN = 60  # characters of what a thing is


async def fitting(desk: Desk, place: str) -> Sequence[Offer]:
    """What fits: after a command by its name with the slash (the only one that begins so), a ref
    (`#`), a path (`@`). Nothing while no session is open."""
    try:
        if place == "#":
            return await refs(desk)
        if place == "@":
            return await paths(desk)
        named = [c for c in COMMANDS.values() if c.name.startswith(place[1:])]
        command = COMMANDS.get(place[1:]) or (named[0] if len(named) == 1 else None)
        return await command.complete(desk) if command and command.complete else ()
    except CtxagentError:
        return ()


def among(words: Iterable[str], *, also: Complete | None = None) -> Complete:
    """Always the same words, and what `also` gives."""
    fixed = [(word, "") for word in words]

    async def complete(desk: Desk) -> Sequence[Offer]:
        return [*fixed, *(await also(desk) if also else ())]

    return complete


async def refs(desk: Desk) -> Sequence[Offer]:
    """The newest entries by number, newest first: what the person and the agent said, what was run,
    read and changed, what is pinned."""
    known = _facts(desk.loop.ledger)
    for seq, what in _standing(desk.loop.view):
        known.setdefault(seq, what)
    return [(str(seq), known[seq]) for seq in sorted(known, reverse=True)[:REFS]]


async def pinned(desk: Desk) -> Sequence[Offer]:
    pins = [(str(ref), _short(text)) for ref, text in desk.loop.ledger.pins.items()]
    return pins[::-1]


async def paths(desk: Desk) -> Sequence[Offer]:
    """Files that the session has to do with: changed ones first, then those read, newest first."""
    ledger = desk.loop.ledger
    changed = sorted(ledger.files.values(), key=lambda fact: -fact.ref)
    rows: dict[str, str] = {f.path: f.action for f in changed if f.action != "deleted"}
    for path in reversed(list(ledger.read)):
        rows.setdefault(path, "read")
    inside = (row for row in rows.items() if not row[0].startswith("/"))
    return list(islice(inside, FILES))


async def allowing(desk: Desk) -> Sequence[Offer]:
    """The rules that allow something and can be forgotten."""
    rules = desk.loop.approval.rules()
    found = dict.fromkeys([*rules["session"], *rules["allow"]])
    asked = [("forget", "a rule that allows something")] if found else []
    return [*asked, *((f"forget {rule}", "allow it no longer") for rule in found)]


async def models(desk: Desk) -> Sequence[Offer]:
    return [(row[0], row[1]) for row in desk.models()]


async def sessions(desk: Desk) -> Sequence[Offer]:
    """The newest other ones of the project, with their first words."""
    return await asyncio.to_thread(_sessions, desk, desk.session)


async def points(desk: Desk) -> Sequence[Offer]:
    """What can be gone back to, newest first."""
    return await asyncio.to_thread(_points, desk.loop)


async def settings(desk: Desk) -> Sequence[Offer]:
    return [(row[0], row[1]) for row in desk.settings()]


async def phases(desk: Desk) -> Sequence[Offer]:
    """Those that have a form of their own; any other name is one too."""
    from ...compaction.phases import PHASES

    return [(form.name, f"ends with {form.asks}") for form in PHASES.values()]


async def preserved(desk: Desk) -> Sequence[Offer]:
    """The sections that every compaction keeps."""
    sections = await asyncio.to_thread(desk.loop.sections)
    return [(section.name, section.where) for section in sections]


async def working(desk: Desk) -> Sequence[Offer]:
    """The subagents that can be stopped."""
    agents = desk.loop.ledger.agents
    running = (agents.get(id) for id in desk.loop.context.agents)
    return [(f"stop {a.id}", f"{a.type}: {a.description}") for a in running if a]


def _facts(ledger: "Ledger") -> dict[int, str]:
    known = {fact.ref: _short(f"$ {fact.command}") for fact in ledger.commands[-REFS:]}
    known |= {ref: f"read {path}" for path, ref in ledger.read.items()}
    known |= {fact.ref: f"{fact.action} {fact.path}" for fact in ledger.files.values()}
    known |= {ref: _short(f"you: {text}") for ref, text in ledger.words[-REFS:]}
    return known | {ref: _short(f"pinned: {text}") for ref, text in ledger.pins.items()}


def _standing(view: "View") -> Iterator[tuple[int, str]]:
    """What stands in the view, newest first."""
    for item in islice(reversed(view.items), REFS):
        for block in item.blocks:
            if what := _what(item, block, view):
                yield item.seq, _short(what)
                break


def _what(item: "Item", block: Mapping[str, object], view: "View") -> str:
    if block.get("type") == "tool_result":
        call = view.calls.get(str(block.get("tool_use_id")))
        return f"{call.name} {call.argument[:SHOWN]}" if call else ""
    text = str(block.get("text", ""))[: 4 * SHOWN]
    whose = {"": "agent", "person": "you"}.get(item.source, item.source)
    return f"{whose}: {text}" if text.strip() else ""


def _sessions(desk: Desk, here: str) -> list[Offer]:
    from ...record.listing import rows

    logs = [log for log in desk.sessions()[: SESSIONS + 1] if log.parent.name != here]
    return [(each.id, _short(each.title or "(no words yet)")) for each in rows(logs[:SESSIONS])]


def _points(loop: "Loop") -> list[Offer]:
    from ...record.checkpoints import points

    found = points(loop.log.entries())
    return [(str(point.number), _short(point.words)) for point in reversed(found)]


def _short(text: str) -> str:
    line = " ".join(text[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
