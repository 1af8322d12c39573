"""Commands about the context: its content, its compaction, and content that left it.

/rules and /preserve show the content that every compaction keeps, and missing sections. /log and
/recover show log entries, the effect of compaction, and content that left the context.
"""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import CompactionFailed, CtxagentError, UsageError
from ...extensions.command import command
from ...lazy import regex
from ..screen import BACK
from ..status import path_within
from . import completions
from .command_context import CommandContext
from .context_items import EDITS, PART_NAMES, SessionContext, edit_items, list_items

if TYPE_CHECKING:
    from collections.abc import Callable, Reversible

    from rich.console import RenderableType

    from ....tools.system.kept_text import KeptText
    from ...compaction.breakdown import Breakdown, LargeItem
    from ...compaction.history import Act
    from ...context.view import View
    from ...loop.agent import AgentState
    from ...session.entries import Entry
    from ...session.log import Log

CONTEXT_HINT = "/context, or /context list, report, drop, restore, compact, undo or --levels"
MAX_LIST_ITEMS = 10
MAX_ITEM_CHARS = 60
LEVELS = "--levels"  # shows the names of the source documents
WRITING_SUMMARY = "writing a summary"
PROBING = "checking what the model knows from the summary alone"
SMALL_CHOICES = "[y]es, compact anyway · [a]ll but the newest exchange · [n]o"
SMALL_CHOICES_OF_ALL = "[y]es, compact anyway · [n]o"
DRAFT_CHOICES = "[y]es, apply it · [e]dit · [n]o"
TYPED = {"shell": "your command: ", "note": "your note: "}
SPEAKERS = {"": "agent: ", "person": "you: ", "notice": "notice: ", "hook": "hook: ", **TYPED}
STYLES = {  # theme roles of the bar's parts
    **dict.fromkeys(("system", "tools"), "context.fixed"),
    **dict.fromkeys(
        (
            "instructions",
            "skills",
            "memory",
            "plan",
            "environment",
            "preserved",
            "summary",
            "pinned",
            "notices",
        ),
        "context.reinserted",
    ),
    **dict.fromkeys(("words", "commands", "notes"), "context.user"),
    **dict.fromkeys(("text", "thinking", "calls"), "context.agent"),
    **dict.fromkeys(("results", "images", "stubs", "other"), "context.tools"),
}
_FLAG = regex(r"(?:^|(?<=\s))--(?:all|dry-run|show|probe-model)(?=\s|$)")


@command(
    "replace older messages with a summary",
    argument="[--all|--dry-run|…] [TEXT]",
    complete=completions.fixed(("--all", "--dry-run", "--show", "--probe-model")),
    group="context",
)
async def _compact(repl: CommandContext, argument: str) -> None:
    flags = set(_FLAG.findall(argument))
    instructions = _FLAG.sub("", argument).strip()
    newest_only = "--all" in flags
    if instructions.startswith("--") or len(flags - {"--all"}) > 1:
        raise UsageError(
            f"/compact does not take {argument!r}",
            hint="Give at most one of --dry-run, --show and --probe-model. --all may be added.",
        )
    if "--dry-run" in flags:
        from .. import compaction_report

        plan = compaction_report.dry_run(repl.agent, limit=MAX_LIST_ITEMS, newest_only=newest_only)
        repl.show_lines(plan)
        return
    repl.agent.log.check_writable()
    await repl.agent.model.window()
    chosen = await _choose_scope(repl, instructions, newest_only=newest_only)
    if chosen is None:
        return
    if "--show" in flags:
        await _compact_reviewed(repl, instructions, newest_only=chosen)
        return
    repl.show_activity(WRITING_SUMMARY)
    engine = repl.agent.engine
    summary = await engine.compact(instructions, newest_only=chosen)
    if "--probe-model" in flags:
        repl.show_activity(PROBING)
        repl.show((await engine.examine(summary)).table())


async def _choose_scope(
    repl: CommandContext, instructions: str, *, newest_only: bool
) -> bool | None:
    """Return whether to keep just the newest exchange; None to compact nothing.

    Ask the user only if a summary would save little and no instructions were given.
    """
    from .. import compaction_report

    agent = repl.agent
    little = compaction_report.small_saving(agent, newest_only=newest_only)
    if not little:
        return newest_only
    repl.notify("warning", little)
    if instructions or agent.policy.summarizer == "mechanical":
        return newest_only
    offers_all = "\n" in little
    choices, keys = (SMALL_CHOICES, "yan") if offers_all else (SMALL_CHOICES_OF_ALL, "yn")
    answer = await repl.questions.choose(choices, keys)
    word = _first_word(answer)
    if word in ("y", "yes"):
        return newest_only
    if offers_all and word in ("a", "all"):
        return True
    repl.say("not compacted; nothing has changed")
    if word not in ("n", "no", BACK):
        repl.send_next(answer)
    return None


async def _compact_reviewed(repl: CommandContext, instructions: str, *, newest_only: bool) -> None:
    """Write a summary, let the user edit it, and apply it if the user agrees."""
    from ...compaction.document import parse
    from ...compaction.document import render as text_of
    from ...session.archive import SUMMARY_NAME
    from ..render import render

    repl.show_activity(WRITING_SUMMARY)
    engine = repl.agent.engine
    draft, text = await engine.draft_summary(instructions, newest_only=newest_only)
    repl.show_activity("")
    repl.show(text)
    while True:
        answer = _first_word(await repl.questions.choose(DRAFT_CHOICES, "yen"))
        if answer in ("n", "no"):
            repl.say("not applied; nothing has changed")
            return
        if answer in ("y", "yes"):
            await engine.compact(draft=draft, newest_only=newest_only)
            return
        if answer in ("e", "edit"):
            try:
                before = text_of(draft.document)
                edited = await repl.screen.edit(before, SUMMARY_NAME)
                if not edited.strip():
                    raise UsageError(
                        "the text is empty; the summary stays as it was",
                        hint="Run the command again, and save a text.",
                    )
                if edited.strip() != before.strip():
                    document = parse(edited)
                    text = text_of(document)
                    draft = replace(draft, document=document, author="user", raw_text=text)
            except CtxagentError as error:
                repl.put(render.failure(error.message, error.hint))
                continue
            repl.show(text)


def _first_word(answer: str) -> str:
    return answer.strip().lower().partition(" ")[0].rstrip(",.:;!")


@command("undo the last compaction", group="context")
async def _uncompact(repl: CommandContext, argument: str) -> None:
    """Undo the last compaction. If turns followed it, do so in a copy that ends there."""
    from ...compaction.history import describe, last_acts, user_wrote_since

    entries, left = repl.agent.log.entries(), repl.session
    last = await asyncio.to_thread(last_acts, entries)
    if not last:
        raise CompactionFailed(
            "there is no compaction to undo", hint="/context shows what was cleared."
        )
    if await asyncio.to_thread(user_wrote_since, entries, last[-1].seq):
        await repl.switch_session(resume=repl.copy_session(last[-1].seq))
        entries = repl.agent.log.entries()
        note = f"this is a copy that ends at the compaction; what came later: /resume {left}"
        repl.notify("info", note)
    last = repl.agent.engine.uncompact(entries)
    tokens = repl.agent.model.current_window().tokens
    repl.say(f"undone: {describe(*last)}; the context has {tokens:,} tokens again")


@command(
    "see and edit what fills the context",
    argument="[list|report|drop|restore|compact|undo|…]",
    anytime=True,
    complete=completions.fixed(("list", "report", *EDITS, LEVELS)),
    group="context",
)
async def _context(repl: CommandContext, argument: str) -> None:
    """On a screen that paints, show the items to move in; elsewhere the report."""
    from ..render.render import render_text

    async def report(width: int) -> str:
        return render_text(await _report(repl), width=width, depth="plain")

    word, _, rest = argument.partition(" ")
    context = SessionContext(repl.agent, report)
    if word == "list":
        list_items(repl, rest)
    elif word in EDITS:
        await edit_items(repl, context, argument)
    elif argument in (LEVELS, "status"):
        await _status(repl)
    elif argument not in ("", "report"):
        raise UsageError(f"/context does not take {argument!r}", hint=CONTEXT_HINT)
    elif argument or not await repl.screen.browse(context):
        repl.put(*await _report(repl))
    elif context.running:  # the user left before the edit was applied
        repl.say(await context.running)


async def _status(repl: CommandContext) -> None:
    """Show the status report."""
    from ...compaction.history import acts, marks
    from .. import compaction_report

    agent = repl.agent
    window, entries = agent.model.current_window(), agent.log.entries()
    done = await asyncio.to_thread(acts, entries)
    counts, now = agent.totals.all.compaction, datetime.now(UTC)
    others = await asyncio.to_thread(marks, entries)
    repl.show_report(compaction_report.status(window, done, others, counts, now))


async def _report(repl: CommandContext) -> "list[RenderableType]":
    """Return the report: what fills the window, and the next compaction."""
    from ...compaction import breakdown
    from ...compaction.history import acts
    from .. import compaction_report
    from ..render import render

    agent = repl.agent
    # A turn may be running, so copy its mutable state before the first await.
    window = agent.model.current_window()
    view, facts = agent.view.copy(), compaction_report.next_lines(agent)
    facts += compaction_report.pause_lines(agent)
    entries = agent.log.entries()
    done = await asyncio.to_thread(acts, entries)
    filled = await asyncio.to_thread(breakdown.break_down, view, window)
    cached = await asyncio.to_thread(_cache_lines, agent, entries)
    told = _instruction_files(view, window.size, repl.services.cwd)
    parts = [*_usage_bar(filled), *told, *_largest_items(filled), *_savings_table(done)]
    return [*parts, "", *map(render.dim, [*cached, *facts])]


def _usage_bar(filled: "Breakdown") -> "list[RenderableType]":
    """Return the context usage as a line, a bar and its legend."""
    from .. import compaction_report
    from ..render import bar, render

    line = compaction_report.usage_line(filled.window)
    parts = []
    for part in filled.parts:
        name = f"{part.kind}: {part.of}" if part.of else PART_NAMES.get(part.kind, part.kind)
        parts.append(bar.Segment(name, part.tokens, STYLES[part.kind], part.count, part.saved))
    parts.append(bar.Segment("free", filled.window.free, "dim", fill="."))
    parts.append(bar.Segment("kept for estimation errors", filled.reserve, "dim", fill="/"))
    return [render.dim(line), bar.Bar(parts), "", bar.legend(parts)]


def _instruction_files(view: "View", size: int, cwd: Path) -> "list[RenderableType]":
    """Return a table of the instruction files in their order in the context."""
    from ...features.instructions import BUDGET_SHARE, rows_in_context
    from ..render import render

    told = [*rows_in_context(view)]
    rows = [(path_within(Path(path), cwd), f"{tokens:,}", note) for path, tokens, note in told]
    line = f"instruction files: {sum(tokens for _, tokens, _ in told):,} tokens in this order"
    most = f"at most {int(BUDGET_SHARE * size):,} ({BUDGET_SHARE:.0%} of the window)"
    return ["", render.dim(f"{line} · {most}"), render.table(rows, wrap=False)] if rows else []


def _largest_items(filled: "Breakdown") -> "list[RenderableType]":
    from ..render import render

    rows = [(f"#{each.item.seq}", f"{each.tokens:,}", _describe(each)) for each in filled.largest]
    head = ("largest", "tokens", "")
    return ["", render.table(rows, head=head, wrap=False)] if rows else []


def _describe(large: "LargeItem") -> str:
    """Describe a large item: calls and results by tool and main argument, others by their text."""
    item = large.item
    notes = [" · cleared"] * large.masked + [" · in a file"] * large.offloaded
    if large.calls:
        what = "result" if item.role == "user" else "calls" if len(large.calls) > 1 else "call"
        calls = [f"{call.name} {call.argument[:MAX_ITEM_CHARS]}".rstrip() for call in large.calls]
        return f"{what}: {', '.join(calls)}{''.join(notes)}"
    texts = [str(b.get("text", "")) for b in item.blocks if b.get("type") == "text"]
    if item.source in TYPED:  # its first line is a label
        texts = [text.partition("\n")[2] for text in texts]
    said = " ".join(" ".join(text[:MAX_ITEM_CHARS] for text in texts).split())
    return f"{SPEAKERS.get(item.source, '')}{said}{''.join(notes)}"


def _savings_table(done: "list[Act]") -> "list[RenderableType]":
    from ...compaction.history import savings
    from ...compaction.layers.known import layer_named
    from ..render import render

    rows = [
        (layer_named(layer).heading(), f"{tokens:,}", f"{count:,}")
        for layer, count, tokens in savings(done)
    ]
    return ["", render.table(rows, head=("compaction", "saved", "times"))] if rows else []


def _cache_lines(agent: "AgentState", entries: "Reversible[Entry]") -> list[str]:
    """Return lines on the prompt cache's hit rate and the reason of the last miss."""
    from ...session.entries import Assistant, Usage
    from .. import compaction_report

    usage, lines = agent.totals.all.usage, []
    if usage.prompt:
        turns = (e for e in reversed(entries) if isinstance(e, Assistant) and e.purpose == "turn")
        last = next((u for e in turns if (u := Usage.from_json(e.usage)).prompt), usage)
        lines.append(
            f"prompt cache: {usage.cache_read / usage.prompt:.0%} of all prompts came from it, "
            f"{last.cache_read / last.prompt:.0%} of the last one"
        )
    if miss := compaction_report.last_cache_miss_reason(entries):
        lines.append(f"last cache miss: {miss}")
    return lines


@command("what every compaction keeps, and what it may remove", anytime=True, group="context")
async def _rules(repl: CommandContext, argument: str) -> None:
    from .. import preserve_report

    if argument:
        raise UsageError(f"/rules does not take {argument!r}", hint="/preserve checks a section.")
    settings = repl.services.settings
    origins = settings.loaded.origins if settings else {}
    repl.show_lines(preserve_report.rules(repl.agent.policy.rules, origins))


@command(
    "check the kept sections; --create adds missing ones",
    argument="[SECTION] [--create]",
    complete=completions.preserved,
    group="context",
)
async def _preserve(repl: CommandContext, argument: str) -> None:
    from .. import preserve_report

    words = argument.split()
    names = [word for word in words if word != "--create"]
    if len(names) > 1 or any(name.startswith("--") for name in names):
        raise UsageError(f"/preserve does not take {argument!r}", hint="/rules lists the sections.")
    section, create = "".join(names), "--create" in words
    rules, ledger = repl.agent.policy.rules, repl.agent.ledger
    found = preserve_report.check(
        repl.services.cwd, rules, ledger, ledger.phase, section, create=create
    )
    repl.show_lines(preserve_report.sections(found))


MAX_ENTRIES_SHOWN = 20
MAX_TEXT_CHARS = 2_000_000  # shown of a text offloaded to a file


@command(
    "find earlier content, or show the state of the work",
    argument="TOPIC|1|2|3",
    anytime=True,
    group="context",
)
async def _recover(repl: CommandContext, argument: str) -> None:
    if not argument:
        raise UsageError("/recover needs a topic", hint="/recover TOPIC, or a level: 1, 2 or 3.")
    if argument in ("1", "2", "3"):
        from ...compaction.recovery import failure_note, recover_session

        entries = repl.agent.log.entries()
        state = await asyncio.to_thread(recover_session, entries, int(argument), disk=True)
        if state.failure:
            repl.say(state.failure)
            if not repl.agent.log.refusal:
                repl.agent.record(failure_note(state.failure))
        repl.show(state.text)
        return
    findings = await asyncio.to_thread(repl.agent.context.search, argument, "project")
    if not findings.passages:
        raise CtxagentError(f"nothing found: {argument}", hint=f"Searched: {findings.searched}.")
    for passage in findings.passages:
        head = f"{passage.ref} · {passage.what} · {passage.at}"
        repl.say(head)
        repl.show(passage.excerpt)
    repl.say(f"searched: {findings.searched} · /log REF shows one of this session whole")


@command(
    "the newest entries of the log, or one in full",
    argument="[REF|compaction|stats]",
    anytime=True,
    complete=completions.fixed(("compaction", "stats"), also=completions.refs),
    group="context",
)
async def _log(repl: CommandContext, argument: str) -> None:
    from ...compaction import history
    from ...compaction import history as metrics
    from .. import compaction_report

    log = repl.agent.log
    levels = argument == f"compaction {LEVELS}"
    if argument and not levels and argument not in ("compaction", "stats"):
        repl.show(await asyncio.to_thread(_entry_text, log, argument, repl.agent.context.recall))
        return
    entries = log.entries()
    if argument == "compaction" or levels:
        done = await asyncio.to_thread(history.acts, entries)
        others = await asyncio.to_thread(history.marks, entries)
        levels = levels or repl.agent.policy.is_published
        most = compaction_report.MAX_SHOWN_ACTS
        repl.show_report(compaction_report.event_log(done, others, limit=most, levels=levels))
    elif argument == "stats":
        text = compaction_report.metrics(await asyncio.to_thread(metrics.session_metrics, entries))
        repl.show_report(text)
    else:
        newest = await asyncio.to_thread(lambda: [*islice(reversed(entries), MAX_ENTRIES_SHOWN)])
        rows = [(f"#{e.seq}", e.kind, compaction_report.entry_line(e)) for e in newest[::-1]]
        repl.show_table(rows, wrap=False)
        repl.say(str(log.path))


def _entry_text(log: "Log", ref: str, recall: "Callable[[int], KeptText | None]") -> str:
    """Return an entry in full: a summary as the model reads it, a mask with its replacement texts,
    any other entry as JSON, with its text that was offloaded to a file. The reason why it left the
    context comes last, so that it stays on the screen. Raises UsageError for an unknown entry.
    """
    from ...compaction.history import why_not_in_context
    from ...session.entries import Mask, Summary, encode
    from ...session.log import find_entry
    from ..compaction_report import mask_text

    number = ref.removeprefix("#")
    found = find_entry(log.path, int(number)) if number.isdecimal() else None
    if found is None:
        raise UsageError(
            f"there is no entry {ref}",
            hint=f"Entries are 1 to {log.last_seq}." if log.last_seq else "This session is empty.",
        )
    if isinstance(found, Summary):
        return found.whole_text
    if isinstance(found, Mask):
        return mask_text(found)
    text = json.dumps(encode(found), ensure_ascii=False, indent=1)
    gone = why_not_in_context(log.entries(), found.seq)
    return "\n".join(filter(None, (text, _filed_text(log, found, recall), gone)))


def _filed_text(log: "Log", entry: "Entry", recall: "Callable[[int], KeptText | None]") -> str:
    """Return the text of an entry that was offloaded to a file, "" for any other entry."""
    name = getattr(entry, "offloaded", None)
    kept = recall(entry.seq) if name else None
    if kept is None:
        return ""
    text, size = kept.part(0, MAX_TEXT_CHARS)
    more = f"\n[{size - len(text):,} more characters in {log.path.parent / str(name)}]"
    return f"\n{text}{more if size > len(text) else ''}"
