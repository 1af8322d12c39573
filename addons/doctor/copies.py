"""Restore lost entries of a log from its copies.

The copies, from the most to the least exact: logs that earlier repairs replaced, the resume cache,
`conversation.md` and the checkpoints. Entries from `conversation.md` have the text of messages,
calls and results, but no thinking, usage or IDs of calls. A result is joined to a call only if
just one call of the log has no result. Otherwise its text becomes a message.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from ...api.base import SessionError
from ...api.context import SUMMARY_SOURCE, View
from ...api.record import (
    ATTACHMENT,
    CHECKPOINTS_FOLDER,
    CONVERSATION_NAME,
    SEARCH_TOOL,
    Assistant,
    Block,
    Checkpoint,
    CopiedText,
    Entry,
    ToolResult,
    User,
    compare,
    conversation_texts,
    decode,
    newest_checkpoint,
    parse_entry,
)
from ...api.session import CACHE_NAME, ResumeCache
from .repair import (
    LogRow,
    RepairedLog,
    add_line,
    correct_rows,
    lost_seqs,
    new_row,
    offloaded_texts,
    seq_ranges,
)
from .salvage import read_lines

RESULT = "Result"  # heading of a result in `conversation.md`
_WITHOUT = "; thinking, usage and IDs of calls are lost"

Load = Callable[[LogRow], Entry]


def restore_from_copies(log: RepairedLog, load: Load, path: Path) -> None:
    """Add the entries that only the copies have to the rows of a log. Raises SessionError."""
    sections = _foreign_sections(log, load, path)
    cached = ResumeCache(path).stored()
    newest = newest_checkpoint(path.parent)
    last = max((row.last for row in log.rows), default=0)
    log.end = max([
        last,
        *(section.seq for section in sections),
        *([cached.state.highest] if cached else []),
        *([newest[1] + 1] if newest and newest[1] > last else []),
    ])  # fmt: skip
    for name, entries in _old_logs(log, path):
        _add(log, entries, name)
    if cached:
        _add(log, _entries_of_view(cached.state.view), CACHE_NAME)
    _add(log, _entries_of_sections(log, load, sections), CONVERSATION_NAME, _WITHOUT)
    _add(log, _checkpoints(path.parent), CHECKPOINTS_FOLDER)


def _add(log: RepairedLog, entries: Iterable[Entry], name: str, without: str = "") -> None:
    """Add the entries whose seqs the log lacks."""
    gaps = _Gaps(log)
    added = {entry.seq: entry for entry in entries if entry.seq in gaps}
    if not added:
        return
    log.rows = sorted([*log.rows, *map(new_row, added.values())], key=lambda row: row.seq)
    log.changes.append(f"{seq_ranges(sorted(added))}: restored from {name}{without}")
    log.note_change(min(added))


class _Gaps:
    """The seqs up to the end of a log that no row covers."""

    def __init__(self, log: RepairedLog) -> None:
        self._starts, self._lasts = [row.seq for row in log.rows], [row.last for row in log.rows]
        self._end = log.end

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self._starts, seq)
        return 0 < seq <= self._end and (not place or self._lasts[place - 1] < seq)


def _foreign_sections(log: RepairedLog, load: Load, path: Path) -> list[CopiedText]:
    """Return the sections of `conversation.md` whose entries the log lacks. Leave out results whose
    whole text is in a file.
    """
    try:
        texts = conversation_texts(load(row) for row in log.rows)
        found = compare(path.with_name(CONVERSATION_NAME), texts)
    except OSError:  # usually a missing file
        return []
    files = offloaded_texts(path.parent)
    return [
        each
        for each in found.sections
        if each.seq in found.lost and not (each.speaker == RESULT and each.seq in files)
    ]


def _old_logs(log: RepairedLog, path: Path) -> Iterator[tuple[str, list[Entry]]]:
    """Yield the name and the missing entries of each log that a repair replaced, newest first."""
    old = sorted(path.parent.glob(f"{path.name}.*.bak"), reverse=True)
    for each in old:
        is_only_source = not log.rows and not log.end
        if not is_only_source and not _has_gaps(log):
            return
        with suppress(OSError, SessionError), each.open("rb") as file:
            repaired = RepairedLog()
            for line in read_lines(each):
                add_line(repaired, line)

            def load(row: LogRow, file: Any = file) -> Entry:
                if row.entry is not None:
                    return row.entry
                file.seek(row.offset)
                return parse_entry(file.read(row.length))

            correct_rows(repaired, load)
            if is_only_source:
                log.end = max((row.last for row in repaired.rows), default=0)
            gaps = _Gaps(log)
            wanted = [load(row) for row in repaired.rows if row.seq in gaps]
            yield each.name, [entry for entry in wanted if not lost_seqs(entry)]


def _has_gaps(log: RepairedLog) -> bool:
    first = 1
    for row in log.rows:
        if row.seq > first:
            return True
        first = row.last + 1
    return first <= log.end


def _entries_of_view(view: View) -> Iterator[Entry]:
    """Yield the entries of a view, with exact blocks. Older messages may only be in its summary."""
    if view.summary:
        yield view.summary
    for item in view.items:
        details, offloaded = view.facts(item)
        first: Block = item.blocks[0] if item.blocks else {}
        if item.source == SUMMARY_SOURCE:
            continue
        if item.role == "assistant":
            yield Assistant(
                seq=item.seq, content=item.blocks, usage={}, stop_reason=item.stop_reason,
                model=item.base.model,
            )  # fmt: skip
        elif first.get("type") == "tool_result" and item.source != ATTACHMENT:
            yield ToolResult(
                seq=item.seq, tool_use_id=str(first.get("tool_use_id")), details=details,
                content=first.get("content", ""), is_error=first.get("is_error") is True,
                offloaded=offloaded,
            )  # fmt: skip
        else:
            is_result = first.get("type") == "tool_result"
            yield User(
                seq=item.seq, content=first.get("content", "") if is_result else item.blocks,
                source=item.source or "person", details=details, offloaded=offloaded,
            )  # fmt: skip


def _entries_of_sections(
    log: RepairedLog, load: Load, sections: Iterable[CopiedText]
) -> Iterator[Entry]:
    """Yield the entries that sections of `conversation.md` show. Results come last, because they
    need the calls.
    """
    results, calls = list[CopiedText](), dict[str, int]()
    for seq, group in groupby(sections, key=lambda section: section.seq):
        parts = [*group]
        if parts[0].speaker == RESULT:
            text = "\n\n".join(part.text for part in parts)
            results.append(CopiedText(seq, RESULT, text))
            continue
        blocks = [*map(_block_of, parts, range(len(parts)))]
        if parts[0].speaker == "Assistant" or any(b["type"] == "tool_use" for b in blocks):
            calls |= {str(block["id"]): seq for block in blocks if "id" in block}
            yield Assistant(seq=seq, content=blocks, usage={}, stop_reason=None, model="")
        else:
            source = "person" if parts[0].speaker == "User" else parts[0].speaker.lower()
            yield User(seq=seq, content="\n\n".join(part.text for part in parts), source=source)
    if not results:
        return
    answered = set[str]()
    for row in log.rows:
        entry = load(row) if row.kind in (Assistant.kind, ToolResult.kind) else None
        if isinstance(entry, ToolResult):
            answered.add(entry.tool_use_id)
        elif isinstance(entry, Assistant):
            calls |= {str(b["id"]): row.seq for b in entry.content if b.get("type") == "tool_use"}
    calls = {id: seq for id, seq in calls.items() if id not in answered}
    for result in results:
        yield _result(result, calls, results)


def _result(result: CopiedText, calls: dict[str, int], results: list[CopiedText]) -> Entry:
    """Return the entry of a lost result: a result if it belongs to the only open call of the newest
    reply before it, else a message.
    """
    asked = max((seq for seq in calls.values() if seq < result.seq), default=0)
    open_calls = [id for id, seq in calls.items() if seq == asked]
    later = min((seq for seq in calls.values() if seq > result.seq), default=1 << 60)
    rivals = [each for each in results if asked < each.seq < later]
    if len(open_calls) == 1 and len(rivals) == 1:
        return ToolResult(seq=result.seq, tool_use_id=open_calls[0], content=result.text)
    text = f"[Restored: the result of a call in #{asked}]\n\n{result.text}"
    return User(seq=result.seq, content=text, source="notice")


def _block_of(section: CopiedText, index: int) -> Block:
    """Return the block that a section of a message or a reply shows."""
    if section.speaker not in ("Assistant", "User", SEARCH_TOOL):
        with suppress(ValueError, RecursionError):
            if isinstance(arguments := json.loads(section.text), dict):
                id = f"restored_{section.seq}_{index}"
                return {"type": "tool_use", "id": id, "name": section.speaker, "input": arguments}
    text = section.text
    if index and section.speaker != "Assistant":
        text = f"[{section.speaker}]\n{text}"
    return {"type": "text", "text": text}


def _checkpoints(folder: Path) -> Iterator[Checkpoint]:
    """Yield the entries of checkpoints whose files remain."""
    for path in sorted((folder / CHECKPOINTS_FOLDER).glob("*.json")):
        with suppress(OSError, ValueError, TypeError, LookupError):
            saved = json.loads(path.read_bytes())
            entry = decode({
                "seq": saved["seq"] + 1, "kind": Checkpoint.kind, "number": saved["number"],
                "path": f"{CHECKPOINTS_FOLDER}/{path.name}", "snapshot": saved["snapshot"],
                "trigger": saved["trigger"],
            })  # fmt: skip
            assert isinstance(entry, Checkpoint)
            yield entry
