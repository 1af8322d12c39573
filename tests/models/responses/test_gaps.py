"""Refusals of Responses API servers, and the adapted requests."""

from collections.abc import Sequence
from typing import Any

import pytest

from ctxagent.agent.errors import RequestRejected
from ctxagent.agent.models.gaps import ServerGaps
from ctxagent.agent.models.responses.wire import GAPS, OMITTED_FILE

MARKED = {"type": "input_text", "text": "Be brief.", "prompt_cache_breakpoint": {}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
IMAGE = {"type": "input_image", "image_url": "data:", "detail": "auto"}
FILE = {"type": "input_file", "filename": "a.pdf", "file_data": "data:"}
PART = {"type": "output_text", "text": "Look.", "annotations": []}
SAID = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
        "phase": "commentary", "content": [PART]}  # fmt: skip

Body = dict[str, Any]


def call(id: str) -> Body:
    return {
        "type": "function_call",
        "call_id": id,
        "name": "Bash",
        "arguments": "{}",
        "id": f"fc{id}",
    }


def output(id: str, told: Any) -> Body:
    return {"type": "function_call_output", "call_id": id, "output": told}


def words(*parts: Body) -> Body:
    return {"type": "message", "role": "user", "content": [*parts]}


WHOLE: Body = {
    "model": "m",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit"},
    "max_output_tokens": 32_000,
    "reasoning": {"effort": "max", "summary": "auto"},
    "input": [
        {"type": "message", "role": "developer", "content": [MARKED]},
        words(FILE),
        REASONING,
        SAID,
        call("a"),
        call("b"),
        output("a", [{"type": "input_text", "text": "x"}, IMAGE]),
        output("b", [IMAGE]),
        words({"type": "input_text", "text": "Go on."}),
    ],
}


def fitted(gaps: Sequence[str]) -> Body:
    """The complete request without a server's gaps."""
    body = WHOLE
    for name, gap in GAPS.items():
        body = gap.fit(body) if name in gaps else body
    return body


OPTIONAL = [
    "cache", "breakpoints", "include", "summary", "effort", "results", "reasoning",
    "short",
]  # fmt: skip


@pytest.mark.parametrize(
    ("refusal", "learned"),
    [
        ("Unsupported parameter: 'prompt_cache_key'", ["cache"]),
        ("Unknown parameter: 'input[0].content[0].prompt_cache_breakpoint'.", ["breakpoints"]),
        ("Unknown parameter: 'store'", ["store"]),
        ("stream is not supported", ["stream"]),
        ("Encrypted content is not supported with this model.", ["include", "reasoning"]),
        ("Unsupported parameter: 'reasoning'", ["summary", "max", "xhigh", "effort", "reasoning"]),
        ("The encrypted content gAAA...6KFQ could not be verified.", ["reasoning"]),
        ("Item 'rs_1' of type 'reasoning' was provided without its required following item.",
         ["reasoning"]),
        ("Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item",
         ["reasoning"]),
        ("item['content'] is not an array", ["reasoning"]),
        ("Your organization must be verified to generate reasoning summaries.", ["summary"]),
        ("Unsupported parameter: 'reasoning.summary' is not supported", ["summary"]),
        ("Unsupported value: 'max' is not supported with the 'gpt-5' model",
         ["max", "xhigh", "effort"]),
        ('invalid reasoning value: "max" (must be "high", "medium")', ["max", "xhigh", "effort"]),
        ("Unsupported parameter: 'reasoning.effort'", ["max", "xhigh", "effort"]),
        ('"qwen3" does not support thinking', ["max", "xhigh", "effort"]),
        ("max_tokens is too large: 32000. This model supports at most 16384", ["limit"]),
        ("Invalid type for 'input'.", ["results"]),
        ("Output of tool call should be 'Input text'", ["results"]),
        ("'input_file' is not supported by llamacpp at this moment", ["files"]),
        ("", OPTIONAL),
        ("Invalid value for 'temperature'", OPTIONAL),
    ],
)  # fmt: skip
def test_features_named_in_a_refusal_are_removed(refusal: str, learned: list[str]) -> None:
    """If a server repeats the same message, one feature after another is removed, and then all
    optional features.
    """
    gaps = ServerGaps(None, "http://server.test/v1", "m", GAPS)
    error = RequestRejected(f"the server refused the request (400): {refusal}", status=400)
    found = list[str]()
    while suspects := gaps.suspect(error, fitted(gaps.names)):
        found += suspects
    assert found == [*learned, *(name for name in OPTIONAL if name not in learned)][: len(found)]
    assert {*OPTIONAL, *learned} - {*found} <= {
        "summary",
        "effort",
        "short",
    }  # removed with another one


@pytest.mark.parametrize(
    ("gaps", "reasoning"),
    [
        (["max"], {"effort": "xhigh", "summary": "auto"}),
        (["max", "xhigh"], {"effort": "high", "summary": "auto"}),
        (["xhigh"], {"effort": "max", "summary": "auto"}),
        (["effort"], {"summary": "auto"}),
        (["summary"], {"effort": "max"}),
        (["effort", "summary"], None),
    ],
)
def test_an_effort_becomes_the_highest_supported_one(gaps: list[str], reasoning: Body) -> None:
    assert fitted(gaps).get("reasoning") == reasoning


def test_instructions_stay_where_they_are_without_a_breakpoint() -> None:
    found = fitted(["breakpoints"])
    part = {"type": "input_text", "text": "Be brief."}
    assert found["input"][0] == {"type": "message", "role": "developer", "content": [part]}
    assert "prompt_cache_options" not in found


def test_without_reasoning_linked_ids_are_removed_too() -> None:
    told = fitted(["reasoning"])["input"][1:]
    assert told[1] == {
        "type": "message", "role": "assistant", "phase": "commentary", "content": "Look.",
    }  # fmt: skip
    assert all("id" not in item and item["type"] != "reasoning" for item in told)


def test_images_in_results_stand_behind_all_results() -> None:
    told = fitted(["results"])["input"][1:]
    assert [item["type"] for item in told[5:]] == [
        "function_call_output", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert told[5]["output"].startswith("x\n\n[")
    assert told[7] == words(IMAGE, IMAGE)


def test_a_file_becomes_a_text() -> None:
    told = fitted(["files"])["input"][1:]
    assert told[0] == words({"type": "input_text", "text": OMITTED_FILE})
    assert told[1:] == WHOLE["input"][2:]
