"""One reply of a turn: refused requests, and what the agent learns from each refusal."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ModelError, PromptTooLong, RequestRejected
from ctxagent.agent.events import CallStarted, Delta, Notice, TurnFinished
from ctxagent.agent.loop.interface import Feature
from ctxagent.agent.models.base import Abilities, Reply
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, ToolResult, Usage, User

from ..e2e.test_images import png
from ..support.sessions.conversation import Conversation

CALL = {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "a.txt"}}
POLICY = replace(DEFAULT, clear_when="off", prepare_at=None, summarize_at=None)
DONE = TurnFinished("ok", "Done.")


class Counting(ScriptedModel):
    """Says "Done." and reports these token counts."""

    def __init__(self, usage: Usage) -> None:
        super().__init__([Step(text="Done.")])
        self.usage = usage

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        async for delta in super().stream(request):
            yield replace(delta, usage=self.usage) if isinstance(delta, Reply) else delta


class Blind(ScriptedModel):
    """Learns from the first refusal that it does not accept images."""

    can_see = True

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, images=self.can_see)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        try:
            async for delta in super().stream(request):
                yield delta
        except RequestRejected:
            self.can_see = False
            raise


def answering(*errors: ModelError) -> Callable[[Request], Step]:
    """Answer the first requests with these errors, and all others with "Done."."""
    left = list(errors)
    return lambda request: Step(error=left.pop(0)) if left else Step(text="Done.")


def with_result(project: Path, *errors: ModelError, window: int = 200_000) -> Conversation:
    """A conversation with a result of about 10,000 tokens that can be cleared. The server answers
    the next requests with these errors."""
    talk = Conversation(project, answering(*errors), policy=POLICY, window=window)
    talk.agent.open()
    for entry in (
        User(content="read it"),
        Assistant(content=[CALL], usage={}, stop_reason="tool_use", model="m"),
        ToolResult(tool_use_id="c", content="word " * 10_000),
        Assistant(content=[text("Read.")], usage={}, stop_reason="end_turn", model="m"),
    ):
        talk.agent.record(entry)
    return talk


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def notices(talk: Conversation) -> list[str]:
    return [event.text for event in talk.seen(Notice) if event.level == "info"]


def sizes(talk: Conversation) -> list[int]:
    """The characters of each request."""
    return [len(str(request.messages)) for request in talk.model.requests]  # type: ignore[attr-defined]


def too_long(tokens: int | None = None, maximum: int | None = None) -> PromptTooLong:
    return PromptTooLong("prompt is too long", tokens=tokens, maximum=maximum)


@pytest.mark.parametrize(
    ("refusal", "size"),
    [
        (too_long(), None),
        (too_long(11_000, 9_000), 9_000),
        (too_long(11_000, 100), None),  # the size in the refusal is not plausible
        (RequestRejected("the walrus takes at most 9,000 (1234-5)", status=400), 9_000),
        (RequestRejected("", status=422), None),
    ],
)
def test_a_refused_request_is_made_smaller_and_sent_again(
    project: Path, refusal: RequestRejected, size: int | None
) -> None:
    """Without a size in the refusal, the prompt is halved."""
    talk = with_result(project, refusal)
    before = talk.agent.model.current_window().tokens
    assert talk.say("go on") == DONE
    first, *checks, second = sizes(talk)
    assert second < first / 10
    assert len(checks) == (0 if isinstance(refusal, PromptTooLong) else 1), "a tiny request"
    assert [text.startswith("retrying with about ") for text in notices(talk)] == [True]
    assert talk.agent.model.current_window().size == pytest.approx(size or before / 2, rel=0.01)
    assert talk.agent.model.token_correction == 1.0
    assert talk.agent.model.client.gaps.window == talk.agent.model.learned_window.size


def test_a_correction_counts_until_the_request_is_accepted(project: Path) -> None:
    talk = with_result(project, too_long(20_000, 18_000))
    talk.say("go on")
    first, second = talk.seen(CallStarted)
    assert second.number == first.number + 1
    # The server counted more tokens than the estimate, so that the estimate of the rest is larger.
    assert second.tokens > talk.agent.model.current_window().tokens


def test_a_prompt_that_cannot_be_made_smaller_ends_the_turn(project: Path) -> None:
    talk = Conversation(project, answering(too_long()))
    finished = talk.say("hello")
    assert finished.status == "limit"
    assert finished.error is not None
    said = finished.error["message"]
    assert "the server refused the request as too long; its " in said
    assert "tokens (estimated) could not be reduced. The server said: prompt is too long" in said
    assert "start with an empty context (/clear)" in said
    assert len(sizes(talk)) == 1
    assert talk.say("again") == DONE


def test_a_smaller_prompt_that_is_refused_too_ends_the_turn(project: Path) -> None:
    talk = with_result(project, too_long(11_000, 9_000), too_long(2_000, 1_500))
    finished = talk.say("go on")
    assert finished.status == "limit"
    assert finished.error is not None
    assert "reduced from about 1" in finished.error["message"]
    assert "tokens to " in finished.error["message"]
    assert "it was refused again. The server said: " in finished.error["message"]
    # The next turn starts without what was learned.
    model = talk.agent.model
    assert (model.learned_window.size, model.token_correction) == (None, 1.0)
    assert model.current_window().size == 200_000
    assert talk.say("again") == DONE


def test_a_prompt_that_still_does_not_fit_is_tried_once_smaller(project: Path) -> None:
    """Only the server knows whether the window size that it named is correct."""
    talk = with_result(project, too_long(11_000, 9_000))
    assert talk.say("word " * 9_000) == DONE
    first, *_, last = sizes(talk)
    assert last < first
    assert talk.agent.model.learned_window.size is None


@pytest.mark.parametrize(
    ("searches", "told"),
    [
        (
            0,
            "a request of 500,000 tokens was accepted: the window is larger than the assumed "
            "12,000 tokens",
        ),
        (1, ""),  # then the usage counts the prompt several times, and proves nothing
    ],
)
def test_an_accepted_prompt_proves_a_smaller_window_wrong(
    project: Path, searches: int, told: str
) -> None:
    usage = Usage(input=500_000, web_searches=searches)
    talk = Conversation(project, model=Counting(usage))
    talk.agent.model.learned_window.size = 12_000
    assert talk.say("go") == DONE
    assert notices(talk) == [told] * bool(told)
    assert talk.agent.model.learned_window.accepted == (0 if searches else 500_000)


def test_a_learned_window_that_nothing_fits_is_forgotten(project: Path) -> None:
    talk = Conversation(project, answering(), policy=POLICY)
    talk.agent.model.learned_window.size = 2_000
    assert talk.say("word " * 3_000) == DONE
    assert talk.agent.model.learned_window.size is None


def test_other_refusals_end_the_turn(project: Path) -> None:
    talk = Conversation(project, answering(RequestRejected("unknown field", status=400)))
    finished = talk.say("go")
    assert finished.status == "error"
    assert finished.error == {"type": "RequestRejected", "message": "unknown field"}
    refused, check = talk.model.requests  # type: ignore[attr-defined]
    assert (check.system, check.tools, len(check.messages)) == ([], [], 1)
    assert refused.system


def test_a_feature_may_remove_the_cause_of_a_refusal(project: Path) -> None:
    refusals = list[RequestRejected]()

    class Helpful(Feature):
        async def request_refused(self, refusal: RequestRejected) -> bool:
            refusals.append(refusal)
            return True

    refusal = RequestRejected("unknown field", status=400)
    talk = Conversation(project, answering(refusal))
    talk.agent.features.add(Helpful(talk.agent))
    assert talk.say("go") == DONE
    assert refusals == [refusal]


@pytest.mark.parametrize("can_see", [True, False])
def test_images_that_the_server_refuses_are_left_out(project: Path, can_see: bool) -> None:
    (project / "a.png").write_bytes(png(8, 8))
    refusal = RequestRejected("no such image type", status=400)
    steps = [Step(tools=[("Read", {"path": "a.png"})]), Step(error=refusal), Step(text="Done.")]
    talk = Conversation(project, model=ScriptedModel(steps) if can_see else Blind(steps))
    assert talk.say("look") == DONE
    _, refused, accepted = (str(request.messages) for request in talk.model.requests)  # type: ignore[attr-defined]
    assert "base64" in refused
    assert "base64" not in accepted
    told = "retrying without images: no such image type"
    if not can_see:
        told = "scripted accepts no images: requests are adapted from now on (no such image type)"
    assert [event.text for event in talk.seen(Notice)] == [told]
    assert talk.agent.model.takes_images() == can_see
