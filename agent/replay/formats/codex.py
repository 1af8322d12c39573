"""Codex's rollouts: JSON lines with a payload. Those of the kind response_item are the messages,
calls and results; event_msg repeats them for the eye, but has the true tokens.

A reply has no id here: another one begins with what comes after a result, words of the person, the
count of its tokens or a compaction.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, arguments, count, mapping, plain, seconds, words
from .transcript import Draft, Result, Transcript

_KINDS = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


def recognises(row: Row) -> bool:
    return row.get("type") in _KINDS and isinstance(row.get("payload"), dict)


def read(rows: Iterable[Row]) -> Transcript:
    reading = _Reading()
    for row in rows:
        payload = row.get("payload")
        if row.get("type") not in _KINDS:
            continue
        if isinstance(payload, dict):
            reading.add(str(row["type"]), payload, seconds(row.get("timestamp")))
        else:
            reading.transcript.skipped += 1
    return reading.transcript


class _Reading:
    def __init__(self) -> None:
        self.transcript = Transcript()
        self._number = 0  # of the reply that is being read
        self._last: Draft | None = None
        self._model: Any = None
        self._counted: dict[str, Any] = {}  # the newest count

    def add(self, kind: str, payload: dict[str, Any], at: float | None) -> None:
        if kind == "session_meta":
            told = mapping(payload.get("base_instructions")).get("text")
            self.transcript.instruct(words(told) or words(payload.get("instructions")))
        elif kind == "turn_context":
            self._model = payload.get("model")
        elif kind == "compacted":
            self.transcript.compact(at, words(payload.get("message")))
            self._number, self._last = self._number + 1, None
        elif kind == "response_item":
            self._item(payload, at)
        elif payload.get("type") == "token_count":
            self._count(mapping(payload.get("info")))

    def _item(self, payload: dict[str, Any], at: float | None) -> None:
        kind = payload.get("type")
        if kind == "message" and payload.get("role") == "assistant":
            self._reply(at).say(plain(payload.get("content")))
        elif kind == "message":
            self.transcript.say(plain(payload.get("content")), at)
            self._number += 1
        elif kind in _CALLS:
            given = payload.get("arguments") or payload.get("input") or payload.get("action")
            name = payload.get("name") or kind
            self.transcript.ask(self._reply(at), payload.get("call_id"), name, arguments(given))
        elif kind in _RESULTS:
            self.transcript.answer(payload.get("call_id"), _result(payload.get("output"), at))
            self._number += 1

    def _reply(self, at: float | None) -> Draft:
        self._last = self.transcript.reply(self._number, at, self._model)
        return self._last

    def _count(self, info: dict[str, Any]) -> None:
        """The tokens of the newest reply. The same count comes again when a limit is looked up, and
        one of nothing after a compaction."""
        if info == self._counted:
            return
        self._counted = info
        usage = mapping(info.get("last_token_usage"))
        if self._last is not None and (prompt := count(usage.get("input_tokens"))):
            self._last.prompt, self._last.output = prompt, count(usage.get("output_tokens"))
            self._number += 1


def _result(output: Any, at: float | None) -> Result:
    if isinstance(output, dict) and "content" in output:  # as older versions wrote it
        return Result(plain(output["content"]), output.get("success") is False, at)
    return Result(plain(output), False, at)
