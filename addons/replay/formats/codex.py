"""The reader of Codex's rollouts: JSON lines with a payload. Lines of type response_item contain
the messages, calls and results; event_msg lines repeat them for display, but have the true token
counts.

Replies have no ID: a new reply begins after a result, a user message, a token count or a
compaction.
"""

from collections.abc import Iterable
from typing import Any

from ....api.recordings import RecordedReplyDraft, RecordedResult, TranscriptBuilder
from ....api.text import (
    JsonObject,
    as_arguments,
    as_count,
    as_object,
    as_seconds,
    as_text,
    plain_text,
)

_KINDS = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_CLIENT_TEXTS = (  # prefixes of messages that Codex writes as the user
    "# AGENTS.md instructions for ", "<user_instructions>", "<environment_context>",
    "<turn_aborted>",
)  # fmt: skip
_RESULTS = ("function_call_output", "custom_tool_call_output")


def recognizes(row: JsonObject) -> bool:
    return row.get("type") in _KINDS and isinstance(row.get("payload"), dict)


def read(rows: Iterable[JsonObject]) -> TranscriptBuilder:
    rollout = _Rollout()
    for row in rows:
        payload = row.get("payload")
        if row.get("type") not in _KINDS:
            continue
        if isinstance(payload, dict):
            rollout.add(str(row["type"]), payload, as_seconds(row.get("timestamp")))
        else:
            rollout.transcript.skipped += 1
    return rollout.transcript


class _Rollout:
    def __init__(self) -> None:
        self.transcript = TranscriptBuilder()
        self._reply_number = 0  # number of the current reply
        self._last: RecordedReplyDraft | None = None
        self._model: Any = None
        self._last_count: JsonObject = {}

    def add(self, kind: str, payload: JsonObject, at: float | None) -> None:
        if kind == "session_meta":
            base = as_object(payload.get("base_instructions")).get("text")
            self.transcript.set_system(as_text(base) or as_text(payload.get("instructions")))
            self.transcript.set_cwd(payload.get("cwd"))
        elif kind == "turn_context":
            self._model = payload.get("model")
        elif kind == "compacted":
            self.transcript.add_compaction(at, as_text(payload.get("message")), keeps_words=True)
            self._reply_number, self._last = self._reply_number + 1, None
        elif kind == "response_item":
            self._item(payload, at)
        elif payload.get("type") == "token_count":
            self._count(as_object(payload.get("info")))

    def _item(self, payload: JsonObject, at: float | None) -> None:
        kind = payload.get("type")
        if kind == "message" and payload.get("role") == "assistant":
            self._reply(at).add_text(plain_text(payload.get("content")))
        elif kind == "message":
            words = plain_text(payload.get("content"))
            by_client = payload.get("role") == "developer" or words.startswith(_CLIENT_TEXTS)
            self.transcript.add_words(words, at, by_client=by_client)
            self._reply_number += 1
        elif kind in _CALLS:
            given = payload.get("arguments") or payload.get("input") or payload.get("action")
            name = payload.get("name") or kind
            self.transcript.add_call(
                self._reply(at), payload.get("call_id"), name, as_arguments(given)
            )
        elif kind in _RESULTS:
            self.transcript.add_result(payload.get("call_id"), _result(payload.get("output"), at))
            self._reply_number += 1

    def _reply(self, at: float | None) -> RecordedReplyDraft:
        self._last = self.transcript.draft_reply(self._reply_number, at, self._model)
        return self._last

    def _count(self, info: JsonObject) -> None:
        """Set the token counts of the newest reply. Ignore repeated counts, which Codex writes when
        it checks a limit, and empty counts, which it writes after a compaction.
        """
        if info == self._last_count:
            return
        self._last_count = info
        usage = as_object(info.get("last_token_usage"))
        if self._last is not None and (prompt := as_count(usage.get("input_tokens"))):
            self._last.prompt, self._last.output = prompt, as_count(usage.get("output_tokens"))
            self._reply_number += 1


def _result(output: Any, at: float | None) -> RecordedResult:
    if isinstance(output, dict) and "content" in output:  # as older versions wrote it
        return RecordedResult(plain_text(output["content"]), output.get("success") is False, at)
    return RecordedResult(plain_text(output), False, at)
