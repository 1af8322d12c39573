"""Replies of Gemini, collected from chunks."""

import asyncio
import json
from typing import Any

import pytest

from ctxagent.addons.proxy.bodies.gemini import GeminiBody, GeminiDraft
from ctxagent.addons.proxy.exchange import read_reply

Json = dict[str, Any]
FORMAT = GeminiBody()
CALLS = [
    {"functionCall": {"name": "t", "args": {"a": "long"}}, "thoughtSignature": "c2ln"},
    {"functionCall": {"name": "u", "args": {}}},
]


def draft_of(*events: Json) -> GeminiDraft:
    draft = GeminiDraft()
    for event in events:
        for _ in draft.take(event):
            pass
    return draft


def chunk(*parts: Json, **more: Any) -> Json:
    return {"candidates": [{"content": {"parts": [*parts]}, **more}]}


def test_chunks_become_one_reply() -> None:
    usage = {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 2,
             "thoughtsTokenCount": 3, "toolUsePromptTokenCount": True}  # fmt: skip
    draft = draft_of(
        chunk({"text": "H", "thought": True}), chunk({"text": "m", "thought": True}),
        chunk({"text": "I "}), chunk({"text": "look."}, {"executableCode": {}}),
        {**chunk(*CALLS, finishReason="STOP"), "usageMetadata": usage, "responseId": "r1"},
    )  # fmt: skip
    found = FORMAT.reply(draft)
    texts = [block.get("thinking") or block.get("text") for block in found.content]
    assert texts[:2] == ["Hm", "I look."]
    assert [b["name"] for b in found.content if b["type"] == "tool_use"] == ["t", "u"]
    assert len({b["id"] for b in found.content if b["type"] == "tool_use"}) == 2
    assert (found.stop_reason, found.usage.input, found.usage.cache_read) == ("tool_use", 5, 4)
    assert found.usage.output == 5


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (chunk({"text": "a"}, finishReason="MAX_TOKENS"), "max_tokens"),
        (chunk(finishReason="SAFETY"), "refusal"),
        (chunk(finishReason="MALFORMED_FUNCTION_CALL"), "end_turn"),
        ({"promptFeedback": {"blockReason": "OTHER"}}, "refusal"),
        (chunk({"text": "a"}), None),
    ],
)
def test_a_reply_has_the_reason_of_its_end(event: Json, reason: str | None) -> None:
    assert FORMAT.reply(draft_of(event)).stop_reason == reason


@pytest.mark.parametrize("event", [{"candidates": [3]}, chunk(7), {"candidates": [{"content": 1}]}])  # type: ignore[arg-type]
def test_an_invalid_chunk_is_an_error(event: Json) -> None:
    with pytest.raises(ValueError, match="not an object"):
        draft_of(event)


def test_a_stream_may_be_an_array() -> None:
    """`streamGenerateContent` without `alt=sse`."""
    events = [chunk({"text": "I "}), chunk({"text": "look."}, finishReason="STOP")]
    data = json.dumps(events).encode()
    found = asyncio.run(read_reply(FORMAT, {}, data, {"content-type": "application/json"}))
    assert found.content == [{"type": "text", "text": "I look."}]
