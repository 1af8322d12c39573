"""/log and /recover: log entries, the effect of compaction, and content that left the context."""

import asyncio
import json
from itertools import islice
from typing import TYPE_CHECKING

from ...errors import CtxagentError, UsageError
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....tools.system.kept_text import KeptText
    from ...session.entries import Entry
    from ...session.log import Log

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
    from ...compaction import history, metrics
    from .. import compaction_report

    log = repl.agent.log
    if argument and argument not in ("compaction", "stats"):
        repl.show(await asyncio.to_thread(_entry_text, log, argument, repl.agent.context.recall))
        return
    entries = log.entries()
    if argument == "compaction":
        done = await asyncio.to_thread(history.acts, entries)
        others = await asyncio.to_thread(history.marks, entries)
        text = compaction_report.event_log(done, others, limit=compaction_report.MAX_SHOWN_ACTS)
        repl.show_report(text)
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
