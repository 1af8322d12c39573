"""Commands about the context: what fills it, and how it gets smaller."""

import asyncio
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...errors import CompactionFailed, CtxagentError, UsageError
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from collections.abc import Reversible

    from rich.console import RenderableType

    from ...compaction.acts import Act
    from ...compaction.filling import Filling, Large, Part
    from ...context.window import Window
    from ...loop import Loop
    from ...record.entries import Entry

LISTED = 10  # items in a list
SAID = 60  # characters of what an item says
WRITING = "writing a summary"
EXAMINING = "asking the model what it knows from the summary"
CHOICES = "[y]es, apply it · [e]dit · [n]o"
NAMES = {
    "system": "system prompt",
    "words": "your words",
    "commands": "your commands",
    "text": "answers",
    "calls": "tool calls",
    "stubs": "masked results",
    "other": "other results",
}
BY_HAND = {"shell": "your command: ", "note": "your note: "}
WHOSE = {"": "agent: ", "person": "you: ", "notice": "notice: ", **BY_HAND}
STYLES = {  # roles of the theme
    **dict.fromkeys(("system", "tools"), "filling.fixed"),
    **dict.fromkeys(
        ("instructions", "environment", "preserved", "summary", "pinned", "notices"),
        "filling.again",
    ),
    **dict.fromkeys(("words", "commands", "notes"), "filling.person"),
    **dict.fromkeys(("text", "thinking", "calls"), "filling.agent"),
    **dict.fromkeys(("results", "stubs", "other"), "filling.tools"),
}
_FLAG = re.compile(r"(?:^|(?<=\s))--(?:dry-run|show|probe-model)(?=\s|$)")


@command(
    "put a summary in the place of what is old",
    argument="[--dry-run|--show|…] [TEXT]",
    complete=offers.among(("--dry-run", "--show", "--probe-model")),
)
async def _compact(desk: Desk, argument: str) -> None:
    flags = _FLAG.findall(argument)
    instructions = _FLAG.sub("", argument).strip()
    if instructions.startswith("--") or len(set(flags)) > 1:
        raise UsageError(
            f"/compact does not take {argument!r}",
            hint="One of --dry-run, --show and --probe-model, or none.",
        )
    if "--dry-run" in flags:
        from .. import report
        from ..look import render

        planned, instead = desk.loop.engine.preview(), desk.loop.engine.instead()
        desk.put(render.verbatim(report.preview(planned, instead=instead, limit=LISTED)))
        return
    desk.loop.log.check()
    if "--show" in flags:
        await _compact_seen(desk, instructions)
    else:
        desk.doing(WRITING)
        await desk.loop.window()
        summary = await desk.loop.engine.compact(instructions)
        if flags:
            from ..look import render

            desk.doing(EXAMINING)
            desk.put(render.verbatim((await desk.loop.engine.examine(summary)).table()))


async def _compact_seen(desk: Desk, instructions: str) -> None:
    """Write a summary, show it, and apply it as the person leaves it, or not at all."""
    from ...compaction.document import parse
    from ...compaction.document import render as text_of
    from ..look import render

    desk.doing(WRITING)
    await desk.loop.window()
    document, text = await desk.loop.engine.draft(instructions)
    desk.doing("")
    desk.put(render.verbatim(text))
    while (answer := _word(await desk.choose(CHOICES, "yen"))) not in ("n", "no"):
        if answer in ("y", "yes"):
            await desk.loop.engine.compact(document=document)
            return
        if answer in ("e", "edit"):
            try:
                document = parse(await _edited(desk, text_of(document)))
            except CtxagentError as error:
                desk.put(render.failure(error.message, error.hint))
                continue
            desk.put(render.verbatim(text_of(document)))
    desk.put(render.dim("not applied; nothing has changed"))


async def _edited(desk: Desk, text: str) -> str:
    edited = await desk.edit(text)
    if not edited.strip():
        raise UsageError("the text is empty; the summary stays as it was")
    return edited


def _word(answer: str) -> str:
    first, _, _ = answer.strip().lower().partition(" ")
    return first.rstrip(",.:;!")


@command("take the last compaction back")
async def _uncompact(desk: Desk, argument: str) -> None:
    """In place, or in a copy that ends where the compaction was, when later turns follow."""
    from ...compaction.acts import describe, last_acts, later_turn
    from ..look import render

    entries, left = desk.loop.log.entries(), desk.session
    last = await asyncio.to_thread(last_acts, entries)
    if not last:
        raise CompactionFailed("there is no compaction to take back")
    if await asyncio.to_thread(later_turn, entries, last[-1].seq):
        await desk.reopen(resume=desk.copy(last[-1].seq))
        entries = desk.loop.log.entries()
        note = f"this is a copy that ends where it was compacted; what came later: /resume {left}"
        desk.put(render.notice("info", note))
    last = desk.loop.engine.uncompact(entries)
    tokens = desk.loop.measured().tokens
    said = f"taken back: {describe(*last)}; the context holds {tokens:,} tokens again"
    desk.put(render.dim(said))


@command(
    "how full the context is, and of what",
    argument="[status]",
    anytime=True,
    complete=offers.among(("status",)),
)
async def _context(desk: Desk, argument: str) -> None:
    from ...compaction import filling
    from ...compaction.acts import acts, marks
    from .. import report
    from ..look import markdown, render

    loop = desk.loop
    if argument not in ("", "status"):
        raise UsageError(f"/context does not take {argument!r}", hint="/context or /context status")
    # What the turn that may be running changes is copied before the first await.
    window, reply, view = loop.measured(), loop.reply_room(), filling.still(loop.view)
    entries = loop.log.entries()
    done = await asyncio.to_thread(acts, entries)
    if argument == "status":
        counts, now = loop.totals.compaction, datetime.now(UTC)
        others = await asyncio.to_thread(marks, entries)
        text = report.status(window, done, others, counts, now)
        desk.put(render.inset(markdown.report(text)))
        return
    filled = await asyncio.to_thread(filling.fill, view, window, reply)
    cached = await asyncio.to_thread(_cache, loop, entries)
    facts = [*cached, *_outlook(loop, window)]
    desk.put(*_picture(filled), *_largest(filled), *_saved(done), "", *map(render.dim, facts))


def _picture(filled: "Filling") -> "list[RenderableType]":
    """How much of the window is used, as a line, a bar and a table."""
    from ..look import bar, render

    window, free = filled.window, filled.free
    told = (
        f"{window.tokens:,} of {window.size:,} tokens · {window.share:.0%} {window.level} · "
        f"{free:,} free"
    )
    parts = [
        bar.Segment(_name(part), part.tokens, STYLES[part.kind], part.count, part.saved)
        for part in filled.parts
    ]
    parts += [
        bar.Segment("free", free, "dim", fill="."),
        bar.Segment("kept for the reply", filled.reply, "dim", fill="/"),
    ]
    return [render.dim(told), bar.Bar(parts), "", bar.Legend(parts)]


def _name(part: "Part") -> str:
    return f"results: {part.of}" if part.of else NAMES.get(part.kind, part.kind)


def _largest(filled: "Filling") -> "list[RenderableType]":
    from ..look import render

    if not filled.largest:
        return []
    rows = [(f"#{each.item.seq}", f"{each.tokens:,}", _what(each)) for each in filled.largest]
    return ["", render.table(rows, head=("largest", "tokens", ""), wrap=False)]


def _what(large: "Large") -> str:
    """What a large item is, in a few words: of calls and results, the tool and its main argument,
    of anything else how it begins."""
    item = large.item
    notes = [" · masked"] * large.masked + [" · in a file"] * large.offloaded
    if large.calls:
        what = "result" if item.role == "user" else "calls" if len(large.calls) > 1 else "call"
        named = ", ".join(f"{call.name} {call.argument[:SAID]}".rstrip() for call in large.calls)
        return f"{what}: {named}{''.join(notes)}"
    texts = [str(b.get("text", "")) for b in item.blocks if b.get("type") == "text"]
    if item.source in BY_HAND:  # the first line of such a text only says what it is
        texts = [text.partition("\n")[2] for text in texts]
    said = " ".join(" ".join(text[:SAID] for text in texts).split())
    return f"{WHOSE.get(item.source, '')}{said}{''.join(notes)}"


def _saved(done: "list[Act]") -> "list[RenderableType]":
    from ...compaction.acts import savings
    from ..look import render

    rows = [(layer, f"{tokens:,}", f"in {count:,}") for layer, count, tokens in savings(done)]
    return ["", render.table(rows, head=("layer", "saved", "acts"))] if rows else []


def _cache(loop: "Loop", entries: "Reversible[Entry]") -> list[str]:
    """How much of the prompts came from the cache, and why one did not."""
    from ...record.entries import Assistant, Usage
    from .. import report

    usage, told = loop.totals.usage, []
    if usage.prompt:
        turns = (e for e in reversed(entries) if isinstance(e, Assistant) and e.purpose == "turn")
        last = next((u for e in turns if (u := Usage.from_json(e.usage)).prompt), usage)
        told.append(
            f"cache: {usage.cache_read / usage.prompt:.0%} of all prompts came from the cache, "
            f"{last.cache_read / last.prompt:.0%} of the last one"
        )
    if miss := report.last_miss(entries):
        told.append(f"last cache miss: {miss}")
    return told


def _outlook(loop: "Loop", window: "Window") -> list[str]:
    """What the next compaction would do, and when it comes by itself."""
    from .. import report

    try:
        would = report.outlook(loop.engine.preview())
    except CompactionFailed as error:
        would = error.message
    freed = loop.engine.instead()
    if freed is None:
        return [f"next compaction: {would}", _threshold(loop, window)]
    told = report.clearing(window.tokens, freed)
    when = _threshold(loop, window, cleared=True)
    return [f"next compaction: {told}", when, f"/compact: {would}"]


def _threshold(loop: "Loop", window: "Window", *, cleared: bool = False) -> str:
    """At which sizes what happens by itself; where what is old is then `cleared`, no summary is
    begun."""
    from ...compaction.policy import tokens_at

    policy = loop.policy
    at, start = tokens_at(policy.summarize_at, window), tokens_at(policy.prepare_at, window)
    if policy.mode == "off" or at is None:
        return "it does not come by itself: /compact"
    far = f"{at - window.tokens:,.0f} from here" if at > window.tokens else "which is reached"
    told = f"at {at:,.0f} tokens ({at / window.size:.0%}), {far}"
    if policy.mode == "remind":
        return f"you are reminded of it {told}"
    if cleared:
        told += ", or before that when it pays"
    if loop.engine.preparing:
        told += "; its summary is being written"
    elif not cleared and start is not None and policy.summarizer == "model":
        told += f"; its summary is written from {start:,.0f} ({start / window.size:.0%}) on"
    return f"it comes {told}"
