"""Completions for refs, paths and command arguments, each with a description.

They are computed at every key, so they use only in-memory data, and little of it. Data on disk is
read in a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ....tools.system.phrasing import one_line
from ...errors import CtxagentError
from ..foreign_names import foreign_names
from ..screen import Offer
from ..tasks import tasks_of
from .command_context import COMMANDS, CommandContext
from .files import added_commands, all_commands, read_command_files

if TYPE_CHECKING:
    from ...context.items import Item
    from ...context.view import View
    from ...session.ledger import Ledger

Complete = Callable[[CommandContext], Awaitable[Sequence[Offer]]]

MAX_REFS = 200  # newest of each kind
MAX_FILES = 50
MAX_SESSIONS = 100
MAX_DESCRIPTION_CHARS = 60


async def completions_for(repl: CommandContext, place: str) -> Sequence[Offer]:
    """Return the completions for `place`: a command after `/`, a ref after `#`, a path after `@`,
    else an argument of the command `place` (with its slash; a unique prefix is enough). Empty while
    no session is open.
    """
    try:
        if place == "/":
            await read_command_files(repl)
            own = [(c.name, c.help) for c in COMMANDS.values()]
            added = [(name, c.help) for name, c in added_commands(repl).items()]
            aliases = [(name, f"same as {to}") for name, to in foreign_names("aliases").items()]
            return [*own, *added, *(each for each in aliases if each[0] not in dict(added))]
        if place == "#":
            return await refs(repl)
        if place == "@":
            return await paths(repl)
        name = foreign_names("aliases").get(place[1:], place)[1:]
        commands = all_commands(repl)
        matching = [c for c in commands.values() if c.name.startswith(name)]
        command = commands.get(name) or (matching[0] if len(matching) == 1 else None)
        return await command.complete() if command and command.complete else ()
    except CtxagentError:
        return ()


def fixed(words: Iterable[str], *, also: Complete | None = None) -> Complete:
    """Return a completer that offers these words, then the offers of `also`."""

    async def complete(repl: CommandContext) -> Sequence[Offer]:
        return [*((word, "") for word in words), *(await also(repl) if also else ())]

    return complete


async def refs(repl: CommandContext) -> Sequence[Offer]:
    """Return the newest entries, newest first: user and agent messages, commands, read and changed
    files, pins.
    """
    known = _ledger_entries(repl.agent.ledger)
    for seq, what in _view_entries(repl.agent.view):
        known.setdefault(seq, what)
    return [(str(seq), known[seq]) for seq in sorted(known, reverse=True)[:MAX_REFS]]


async def pinned(repl: CommandContext) -> Sequence[Offer]:
    """Return the pinned entries, newest first."""
    pins = [(str(ref), _short(text)) for ref, text in repl.agent.ledger.pins.items()]
    return pins[::-1]


async def paths(repl: CommandContext) -> Sequence[Offer]:
    """Return project files that were changed, then those that were read, newest first; then the
    resources of MCP servers.
    """
    from ...features.mcp import servers_of

    ledger = repl.agent.ledger
    changed = sorted(ledger.files.values(), key=lambda fact: -fact.ref)
    rows: dict[str, str] = {f.path: f.action for f in changed if f.action != "deleted"}
    for path in reversed(list(ledger.read)):
        rows.setdefault(path, "read")
    inside = (row for row in rows.items() if not row[0].startswith("/"))
    servers = servers_of(repl.agent)
    return [*islice(inside, MAX_FILES), *(servers.resources().items() if servers else ())]


async def allow_rules(repl: CommandContext) -> Sequence[Offer]:
    """Return `forget RULE` for each allow rule."""
    rules = repl.agent.approval.rules()
    found = dict.fromkeys([*rules["session"], *rules["allow"]])
    forget = [("forget", "a rule that allows something")] if found else []
    return [*forget, *((f"forget {rule}", "no longer allow it") for rule in found)]


async def models(repl: CommandContext) -> Sequence[Offer]:
    """Return the known models with their context windows and prices."""
    return [(id, " · ".join(facts)) for id, *facts in repl.services.models()]


async def providers(repl: CommandContext) -> Sequence[Offer]:
    """Return the names of the providers."""
    from ...models.providers import providers

    return [(name, "") for name in providers()]


async def sessions(repl: CommandContext) -> Sequence[Offer]:
    """Return the newest other sessions of the project with their titles."""
    from ...session.listing import session_rows

    def read() -> list[Offer]:
        logs = repl.services.sessions()[: MAX_SESSIONS + 1]
        others = [log for log in logs if log.parent.name != repl.session][:MAX_SESSIONS]
        return [(row.id, _short(row.title or "(no message yet)")) for row in session_rows(others)]

    return await asyncio.to_thread(read)


async def points(repl: CommandContext) -> Sequence[Offer]:
    """Return the turns and checkpoints to rewind to, newest first."""
    from ...session.checkpoints import rewind_points

    found = await asyncio.to_thread(rewind_points, repl.agent.log.entries())
    return [(str(point.number), _short(point.words)) for point in reversed(found)]


async def settings(repl: CommandContext) -> Sequence[Offer]:
    """Return the keys of all settings with their values."""
    found = repl.services.settings
    return [(row.key, row.value) for row in found.rows()] if found else []


async def phases(repl: CommandContext) -> Sequence[Offer]:
    """Return the predefined phases. Any other name is allowed too."""
    from ...compaction.phases import PHASES

    return [(form.name, f"ends with {form.description}") for form in PHASES.values()]


async def preserved(repl: CommandContext) -> Sequence[Offer]:
    """Return the sections that every compaction keeps."""
    sections = await asyncio.to_thread(repl.agent.engine.host.preserved_sections)
    return [(section.name, section.where) for section in sections]


async def titles(repl: CommandContext) -> Sequence[Offer]:
    """Return the session's title and its first message, as a start for a new title."""
    ledger = repl.agent.ledger
    first = _short(ledger.typed_messages[0][1]) if ledger.typed_messages else ""
    known = {ledger.title: "its title now", first: "the first message"}
    return [(text, what) for text, what in known.items() if text]


async def tasks(repl: CommandContext) -> Sequence[Offer]:
    """Return the tasks, newest first, and `stop ID` for each running task."""
    found = tasks_of(repl.agent, repl.transcript().subagents)[::-1]
    running = [(f"stop {task.id}", _short(task.what)) for task in found if task.is_running]
    return [*((task.id, f"{task.state}: {_short(task.what)}") for task in found), *running]


def _ledger_entries(ledger: "Ledger") -> dict[int, str]:
    """Return descriptions of entries from the ledger, by entry number."""
    known = {fact.ref: _short(f"$ {fact.command}") for fact in ledger.commands[-MAX_REFS:]}
    known |= {ref: f"read {path}" for path, ref in ledger.read.items()}
    known |= {fact.ref: f"{fact.action} {fact.path}" for fact in ledger.files.values()}
    known |= {ref: _short(f"you: {text}") for ref, text in ledger.typed_messages[-MAX_REFS:]}
    return known | {ref: _short(f"pinned: {text}") for ref, text in ledger.pins.items()}


def _view_entries(view: "View") -> Iterator[tuple[int, str]]:
    """Yield the newest entries of the view with their first text."""
    for item in islice(reversed(view.items), MAX_REFS):
        for block in item.blocks:
            if what := _describe(item, block, view):
                yield item.seq, _short(what)
                break


def _describe(item: "Item", block: Mapping[str, object], view: "View") -> str:
    if block.get("type") == "tool_result":
        call = view.calls.get(str(block.get("tool_use_id")))
        return f"{call.name} {call.argument[:MAX_DESCRIPTION_CHARS]}" if call else ""
    text = str(block.get("text", ""))[: 4 * MAX_DESCRIPTION_CHARS]
    speaker = {"": "agent", "person": "you"}.get(item.source, item.source)
    return f"{speaker}: {text}" if text.strip() else ""


def _short(text: str) -> str:
    return one_line(text, MAX_DESCRIPTION_CHARS)
