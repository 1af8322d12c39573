"""Write a recording as the log of a session that continues it.

Each recorded call becomes a call of our equivalent tool, so that the ledger, Recall and the
compaction layers understand it. Where the recorded agent compacted its context, the log has a
summary with the recorded text. The context begins at that summary; the log still has everything
before it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...api.base import dataclass
from ...api.context import (
    Folding,
    MovedText,
    Policy,
    SummaryDocument,
    move_message,
    move_to_file,
    unnumbered,
)
from ...api.files import make_private_folder
from ...api.record import (
    Assistant,
    End,
    Entry,
    Note,
    Redact,
    Session,
    Summary,
    ToolResult,
    Usage,
    User,
    encode_line,
    timestamp,
)
from ...api.recordings import (
    RecordedCall,
    RecordedCompaction,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
    TranslatedCall,
    translate,
)


@dataclass(frozen=True, slots=True)
class EntryStorage:
    """The folder in which a session stores long texts, and the limits that make a text too long for
    the context.
    """

    folder: Path  # of the session
    window: int  # tokens
    policy: Policy
    clean: Callable[[str], str] = str  # removes secrets before a text is cut


def message_entry(message: RecordedMessage, source: str, seq: int, storage: EntryStorage) -> User:
    """Return the log entry of a message to the model. Raises OSError."""
    text = storage.clean(message.text)
    given, offloaded = move_message(
        text, size=storage.window, seq=seq, folder=storage.folder, policy=storage.policy
    )
    return User(content=given, source=source, mid_turn=message.mid_turn, offloaded=offloaded)


def reply_blocks(
    reply: RecordedReply, calls: Sequence[tuple[RecordedCall, TranslatedCall]]
) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a reply, with its calls translated to our tools."""
    if reply.text.strip() or not calls:
        yield {"type": "text", "text": reply.text.strip() or "[nothing]"}
    for call, translated in calls:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": translated.name,
            "input": translated.input,
        }


def result_entry(
    call: RecordedCall, translated: TranslatedCall, seq: int, storage: EntryStorage
) -> tuple[ToolResult, MovedText | None]:
    """Return the log entry of a call's result, and the reference if its text was moved to a
    file. Raises OSError.
    """
    details, offloaded = dict(translated.details), None
    content = storage.clean(call.text) or "[empty]"
    found = move_to_file(
        content, tool=translated.name, seq=seq, folder=storage.folder, policy=storage.policy
    )
    if found is not None:
        plan, offloaded = found
        content, details["tokens_saved"] = plan.reference, plan.saved
    elif not storage.policy.line_numbers:
        details |= unnumbered(translated.name, content)
    result = ToolResult(
        tool_use_id=call.id,
        content=content,
        is_error=translated.is_error,
        details=details,
        offloaded=offloaded,
    )
    return result, found[0] if found else None


RECORDING_TOPIC = "recording"  # topic of the note that names the source of a session
NOTICE = (
    "This session was recorded by another agent ({agent}), and you continue it. Its calls are "
    "shown as calls of your tools where yours do the same; tools that you do not have cannot be "
    "called. The files may have changed since: read a file again before you change it."
)


def write_session_log(
    recording: Recording, log: Path, opening: Session, storage: EntryStorage, redact: Redact
) -> None:
    """Write the log of a new session at `log`, starting with `opening`. Raises OSError."""
    make_private_folder(log.parent)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        for entry in _SessionWriting(recording, opening, storage).entries():
            out.write(encode_line(redact(entry)))


class _SessionWriting:
    """Converter of a recording to numbered log entries."""

    def __init__(self, recording: Recording, opening: Session, storage: EntryStorage) -> None:
        self._recording, self._first, self._storage = recording, opening, storage
        self._model = recording.model or "unknown"
        self._seq, self._at = 0, ""
        self._starts: list[int] = []  # seq of the first entry of each step
        self._words: list[int] = []  # seqs of the user's messages
        self._keep: list[int] = []  # seqs of messages kept by the newest compaction
        self._keep_from: int | None = None  # seq from which it kept all entries
        self._folding = Folding()  # of the entries so far
        self._status = ""  # status of the current turn; "" before the first turn

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the log."""
        yield from map(self._numbered, self._opening())
        for step in self._recording.steps:
            self._at = timestamp(step.at) if step.at is not None else self._at
            self._starts.append(self._seq + 1)
            yield from map(self._numbered, self._step(step))
        yield from map(self._numbered, self._ending())

    def _numbered(self, entry: Entry) -> Entry:
        self._seq += 1
        numbered = replace(entry, seq=self._seq, at=entry.at or self._at or timestamp())
        self._folding.add(numbered)
        return numbered

    def _opening(self) -> Iterator[Entry]:
        recording = self._recording
        # Not an ID of our models: its prompt cache would be assumed to be warm.
        model = f"{recording.format}:{self._model}"
        yield replace(self._first, cwd=recording.cwd or self._first.cwd, model=model)
        yield Note(
            topic=RECORDING_TOPIC,
            text=f"continues a session of {recording.format}: {recording.name}",
            data={"format": recording.format, "name": recording.name, "skipped": recording.skipped},
        )

    def _step(self, step: RecordedStep) -> Iterator[Entry]:
        if isinstance(step, RecordedReply):
            yield from self._reply(step)
        elif isinstance(step, RecordedCompaction):
            self._keep_from = self._starts[max(0, len(self._starts) - 1 - step.kept)]
            self._keep = self._words if step.keeps_words else []
        elif step.is_summary:
            yield self._summary(step)
        else:
            if is_message := not (step.by_client or step.mid_turn):
                yield from self._turn_end()
                self._status = "interrupted"
            entry = message_entry(
                step, "notice" if step.by_client else "person", self._seq + 1, self._storage
            )
            if is_message:
                self._words.append(self._seq + 1)
            yield entry

    def _reply(self, reply: RecordedReply) -> Iterator[Entry]:
        calls = [(call, translate(call)) for call in reply.calls]
        yield Assistant(
            content=list(reply_blocks(reply, calls)),
            usage=Usage().to_json(),
            stop_reason="tool_use" if calls else "end_turn",
            model=self._model,
            cost_usd=0.0,  # nothing was paid here
        )
        self._status = "interrupted" if calls else "ok"
        for call, ours in calls:
            entry, _ = result_entry(call, ours, self._seq + 1, self._storage)
            entry.details.pop("seen", None)  # the digest is not that of a real file
            yield replace(entry, at=timestamp(call.at) if call.at is not None else "")

    def _summary(self, words: RecordedMessage) -> Summary:
        """Return the log entry of the recorded agent's summary."""
        keep_from, self._keep_from = self._keep_from or self._seq + 1, None
        summary = Summary(
            document=SummaryDocument().to_json(),
            text=words.text,
            covers=[1, keep_from - 1],
            keep_from=keep_from,
            keep=[seq for seq in self._keep if seq < keep_from],
            trigger=RECORDING_TOPIC,
            replaces_earlier=True,
        )
        view = self._folding.view
        size = view.size_with(summary)
        return replace(summary, tokens_before=view.size, tokens_after=size)

    def _turn_end(self) -> Iterator[Entry]:
        if self._status:
            yield End(status=self._status)

    def _ending(self) -> Iterator[Entry]:
        yield from self._turn_end()
        self._at = ""
        yield User(content=NOTICE.format(agent=self._recording.format), source="notice")
