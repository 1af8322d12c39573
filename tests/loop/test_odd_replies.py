"""Replies that are neither an answer nor calls: cut off, empty, paused or refused."""

import json
from pathlib import Path

import pytest

from ctxagent.agent.errors import CtxagentError, LimitReached
from ctxagent.agent.events import (
    TurnFinished,
)
from ctxagent.agent.loop.turn import OddReplies, continuation_prompt, raise_if_turn_ends
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, Usage, User

from ..support.sessions.conversation import Conversation


def test_text_cut_off_at_the_output_limit_goes_on(project: Path) -> None:
    talk = Conversation(
        project, [Step(text="one, two,", stop_reason="max_tokens"), Step(text="three")]
    )
    assert talk.say("count") == TurnFinished("ok", "three")
    assert "cut off at the output limit" in talk.of(User)[1].content


@pytest.mark.parametrize(
    ("step", "status", "calls", "told"),
    [
        (Step(text="more", stop_reason="max_tokens"), "limit", 3, "cut off at the output limit"),
        (Step(), "error", 3, "replies in a row were empty"),
        (Step(text=" \n"), "error", 3, "replies in a row were empty"),
        (Step(text="no", stop_reason="refusal"), "error", 1, "declined to answer"),
        (Step(text="x", stop_reason="pause_turn"), "error", 3, "replies in a row paused"),
        (Step(text="x", stop_reason="model_context_window_exceeded"), "limit", 1, "window is full"),
    ],
)
def test_replies_that_are_no_answer_end_the_turn_and_the_next_works(
    project: Path, step: Step, status: str, calls: int, told: str
) -> None:
    talk = Conversation(project, [step] * calls + [Step(text="fine")])
    if step.stop_reason == "pause_turn":
        talk.model.check = None  # type: ignore[attr-defined]  # the last message is the model's
    finished = talk.say("go")
    assert finished.status == status
    assert finished.error is not None
    assert told in finished.error["message"]
    assert talk.say("and now?") == TurnFinished("ok", "fine")


def test_a_refused_reply_stays_in_the_log_and_leaves_the_context(project: Path) -> None:
    talk = Conversation(project, [Step(text="I won't", stop_reason="refusal"), Step(text="yes")])
    talk.say("first")
    talk.say("second")
    assert "I won't" in json.dumps([e.content for e in talk.of(Assistant)])
    sent = talk.model.requests[-1].messages  # type: ignore[attr-defined]
    assert [m["role"] for m in sent] == ["user"]
    assert "I won't" not in json.dumps(sent)


def test_an_empty_reply_is_asked_for_again(project: Path) -> None:
    talk = Conversation(project, [Step(), Step(text="done")])
    assert talk.say("go") == TurnFinished("ok", "done")


def test_a_paused_turn_goes_on_from_where_it_was(project: Path) -> None:
    talk = Conversation(project, [Step(text="so", stop_reason="pause_turn"), Step(text="far")])
    talk.model.check = None  # type: ignore[attr-defined]  # the last message is the assistant's
    assert talk.say("go") == TurnFinished("ok", "far")
    last = talk.model.requests[-1].messages[-1]  # type: ignore[attr-defined]
    assert (last["role"], last["content"][0]["text"]) == ("assistant", "so")


def reply(text: str = "", reason: str = "end_turn", *, call: bool = False) -> Reply:
    content = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": "c", "name": "Todo", "input": {}}] if call else []
    return Reply(content, reason, Usage(output=1_234), "m")


@pytest.mark.parametrize(
    ("odd", "prompt"),
    [
        (reply("Done."), None),
        (reply(" \n"), "Your reply was empty."),
        (reply(), "Your reply was empty."),
        (reply("one,", "max_tokens"), "Your reply was cut off at the output limit of 1,234 tokens"),
        (reply("so", "pause_turn"), ""),
    ],
)
def test_each_odd_reply_has_its_prompt(odd: Reply, prompt: str | None) -> None:
    found = continuation_prompt(odd)
    assert found == prompt if not prompt else str(found).startswith(prompt)


def test_only_odd_replies_in_a_row_count() -> None:
    odd = OddReplies()
    for _ in range(4):
        odd.count(reply(), "more")
        odd.count(reply(), "more")
        odd.count(reply("x", call=True), None)
    odd.count(reply("Done?"), None)  # goes on by a feature
    assert odd.count(reply(), "more") is None
    assert odd.count(reply(), "more") is None
    error = odd.count(reply(), "more")
    assert isinstance(error, CtxagentError)
    assert error.message == "3 replies in a row were empty"
    assert odd.count(reply(), "more") is None


def test_three_cut_replies_are_a_limit() -> None:
    odd, cut = OddReplies(), reply("x", "max_tokens")
    odd.count(cut, "more")
    odd.count(cut, "more")
    error = odd.count(cut, "more")
    assert isinstance(error, LimitReached)
    assert "cut off at the output limit" in error.message
    assert "--max-tokens" in error.hint


def test_a_refusal_by_the_model_ends_the_turn() -> None:
    raise_if_turn_ends(reply("x", "max_tokens"))
    with pytest.raises(CtxagentError, match="declined to answer"):
        raise_if_turn_ends(reply("no", "refusal", call=True))
