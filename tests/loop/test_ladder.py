"""The forms of a refused request that are tried, and in which order."""

from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import (
    KeyRefused,
    LimitReached,
    ModelError,
    ModelUnavailable,
    PromptTooLong,
    RequestRejected,
)
from ctxagent.agent.events import Notice, TurnFinished
from ctxagent.agent.loop.ladder import Ladder, refusal_in
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.refusals import may_be_cause
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import CHECK, Assistant, Mask, Note, Usage

from ..support.sessions.conversation import Conversation

POLICY = replace(DEFAULT, clear_when="off", prepare_at=None, summarize_at=None)
DONE = TurnFinished("ok", "Done.")


def refusal(words: str = "no", status: int = 400) -> RequestRejected:
    return RequestRejected(words, status=status)


def down(status: int = 500) -> ModelUnavailable:
    return ModelUnavailable("the server failed", status=status, may_refuse=True)


class Server:
    """Refuse each request that is `too_much`; count the tiny ones."""

    def __init__(self, too_much: object, error: ModelError) -> None:
        self.too_much, self.error, self.sizes = too_much, error, list[int]()

    def __call__(self, request: Request) -> Step:
        self.sizes.append(len(str(request.messages)))
        if self.too_much(request):  # type: ignore[operator]
            return Step(error=self.error)
        return Step(text="Done.")


def asked(project: Path, server: Server, *, thinking: str = "") -> Conversation:
    """A conversation with two large results, and one message more."""
    steps = [
        Step(thinking=thinking, tools=[("Bash", {"command": "seq 4000"})]),
        Step(thinking=thinking, tools=[("Bash", {"command": "seq 4000 8000"})]),
        Step(text="Read."),
    ]
    left = list(steps)
    talk = Conversation(
        project, lambda request: left.pop(0) if left else server(request), policy=POLICY
    )
    assert talk.say("read").status == "ok"
    return talk


def retried(talk: Conversation) -> list[str]:
    return [e.text for e in talk.seen(Notice) if e.text.startswith("retrying")]


@pytest.mark.parametrize(
    "error", [refusal(), refusal("", 422), refusal("x", 404), down(), down(429)]
)
def test_the_context_is_made_smaller_without_a_hint(project: Path, error: ModelError) -> None:
    """A failing server is first asked for something else."""
    server = Server(lambda request: len(str(request.messages)) > 12_000, error)
    talk = asked(project, server)
    assert talk.say("go on") == DONE
    is_failure = isinstance(error, ModelUnavailable)
    checks = [e for e in talk.of(Assistant) if e.purpose == CHECK]
    assert len(checks) == is_failure
    assert len(server.sizes) == 2 + is_failure
    (what,) = retried(talk)
    assert what.startswith("retrying with about ")
    assert talk.agent.model.client.gaps.window == talk.agent.model.learned_window.size


def test_thinking_is_removed_by_a_recorded_edit(project: Path) -> None:
    server = Server(lambda request: request.has_thinking(), refusal("Invalid `signature`"))
    talk = asked(project, server, thinking="Hm.")
    assert talk.say("go on") == DONE
    assert retried(talk) == [
        "retrying without the thinking of earlier replies: Invalid `signature`"
    ]
    (mask,) = talk.of(Mask)
    assert mask.layer == "thinking"
    assert all(target["thinking"] is False for target in mask.targets)
    assert talk.agent.view.thinking_items() == []
    assert talk.agent.model.client.gaps.window is None


def test_without_a_hint_thinking_goes_after_the_size(project: Path) -> None:
    server = Server(lambda request: request.has_thinking(), refusal("???", 418))
    talk = asked(project, server, thinking="Hm.")
    assert talk.say("go on") == DONE
    assert len(server.sizes) <= 3
    assert talk.agent.model.learned_window.size is None, "the size was not the reason"


def test_a_server_that_fails_for_everything_is_retried_and_nothing_is_removed(
    project: Path,
) -> None:
    server = Server(lambda request: True, down())
    talk = asked(project, server)
    finished = talk.say("go on")
    assert finished.error is not None
    assert finished.error["type"] == "ModelUnavailable"
    assert len(server.sizes) == 3, "the request, a tiny one, and the request with more attempts"
    assert talk.of(Mask) == []


def test_all_forms_are_named_when_none_helps(project: Path) -> None:
    """The next compaction is not refused for its size."""
    server = Server(lambda request: bool(request.system), refusal("the tray is full"))
    talk = asked(project, server)
    finished = talk.say("go on")
    assert finished.error is not None
    assert (
        "the tray is full. The request was refused in other forms too: with about"
        in (finished.error["message"])
    )
    assert "/clear" in finished.error["message"]
    note = talk.of(Note)[-1]
    assert note.data["refused"] is True
    assert talk.agent.ledger.was_refused
    server.too_much = lambda request: False
    assert talk.say("again") == DONE
    assert not talk.agent.ledger.was_refused


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (refusal(), True),
        (RequestRejected("never sent"), False),
        (KeyRefused("no", status=401), False),
        (PromptTooLong("long"), True),
        (down(), True),
        (ModelUnavailable("cut"), False),
        (ModelError("other"), False),
    ],
)
def test_which_errors_may_be_due_to_the_request(error: ModelError, *, may_be: bool) -> None:
    assert may_be_cause(error) == may_be


@pytest.mark.parametrize(
    ("reason", "content", "usage", "maximum"),
    [
        (
            "model_context_window_exceeded",
            [{"type": "text", "text": "I"}],
            Usage(90, output=10),
            100,
        ),
        ("model_context_window_exceeded", [], Usage(), None),
        ("max_tokens", [], Usage(90), None),
    ],
)
def test_a_full_window_is_a_refusal(
    reason: str, content: list[dict[str, str]], usage: Usage, maximum: int | None
) -> None:
    found = refusal_in(Reply(content, reason, usage, "m"))
    assert found is not None
    assert found.maximum == maximum


@pytest.mark.parametrize(
    ("reason", "usage"), [("end_turn", Usage(9)), ("max_tokens", Usage(9, output=9))]
)
def test_other_replies_are_no_refusals(reason: str, usage: Usage) -> None:
    assert refusal_in(Reply([], reason, usage, "m")) is None


def test_nothing_is_assumed_after_a_failure(project: Path) -> None:
    talk = Conversation(project, [], policy=POLICY)
    talk.agent.model.learned_window.size = 9_000
    error = Ladder(talk.agent).failure(PromptTooLong("long"))
    assert error.message == "long"
    assert not isinstance(error, LimitReached), "no other form was tried"
    assert talk.agent.model.learned_window.size is None
