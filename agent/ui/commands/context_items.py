"""The items of the context in `/context`: as a screen, as a list, and by their refs.

An edit is planned first, and shown with the tokens and the money before and after.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....tools.system.phrasing import count_of
from ...errors import UsageError
from ...lazy import regex
from ..context_rows import ContextEdit, ContextPage, EditKind
from ..edit_report import item_lines, plan_lines, searched_text
from .command_context import CommandContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...compaction.edits import EditPlan
    from ...loop.agent import AgentState

MAX_LISTED = 200
MAX_NAMED_REFS = 5
MAX_READ_CHARS = 4_000_000
CHOICES = "[y]es, apply it · [n]o"
PART_NAMES = {
    "system": "system prompt",
    "words": "your messages",
    "commands": "your commands",
    "text": "answers",
    "calls": "tool calls",
    "stubs": "cleared results",
    "other": "other results",
}
EDITS = ("drop", "restore", "compact", "undo")
_REF = regex(r"#?(\d+)")
DONE: dict[str, str] = {"drop": "dropped", "restore": "restored", "compact": "compacted"}


class SessionContext:
    """The context of the open session, as the screen needs it. `show_report` returns the report at
    a width.
    """

    def __init__(self, agent: "AgentState", show_report: "Callable[[int], Awaitable[str]]") -> None:
        self._agent = agent
        self._show_report = show_report
        self.running: asyncio.Task[str] | None = None  # an edit, which goes on after the screen

    @property
    def version(self) -> object:
        return self._agent.log.last_seq

    async def load(self) -> ContextPage:
        from ...compaction.breakdown import break_down
        from .. import compaction_report

        agent = self._agent
        window = agent.model.current_window()
        items = agent.edits.items()
        filled = await asyncio.to_thread(break_down, agent.view.copy(), window)
        parts = sorted(filled.parts, key=lambda part: -part.tokens)
        shares = [
            f"{PART_NAMES.get(part.kind, part.kind)}{f' of {part.of}' if part.of else ''} "
            f"{part.tokens / max(1, window.tokens):.0%}"
            for part in parts
        ]
        return ContextPage([compaction_report.usage_line(window), " · ".join(shares)], items)

    async def plan(
        self, kind: EditKind, refs: Sequence[int], instructions: str = ""
    ) -> ContextEdit:
        edits = self._agent.edits
        if kind == "drop":
            lines = [*plan_lines(edits.plan_drop(refs))]
        elif kind == "restore":
            lines = [*plan_lines(edits.plan_restore(refs))]
        elif kind == "compact":
            lines = [*plan_lines(edits.plan_compact(min(refs), max(refs)))]
        elif kind == "before":
            lines = [*plan_lines(edits.plan_compact(before=refs[0]))]
        elif kind == "pin":
            lines = self._pin_lines(refs)
        else:
            lines = await self._undo_lines()
        return ContextEdit(kind, refs, lines, instructions)

    async def report(self, width: int) -> str:
        return await self._show_report(width)

    @property
    def waits(self) -> bool:
        return self._agent.edits.lock.locked()

    async def apply(self, edit: ContextEdit) -> str:
        self.running = asyncio.create_task(self._apply(edit))
        try:
            return await asyncio.shield(self.running)
        finally:
            if self.running and self.running.done():
                self.running = None

    def stop(self) -> None:
        if self.running:
            self.running.cancel()

    async def _apply(self, edit: ContextEdit) -> str:
        agent, edits, refs = self._agent, self._agent.edits, edit.refs
        agent.log.check_writable()
        if edit.kind == "drop":
            return done_line(await edits.drop(refs))
        if edit.kind == "restore":
            return done_line(await edits.restore(refs))
        if edit.kind == "compact":
            return done_line(await edits.compact(min(refs), max(refs), edit.instructions))
        if edit.kind == "before":
            return done_line(await edits.compact(instructions=edit.instructions, before=refs[0]))
        if edit.kind == "pin":
            async with edits.lock:
                return self._pin(refs)
        from ...compaction.history import describe

        undone = describe(*await edits.undo())
        tokens = agent.model.current_window().tokens
        return f"undone: {undone}; the context has {tokens:,} tokens"

    async def text(self, ref: int) -> str:
        from ...session.store import find_text

        found = await asyncio.to_thread(find_text, self._agent.log.path, ref)
        return (await asyncio.to_thread(found.part, 0, MAX_READ_CHARS))[0] if found else ""

    def _pin_lines(self, refs: Sequence[int]) -> list[str]:
        pins = self._agent.ledger.pins
        if all(ref in pins for ref in refs):
            return [f"stop keeping {_named(refs)} in every summary"]
        return [f"pin {_named(refs)}: every summary keeps the text, after any compaction"]

    def _pin(self, refs: Sequence[int]) -> str:
        from ...loop.user_commands import unpin
        from .intent import pin_entry

        agent = self._agent
        if all(ref in agent.ledger.pins for ref in refs):
            for ref in refs:
                unpin(agent, ref)
            return f"no longer pinned: {_named(refs)}"
        for ref in refs:
            if ref not in agent.ledger.pins:
                pin_entry(agent, ref)
        return f"pinned: {_named(refs)}"

    async def _undo_lines(self) -> list[str]:
        from ...compaction.history import describe, last_acts

        plan = await self._agent.edits.plan_undo()
        done = describe(*last_acts(self._agent.log.entries()))
        first, *prices = plan_lines(plan)
        return [f"undo: {done}", first.partition(": ")[2], *prices]


def _named(refs: Sequence[int]) -> str:
    """Name items by their refs."""
    if len(refs) <= MAX_NAMED_REFS:
        return ", ".join(f"#{ref}" for ref in refs)
    return f"{count_of(len(refs), 'item')}, #{min(refs)} to #{max(refs)}"


def done_line(plan: "EditPlan") -> str:
    sizes = f"{plan.tokens_before:,} → {plan.tokens_after:,} tokens"
    return f"{DONE[plan.action]} {_named(plan.refs)}: {sizes}"


def list_items(repl: CommandContext, words: str) -> None:
    """Print the items that contain these words, as a table."""
    items = repl.agent.edits.items()
    wanted = words.casefold().split()
    found = [item for item in items if all(word in searched_text(item) for word in wanted)]
    if not found:
        repl.say("no item matches" if items else "the context is empty")
        return
    shown = found[-MAX_LISTED:]
    repl.show("\n".join(item_lines(shown)))
    if left := len(found) - len(shown):
        repl.say(f"… {count_of(left, 'older item')}: /context list WORDS finds them")


async def edit_items(repl: CommandContext, context: SessionContext, argument: str) -> None:
    """Plan an edit given in words, show it, and apply it if the user agrees."""
    edit = await context.plan(*_parse(argument))
    repl.show("\n".join(edit.lines))
    answer = (await repl.questions.choose(CHOICES, "yn")).strip().lower()
    if answer not in ("y", "yes"):
        repl.say("nothing has changed")
        return
    repl.show_activity(f"{edit.kind} …")
    try:
        repl.say(await context.apply(edit))
    finally:
        repl.show_activity("")


def _parse(argument: str) -> tuple[EditKind, list[int], str]:
    """Return the kind of an edit, its refs, and the instructions for a summary. Raises UsageError
    for anything else.
    """
    kind, _, rest = argument.partition(" ")
    words = rest.split()
    if kind == "undo" and not words:
        return "undo", [], ""
    if kind in ("drop", "restore") and words:
        return ("drop" if kind == "drop" else "restore"), list(map(_ref, words)), ""
    if kind == "compact" and len(words) >= 2:
        text = rest.split(maxsplit=2)[2] if len(words) > 2 else ""
        if words[0] == "before":
            return "before", [_ref(words[1])], text
        return "compact", [_ref(words[0]), _ref(words[1])], text
    raise UsageError(
        f"/context does not take {argument!r}",
        hint="drop REF…, restore REF…, compact REF REF [TEXT], compact before REF [TEXT], or undo",
    )


def _ref(word: str) -> int:
    found = _REF.fullmatch(word)
    if found is None:
        raise UsageError(f"{word!r} is not a ref", hint="/context list shows the refs.")
    return int(found[1])
