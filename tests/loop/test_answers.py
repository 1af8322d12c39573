"""Which final replies are answers, also after a notice about repeated calls."""

from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.events import Notice
from ctxagent.agent.features.loops import LoopsFeature
from ctxagent.agent.loop.answers import ASK_FOR_ANSWER, ASK_FOR_CALL, MAX_TASK_TOKENS
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import User

from ..support.sessions.conversation import Conversation

FAILS = Step(tools=[("Bash", {"command": "ls nothing-there"})])
LISTS = Step(tools=[("Bash", {"command": "ls"})])
FIXED = Step(text="I have fixed the function.")
COPY = Step(text="[You made the same call 3 times in a row, with the same result each time.]")
PLAN = "Let me look at all the files of the project first."


def talk_with(project: Path, steps: list[Step]) -> Conversation:
    talk = Conversation(project, steps)
    talk.agent.features.add(LoopsFeature(talk.agent))
    return talk


def notices(talk: Conversation) -> list[str]:
    return [str(entry.content) for entry in talk.of(User) if entry.source == "notice"]


def checks(talk: Conversation) -> list[str]:
    """Return the warnings about an answer that follows repeated calls."""
    return [each.text for each in talk.seen(Notice) if "Check the answer." in each.text]


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([FAILS] * 3 + [FIXED], "limit"),
        ([FAILS] * 3 + [Step(text="ls says: No such file or directory")], "ok"),
        ([FAILS] * 3 + [Step(tools=[("Bash", {"command": "ls gone"})]), FIXED], "limit"),
        ([FAILS, LISTS] * 3 + [LISTS, FIXED], "limit"),
        ([LISTS] * 3 + [Step(text="It has kept.py.")], "ok"),
        ([LISTS] * 3 + [Step(text="Yes, it is there.")], "ok"),
        ([LISTS] * 3 + [FAILS, FAILS, Step(text="Yes, it is there.")], "ok"),
        ([Step(text=PLAN, tools=LISTS.tools)] * 3 + [Step(text=PLAN)], "limit"),
        ([LISTS] * 3 + [Step(text="Which files are there in the project?")], "limit"),
        ([Step(text="It has kept.py and no more.", tools=LISTS.tools)] * 3
         + [Step(text="It has kept.py and no more.")], "ok"),
    ],
)  # fmt: skip
def test_an_answer_after_the_notice_must_be_one(
    project: Path, steps: list[Step], status: str
) -> None:
    """A reply that no result supports does not make the turn a success."""
    (project / "kept.py").touch()
    talk = talk_with(project, steps)
    finished = talk.say("Which files are there in the project?")
    assert (finished.status, finished.text) == (status, steps[-1].text)
    assert len(checks(talk)) == (status == "ok")
    error = dict(finished.error or {})
    assert ("without an answer after it had repeated itself" in str(error)) is (status == "limit")


async def _yes(*_: object) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("steps", "policy", "asks"),
    [
        ([FIXED, LISTS, FIXED], PRESETS["small"], 1),
        ([FIXED, FIXED], PRESETS["small"], 1),
        ([LISTS, FIXED], PRESETS["small"], 0),
        ([FIXED], DEFAULT, 0),
    ],
)
def test_a_small_model_that_made_no_call_is_asked_for_one(
    project: Path, steps: list[Step], policy: Policy, asks: int
) -> None:
    """Once in a turn, if no user can do it."""
    talk = Conversation(project, steps, policy=policy)
    assert talk.say("Fix the function.").status == "ok"
    assert notices(talk) == [ASK_FOR_CALL.format(task="Fix the function.")] * asks
    answers = [step for step in steps if step == FIXED]
    watched = Conversation(
        project, [FIXED] * len(answers), policy=policy, ask=_yes, session="watched"
    )
    assert watched.say("Fix the function.").status == "ok"
    assert not notices(watched)


@pytest.mark.parametrize(("words", "status"), [("{task}", "ok"), (ASK_FOR_CALL, "limit")])
def test_an_answer_in_the_words_of_the_task_is_no_copy(
    project: Path, words: str, status: str
) -> None:
    """The notice that asks for a call has the task."""
    task = "Does kept.py have the function that reads the table?"
    said = Step(text=words.format(task=task))
    talk = Conversation(project, [FIXED, said, said], policy=PRESETS["small"])
    assert talk.say(task).status == status


def test_a_long_task_is_not_repeated_whole(project: Path) -> None:
    talk = Conversation(project, [FIXED, FIXED], policy=PRESETS["small"])
    talk.say("Fix it: " + "many words " * 5_000)
    (notice,) = notices(talk)
    assert len(notice) < 8 * MAX_TASK_TOKENS


def test_another_successful_call_needs_no_check(project: Path) -> None:
    talk = talk_with(project, [*[FAILS] * 3, LISTS, FIXED])
    assert talk.say("go").status == "ok"
    assert not checks(talk)


def test_a_copy_of_a_notice_is_no_answer(project: Path) -> None:
    talk = talk_with(project, [*[LISTS] * 3, COPY, COPY])
    finished = talk.say("go")
    assert finished.status == "limit"
    assert "repeated a text of the program" in str(finished.error)
    assert notices(talk)[1:] == [ASK_FOR_ANSWER]


def test_an_answer_after_the_copy_of_a_notice_counts(project: Path) -> None:
    talk = talk_with(project, [*[LISTS] * 3, COPY, Step(text="It has no files.")])
    assert talk.say("go").text == "It has no files."


def test_the_next_turn_is_not_judged_by_the_notice_of_the_last(project: Path) -> None:
    talk = talk_with(project, [*[FAILS] * 3, FIXED, FIXED])
    assert [talk.say("go").status for _ in range(2)] == ["limit", "ok"]
