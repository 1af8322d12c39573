"""What happens if the model repeats itself."""

import time
from pathlib import Path

import pytest

from ctxagent.agent.events import Accepted, Answer, Notice, Retrying, TextDelta, ThinkingDelta
from ctxagent.agent.features.loops import LoopsFeature
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.loop.stuck import GO_ON
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, End, User

from ..support.sessions.conversation import Conversation, answering

FAILS = Step(tools=[("Bash", {"command": "ls nothing-there"})])
LISTS = Step(tools=[("Bash", {"command": "ls"})])
SENTENCE = "Let me look at the file again and think about it. "
SAYS_AGAIN = Step(text=f"I see. {SENTENCE * 400}")


def talk_with(project: Path, steps: list[Step], **more: object) -> Conversation:
    talk = Conversation(project, steps, **more)  # type: ignore[arg-type]
    talk.agent.features.add(LoopsFeature(talk.agent))
    return talk


def notices(talk: Conversation) -> list[str]:
    return [str(entry.content) for entry in talk.of(User) if entry.source == "notice"]


def test_a_repeated_call_is_told_and_then_ends_the_turn(project: Path) -> None:
    talk = talk_with(project, [FAILS] * 9)
    finished = talk.say("go")
    assert finished.status == "limit"
    assert finished.error is not None
    assert finished.error["type"] == "LimitReached"
    said = "the model repeats itself: Bash ls nothing-there, 6 times with the same result"
    assert finished.error["message"].startswith(said)
    assert len(talk.of(Assistant)) == 6
    (told,) = notices(talk)
    assert "You made the same call 3 times in a row" in told
    assert '- Bash {"command": "ls nothing-there"}' in told
    assert any("is told that it repeats itself: Bash" in each.text for each in talk.seen(Notice))
    assert talk.of(End)[0].status == "limit"


def test_a_model_that_stops_repeating_continues(project: Path) -> None:
    talk = talk_with(project, [FAILS] * 4 + [LISTS, Step(text="There is none.")])
    assert talk.say("go").status == "ok"
    assert len(notices(talk)) == 1


def test_the_user_lets_it_go_on_and_is_asked_again(project: Path) -> None:
    ask, questions = answering(
        Answer(True, words=[GO_ON]), Answer(True, words=["Use find."]), Answer(False)
    )
    talk = talk_with(project, [FAILS] * 30, ask=ask)
    assert talk.say("go").status == "limit"
    assert len(questions) == 3
    assert len(talk.of(Assistant)) == 18
    assert "Use find." in [entry.content for entry in talk.of(User)]


@pytest.mark.parametrize("kept", [2, 4])
def test_a_resume_goes_on_counting(project: Path, kept: int) -> None:
    """The first process is killed after some calls, so its end is not recorded."""
    first = talk_with(project, [FAILS] * kept)
    first.say("go")  # the script ends with an error
    first.agent.log.close()
    second = talk_with(project, [FAILS] * 9)
    finished = second.say("go on")
    assert finished.status == "limit"
    assert len([e for e in second.of(Assistant) if e.stop_reason == "tool_use"]) == 6
    assert len(notices(second)) == 1


def test_the_next_turn_after_the_limit_has_room_again(project: Path) -> None:
    talk = talk_with(project, [FAILS] * 6 + [FAILS] * 2 + [Step(text="Now I see.")])
    assert talk.say("go").status == "limit"
    assert talk.say("again").status == "ok"


def test_the_cost_of_a_call_does_not_grow(project: Path) -> None:
    """Counts the entries read, not time: only the end of the log is read, and only once."""
    steps = [Step(tools=[("Bash", {"command": f"echo {n}"})]) for n in range(40)]
    talk = talk_with(project, [*steps, Step(text="Done.")])
    reads = []
    entries = talk.agent.log.entries

    def counted() -> object:
        reads.append(time.monotonic())
        return entries()

    talk.agent.log.entries = counted  # type: ignore[method-assign, assignment]
    assert talk.say("go").status == "ok"
    assert len(reads) == 1


def test_a_reply_that_repeats_its_text_is_stopped(project: Path) -> None:
    talk = talk_with(project, [SAYS_AGAIN, Step(text="Done.")])
    assert talk.say("go").text == "Done."
    first = talk.of(Assistant)[0]
    assert first.stop_reason == "repetition"
    assert f"I see. {SENTENCE}".startswith(first.content[0]["text"])
    assert "think about it" in first.content[0]["text"]
    assert first.usage["output"] > 500
    (told,) = notices(talk)
    assert told.startswith("Your reply was stopped because it repeated this text over and over:\n")
    assert "Let me look at the file again and think about it" in told


def test_three_stopped_replies_end_the_turn(project: Path) -> None:
    talk = talk_with(project, [SAYS_AGAIN] * 9)
    finished = talk.say("go")
    assert finished.status == "limit"
    assert finished.error is not None
    assert "3 replies in a row repeated the same text" in finished.error["message"]
    assert len(talk.of(Assistant)) == 3


def test_thinking_that_repeats_is_stopped(project: Path) -> None:
    talk = talk_with(project, [Step(thinking=SENTENCE * 400, text="x"), Step(text="Done.")])
    assert talk.say("go").text == "Done."
    assert talk.of(Assistant)[0].content == []


def test_a_new_attempt_or_reply_begins_afresh(session: LiveSession) -> None:
    loops, part = LoopsFeature(session), SENTENCE * 50
    assert not loops.reply_streamed(TextDelta(part))
    assert not loops.reply_streamed(ThinkingDelta(part))
    for begin in (Accepted({}), Retrying(1, None, 1.0, "reset")):
        loops.reply_streamed(begin)
        assert not loops.reply_streamed(TextDelta(part))
    assert loops.reply_streamed(TextDelta(part)) == SENTENCE
