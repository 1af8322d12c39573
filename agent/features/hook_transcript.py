"""The transcript for hooks in the published format: one JSON line per message.

It is written from the log before each run of these hooks, in sessions that have such hooks.
"""

import json
import os
import threading
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from ..session.entries import Assistant, Entry, Summary, ToolResult, User
from ..session.log import Log

TRANSCRIPT_NAME = "transcript.jsonl"  # in the session's folder


class HookTranscript:
    """The transcript of a session."""

    def __init__(self, log: Log) -> None:
        self._log, self._written, self._lock = log, 0, threading.Lock()
        self.path = log.path.with_name(TRANSCRIPT_NAME)

    def catch_up(self) -> None:
        """Write the new messages. Blocks. Raises OSError and SessionError."""
        with self._lock:  # read-only calls run in parallel
            if not self._written or self._log.last_seq > self._written:
                self._write()

    def _write(self) -> None:
        mode = 0 if self._written else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | mode
        with os.fdopen(os.open(self.path, flags, 0o600), "wb") as file:
            for entry in self._new_entries():
                if row := self._row(entry):
                    # Without spaces, because programs search the lines as text.
                    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                    file.write(text.encode("utf-8", "replace") + b"\n")
                self._written = entry.seq

    def _new_entries(self) -> Iterable[Entry]:
        """Return the entries that are not written yet, oldest first. A whole log is read entry
        by entry.
        """
        if not self._written:
            return self._log.entries()
        new = takewhile(lambda entry: entry.seq > self._written, reversed(self._log.entries()))
        return reversed([*new])

    def _row(self, entry: Entry) -> dict[str, Any] | None:
        message: dict[str, Any]
        if isinstance(entry, Assistant):
            if entry.purpose != "turn":
                return None
            message = {
                "role": "assistant", "id": entry.message_id, "type": "message",
                "model": entry.model, "content": entry.content,
                "stop_reason": entry.stop_reason, "usage": entry.usage,
            }  # fmt: skip
        elif isinstance(entry, ToolResult):
            result = {
                "type": "tool_result", "tool_use_id": entry.tool_use_id,
                "content": entry.content, "is_error": entry.is_error,
            }  # fmt: skip
            message = {"role": "user", "content": [result]}
        elif isinstance(entry, User):
            message = {"role": "user", "content": entry.content}
        elif isinstance(entry, Summary):
            message = {"role": "user", "content": entry.whole_text}
        else:
            return None
        return {
            "type": message["role"],
            "message": message,
            "uuid": str(entry.seq),
            "timestamp": entry.at,
            "sessionId": self._log.path.parent.name,
            "isMeta": isinstance(entry, User) and entry.source != "person",
            "isSidechain": False,
        }
