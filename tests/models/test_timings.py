"""The timings of replies: llama.cpp's, Ollama's and measured ones."""

from typing import Any

import pytest

from ctxagent.agent.events import Accepted, TextDelta
from ctxagent.agent.models.chat.draft import ChatDraft
from ctxagent.agent.models.timings import Stopwatch, server_timings
from ctxagent.agent.session.entries import Usage

LLAMA = {"cache_n": 400, "prompt_n": 100, "prompt_ms": 2_000.0,
         "predicted_n": 10, "predicted_ms": 900.0}  # fmt: skip
OLLAMA = {"prompt_eval_count": 100, "prompt_eval_duration": 2_000_000_000,
          "eval_count": 10, "eval_duration": 900_000_000}  # fmt: skip
FOUND = {"read": 100, "written": 10, "read_s": 2.0, "written_s": 0.9, "by": "server"}


def test_the_forms_of_servers() -> None:
    assert server_timings({"timings": LLAMA}) == {"cached": 400, **FOUND}
    assert server_timings(OLLAMA) == FOUND
    older = {key: value for key, value in LLAMA.items() if key != "cache_n"}
    assert server_timings({"timings": older}) == FOUND


@pytest.mark.parametrize("bad", [None, "x", -1, float("nan"), float("inf"), True])
def test_an_invalid_number_is_no_timing(bad: Any) -> None:
    assert server_timings({"timings": {**LLAMA, "prompt_ms": bad}}) == {}
    assert server_timings({"timings": bad}) == {}


def test_the_cache_counts_in_the_usage() -> None:
    draft = ChatDraft("llamacpp/m")
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 500, "completion_tokens": 10}
    list(draft.take({"choices": [choice], "usage": usage, "timings": LLAMA}))
    reply = draft.reply()
    assert reply.usage == Usage(input=100, cache_read=400, output=10)
    assert reply.timings == {"cached": 400, **FOUND}


def test_a_stopwatch_measures_from_the_first_token() -> None:
    watch = Stopwatch()
    watch.note(Accepted({}, {}))
    assert watch.timings(Usage(input=500, output=10)) == {}
    watch.note(TextDelta("Hi"))
    found = watch.timings(Usage(input=500, output=10))
    assert (found["read"], found["written"], found["by"]) == (500, 10, "clock")
    assert "cached" not in found
    assert found["read_s"] >= 0
