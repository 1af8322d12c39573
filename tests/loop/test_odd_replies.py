"""Replies that are neither an answer nor calls of tools."""

from typing import Any

import pytest

from ctxagent.agent.errors import CtxagentError, LimitReached
from ctxagent.agent.loop.odd_replies import OddReplies, continuation_prompt, raise_if_turn_ends
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Usage

CALL = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}


def reply(stop_reason: str, *blocks: dict[str, Any], output: int = 0) -> Reply:
    return Reply(
        content=list(blocks), usage=Usage(output=output), stop_reason=stop_reason, model="m"
    )


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        (reply("end_turn", text("done")), None),
        (reply("end_turn", text(" \n")), "Your reply was empty."),
        (reply("end_turn"), "Your reply was empty."),
        (reply("pause_turn", text("so far")), ""),
        (reply("max_tokens", text("half"), output=12_345), "at the output limit of 12,345 tokens"),
    ],
)  # fmt: skip
def test_what_the_rest_is_asked_for_with(given: Reply, prompt: str | None) -> None:
    found = continuation_prompt(given)
    if not prompt:
        assert found == prompt
    else:
        assert prompt in (found or "")


@pytest.mark.parametrize(
    ("stop_reason", "message"),
    [("end_turn", "were empty"), ("pause_turn", "paused"), ("max_tokens",
    "were cut off at the output limit")],
)  # fmt: skip
def test_three_in_a_row_end_the_turn(stop_reason: str, message: str) -> None:
    odd = OddReplies()
    odd.count(reply(stop_reason), "go on")
    odd.count(reply(stop_reason), "go on")
    with pytest.raises(CtxagentError, match=f"3 replies in a row {message}") as error:
        odd.count(reply(stop_reason), "go on")
    assert isinstance(error.value, LimitReached) is (stop_reason == "max_tokens")


def test_a_call_begins_the_count_again_and_an_answer_does_not_count() -> None:
    odd = OddReplies()
    for _ in range(3):
        odd.count(reply("end_turn"), "go on")
        odd.count(reply("max_tokens"), "go on")
        odd.count(reply("end_turn", text("x")), None)
        odd.count(reply("tool_use", CALL), "go on")
    odd.count(reply("pause_turn"), "")
    odd.count(reply("pause_turn"), "")
    with pytest.raises(CtxagentError, match="paused"):
        odd.count(reply("pause_turn"), "")


def test_replies_that_end_the_turn() -> None:
    for stop_reason in ("end_turn", "tool_use", "max_tokens", "pause_turn"):
        raise_if_turn_ends(reply(stop_reason))
    with pytest.raises(CtxagentError, match="declined to answer"):
        raise_if_turn_ends(reply("refusal", CALL))
    with pytest.raises(LimitReached, match="context window is full"):
        raise_if_turn_ends(reply("model_context_window_exceeded"))
