"""Replies that are neither an answer nor calls: cut off, empty, paused, refused."""

import json
from pathlib import Path

import pytest

from ctxagent.agent.events import (
    TurnFinished,
)
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, User

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
