"""Our own logs. Masks are what a replay decides anew, so they are left out; a result is its whole
text, also of one that went to a file. A summary is a compaction, and what was said again right
after it is left out as the view leaves it out when a summary is taken back: without the summary it
is no news. A subagent's log is a file of its own.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ...context.view import REFUSED, RENEWED
from ...context.wire import scrub
from ...record.entries import (
    SAID,
    Assistant,
    Entry,
    Session,
    Summary,
    ToolResult,
    Usage,
    User,
    decode,
)
from ...record.sessions import file_text, plain
from .parts import Row, mapping, seconds, words
from .transcript import Result, Transcript

_HELD = re.compile(r"offloaded/[^/\0]+")  # a log from elsewhere may name anything


def recognises(row: Row) -> bool:
    return {"v", "seq", "kind"} <= row.keys()


def read(rows: Iterable[Row], folder: Path) -> Transcript:
    """`folder` is the session's, with the files that its log names."""
    reading = _Reading(folder)
    for row in rows:
        try:
            entry = decode(row)
        except ValueError:
            reading.transcript.skipped += 1
        else:
            reading.add(entry)
    if reading.gone:
        told = f"{reading.gone} results are in files that are gone; their previews stand for them"
        reading.transcript.notes.append(told)
    return reading.transcript


class _Reading:
    def __init__(self, folder: Path) -> None:
        self.transcript = Transcript()
        self.gone = 0  # files that are named and not there
        self._folder = folder
        self._renewing = False

    def add(self, entry: Entry) -> None:
        at = seconds(entry.at)
        renewal = isinstance(entry, User) and entry.source in RENEWED
        self._renewing = isinstance(entry, Summary) or (self._renewing and renewal)
        if isinstance(entry, Summary):
            self.transcript.compact(at)
        elif isinstance(entry, User) and not self._renewing:
            self.transcript.say(self._said(entry), at)
        elif isinstance(entry, ToolResult):
            whole = self._whole(entry)
            text = plain(entry.content) if whole is None else whole
            self.transcript.answer(entry.tool_use_id, Result(text, entry.is_error, at))
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            self._replied(entry, at)
        elif isinstance(entry, Session):
            self.transcript.instruct(entry.system or "")

    def _replied(self, entry: Assistant, at: float | None) -> None:
        if entry.stop_reason == REFUSED:
            return  # no later request has it
        draft = self.transcript.reply(entry.seq, at, entry.model)
        usage = Usage.from_json(entry.usage)
        draft.prompt, draft.output = usage.prompt, usage.output
        for block in entry.content:
            if block.get("type") == "text":
                draft.say(words(block.get("text")))
            elif block.get("type") == "tool_use":
                given = mapping(block.get("input"))
                self.transcript.ask(draft, block.get("id"), block.get("name"), given)

    def _said(self, entry: User) -> str:
        whole = self._whole(entry)
        if whole is None or isinstance(entry.content, str):
            return plain(entry.content)
        return "\n".join(filter(None, (plain(entry.content[:-1]), f"{SAID}{whole}")))

    def _whole(self, entry: User | ToolResult) -> str | None:
        """The text in the file of an entry; None where it has none, or that is gone."""
        if entry.offloaded is None:
            return None
        path = self._folder / entry.offloaded
        held = _HELD.fullmatch(entry.offloaded) and path.is_file()
        text: str | None = scrub(file_text(path) if held else None)
        self.gone += text is None
        return text
