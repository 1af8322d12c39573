"""Commands about the context: how full it is, what it costs, and how it gets smaller."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...errors import CompactionFailed, CtxagentError, UsageError
from .registry import Desk, command

if TYPE_CHECKING:
    from ...loop import Loop
    from ...record.entries import Entry

LISTED = 10  # items in a list
LOGGED = 20  # entries that /log shows
WRITING = "writing a summary"
EXAMINING = "asking the model what it knows from the summary"
CHOICES = "[y]es, apply it · [e]dit · [n]o"
_FLAG = re.compile(r"(?:^|(?<=\s))--(?:dry-run|show|probe-model)(?=\s|$)")


@command(
    "put a summary in the place of what is old",
    argument="[--dry-run|--show|…] [TEXT]",
    slow=True,
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
        from .. import render, report

        planned = desk.loop.engine.preview()
        desk.put(render.verbatim(report.preview(planned, limit=LISTED)))
    elif "--show" in flags:
        await _compact_seen(desk, instructions)
    else:
        desk.doing(WRITING)
        await desk.loop.window()
        summary = await desk.loop.engine.compact(instructions)
        if flags:
            from .. import render

            desk.doing(EXAMINING)
            desk.put(render.verbatim((await desk.loop.engine.examine(summary)).table()))


async def _compact_seen(desk: Desk, instructions: str) -> None:
    """Write a summary, show it, and apply it as the person leaves it, or not at all."""
    from ...compaction.document import parse
    from ...compaction.document import render as text_of
    from .. import render

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
    from ...compaction.acts import describe, later_turn
    from ...compaction.engine import last_act
    from .. import render

    entries = list(desk.loop.log.entries())
    last, left = last_act(entries), desk.session
    if last is None:
        raise CompactionFailed("there is no compaction to take back")
    if later_turn(entries, last.seq):
        await desk.reopen(resume=desk.copy(last.seq))
        entries = list(desk.loop.log.entries())
        note = f"this is a copy that ends where it was compacted; what came later: /resume {left}"
        desk.put(render.notice("info", note))
    desk.loop.engine.uncompact(entries)
    tokens = desk.loop.measured().tokens
    said = f"taken back: {describe(last)}; the context holds {tokens:,} tokens again"
    desk.put(render.dim(said))


@command("how full the context is, and of what", argument="[status]", anytime=True)
async def _context(desk: Desk, argument: str) -> None:
    from ...compaction.acts import acts, marks, savings
    from .. import render, report

    loop = desk.loop
    entries = list(loop.log.entries())
    window, done = loop.measured(), acts(entries)
    if argument == "status":
        counts, now = loop.totals.compaction, datetime.now(UTC)
        text = report.status(window, done, marks(entries), counts, now)
        desk.put(render.verbatim(text))
        return
    if argument:
        raise UsageError(f"/context does not take {argument!r}", hint="/context or /context status")
    free = max(0, window.size - window.tokens)
    desk.put(
        render.dim(
            f"{window.tokens:,} of {window.size:,} tokens · {window.share:.0%} {window.level} · "
            f"{free:,} free"
        )
    )
    if rows := _largest(loop):
        desk.put(render.table(rows, head=("largest", "tokens", ""), wrap=False))
    if saved := savings(done):
        rows = [(layer, f"{tokens:,}", f"in {count:,}") for layer, count, tokens in saved]
        desk.put(render.table(rows, head=("layer", "saved", "acts")))
    usage = loop.totals.usage
    if usage.prompt:
        share = f"{usage.cache_read / usage.prompt:.0%} of all prompts came from the cache"
        desk.put(render.dim(f"cache: {share}"))
    if miss := report.last_miss(entries):
        desk.put(render.dim(f"last cache miss: {miss}"))
    try:
        next_one = report.outlook(loop.engine.preview())
    except CompactionFailed as error:
        next_one = error.message
    desk.put(render.dim(f"next compaction: {next_one}"))


def _largest(loop: "Loop") -> list[tuple[str, str, str]]:
    """The largest items of the view, then what stands before them all."""
    from ...context import tokens

    view = loop.view
    calls = {
        str(block.get("id")): str(block.get("name"))
        for item in view.items
        for block in item.blocks
        if block.get("type") == "tool_use"
    }
    sizes = [
        (f"#{i.seq}", i.size, _item(i.role, i.blocks, calls))
        for i in sorted(view.items, key=lambda item: -item.size)[:LISTED]
    ]
    if view.system:
        sizes.append(("system", tokens.estimate(view.system), "the system prompt"))
    if view.tools:
        size = sum(map(tokens.of_block, view.tools))
        sizes.append(("tools", size, f"the schemas of {len(view.tools)} tools"))
    return [(name, f"{round(size * view.ratio):,}", what) for name, size, what in sizes]


@command("tokens and money of this session", anytime=True)
async def _cost(desk: Desk, argument: str) -> None:
    """The sums, and what the conversation itself, compaction and subagents have of them."""
    from ...record.entries import Assistant
    from ...record.totals import Totals
    from .. import render

    totals, own, aside = desk.loop.totals, Totals(), Totals()
    for entry in desk.loop.log.entries():
        if isinstance(entry, Assistant):
            (own if entry.purpose == "turn" else aside).add(entry)
    usage = totals.usage
    price = "the model's price is not known"
    if totals.cost_usd is not None:
        price = render.dollars(totals.cost_usd)
    rows = [
        ("cost", price),
        ("input", f"{usage.input:,}"),
        ("from cache", f"{usage.cache_read:,}"),
        ("to cache", f"{usage.cache_creation:,}"),
        ("output", f"{usage.output:,}"),
        ("calls", f"{totals.calls:,} of the model, {totals.tool_calls:,} of tools"),
    ]
    desk.put(render.table(rows))
    shares = (("conversation", own), ("compaction", aside), ("subagents", totals.agents))
    parts = [
        (
            name,
            f"{c.calls:,}",
            f"{c.usage.prompt:,}",
            f"{c.usage.output:,}",
            render.price(c.cost_usd),
        )
        for name, c in shares
        if c.calls
    ]
    if len(parts) > 1:
        desk.put("", render.table(parts, head=("of these", "calls", "prompt", "output", "cost")))


@command(
    "the newest entries of the log, or one in full",
    argument="[REF|compaction|stats]",
    anytime=True,
)
async def _log(desk: Desk, argument: str) -> None:
    from ...compaction import acts, metrics
    from .. import render, report

    entries = list(desk.loop.log.entries())
    if argument == "compaction":
        done, others = acts.acts(entries), acts.marks(entries)
        desk.put(render.verbatim(report.events(done, others, limit=report.RECENT)))
        return
    if argument == "stats":
        desk.put(render.verbatim(report.metrics(metrics.measure(entries))))
        return
    if argument:
        found = next((e for e in entries if str(e.seq) == argument.removeprefix("#")), None)
        if found is None:
            raise UsageError(
                f"there is no entry {argument}",
                hint=f"1 to {entries[-1].seq}." if entries else "This session is empty.",
            )
        desk.put(render.verbatim(_whole(found)))
        return
    rows = [(f"#{e.seq}", e.kind, report.line(e)) for e in entries[-LOGGED:]]
    desk.put(render.table(rows, wrap=False), render.dim(str(desk.loop.log.path)))


def _whole(entry: "Entry") -> str:
    """An entry in full: a summary as the model reads it, anything else as its line says."""
    from ...record.entries import Summary, encode

    if isinstance(entry, Summary):
        return entry.text
    return json.dumps(encode(entry), ensure_ascii=False, indent=1)


def _item(role: str, blocks: Sequence[dict[str, Any]], calls: dict[str, str]) -> str:
    """What an item of the view is, in a few words."""
    parts = []
    for block in blocks:
        if block.get("type") == "tool_result":
            parts.append(f"result of {calls.get(str(block.get('tool_use_id')), 'a tool')}")
        elif block.get("type") == "tool_use":
            parts.append(f"call of {block.get('name')}")
        elif text := " ".join(str(block.get("text", "")).split()):
            parts.append(text[:60])
    return f"{role}: {', '.join(parts)}" if parts else role
