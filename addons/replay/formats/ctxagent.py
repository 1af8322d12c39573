"""The reader of our own logs.

A result is read in full, even if its text went to a file. Masks are skipped, because a replay makes
its own. A summary becomes a compaction. Entries reinserted right after a summary are skipped,
because without the summary they only repeat the context. The log of a subagent is a separate file.
"""

from collections.abc import Iterable
from pathlib import Path

from ....api.context import REFUSAL, REINSERTED_SOURCES
from ....api.record import (
    RECALLED,
    SHELL_OUTPUT_HEADING,
    Assistant,
    Entry,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Usage,
    User,
    content_text,
    decode,
    read_kept_text,
)
from ....api.recordings import RecordedResult, TranscriptBuilder
from ....api.text import JsonObject, as_seconds, without_surrogates


def recognizes(row: JsonObject) -> bool:
    return {"v", "seq", "kind"} <= row.keys()


def read(rows: Iterable[JsonObject], folder: Path) -> TranscriptBuilder:
    """Read a log; `folder` is the session folder with the files that the log refers to."""
    reading = _LogReading(folder)
    for row in rows:
        try:
            entry = decode(row)
        except ValueError:
            reading.transcript.skipped += 1
        else:
            reading.add(entry)
    if reading.gone:
        what = (
            "result was in a file that is"
            if reading.gone == 1
            else "results were in files that are"
        )
        note = f"{reading.gone:,} {what} missing; using previews"
        reading.transcript.notes.append(note)
    return reading.transcript


class _LogReading:
    def __init__(self, folder: Path) -> None:
        self.transcript = TranscriptBuilder()
        self.gone = 0  # missing files that the log refers to
        self._folder = folder
        self._reinserting = False
        self._refs: dict[str, str] = {}  # refs of results by the file of their text
        self._files: dict[str, tuple[str, ...]] = {}  # of ended subagents, by ID

    def add(self, entry: Entry) -> None:
        at = as_seconds(entry.at)
        is_reinserted = isinstance(entry, User) and entry.source in REINSERTED_SOURCES
        self._reinserting = isinstance(entry, Summary) or (self._reinserting and is_reinserted)
        if isinstance(entry, Summary):
            self.transcript.add_compaction(at)
        elif isinstance(entry, User) and not self._reinserting:
            self.transcript.add_words(self._user_text(entry), at, mid_turn=entry.mid_turn)
        elif isinstance(entry, ToolResult):
            whole = self._offloaded_text(entry)
            text = content_text(entry.content) if whole is None else whole
            ref = f"#{entry.seq}"
            if entry.offloaded is not None:
                self._refs[entry.offloaded] = ref
            files = self._files.get(str(entry.details.get("agent")), ())
            result = RecordedResult(text, entry.is_error, at, ref, self._recalled(entry), files)
            self.transcript.add_result(entry.tool_use_id, result)
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            self._add_reply(entry, at)
        elif isinstance(entry, SubagentRun):
            self._files[entry.id] = tuple(entry.files)
        elif isinstance(entry, Session):
            self.transcript.set_system(entry.system or "")

    def _add_reply(self, entry: Assistant, at: float | None) -> None:
        if entry.stop_reason == REFUSAL:
            return  # later requests leave it out
        draft = self.transcript.draft_reply(entry.seq, at, entry.model)
        usage = Usage.from_json(entry.usage)
        draft.prompt, draft.output = usage.prompt, usage.output
        for block in entry.content:
            self.transcript.add_block(draft, block)

    def _recalled(self, entry: ToolResult) -> str:
        """Return the ref of the result that a Recall by ref returned, "" for any other result.
        Recalls by query are ignored, because it is unknown which of the listed results was needed.
        """
        refs = entry.details.get(RECALLED)
        if "characters" not in entry.details or not isinstance(refs, list) or not refs:
            return ""
        return self._refs.get(str(refs[0]), str(refs[0]))

    def _user_text(self, entry: User) -> str:
        whole = self._offloaded_text(entry)
        if whole is None or isinstance(entry.content, str):
            return content_text(entry.content)
        parts = content_text(entry.content[:-1]), f"{SHELL_OUTPUT_HEADING}{whole}"
        return "\n".join(filter(None, parts))

    def _offloaded_text(self, entry: User | ToolResult) -> str | None:
        """Return the text in an entry's file, or None if it has no file or the file is missing."""
        if entry.offloaded is None:
            return None
        text: str | None = without_surrogates(read_kept_text(self._folder, entry.offloaded))
        self.gone += text is None
        return text
