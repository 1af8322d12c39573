"""Questions of the agent: answered by the user, in advance, or not at all."""

import asyncio
from collections.abc import Sequence

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.events import Answer, GivenAnswers, Question
from ctxagent.agent.features.questions import QuestionsFeature
from ctxagent.agent.loop.denials import Denial
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.tools.ask_user import ChoiceParams, QuestionParams

COLOUR = QuestionParams(
    question="Which colour?",
    choices=[ChoiceParams(label="red", description="as the logo"), ChoiceParams(label="green")],
)
NAME = QuestionParams(question="What name?", choices=[])


def asked(
    handle: LiveSession, answer: Answer | None, given: GivenAnswers | None = None
) -> tuple[Sequence[str], list[Question]]:
    """Ask a user who gives this answer both questions. Return the answers and the question
    shown.
    """
    put: list[Question] = []

    async def ask(question: Question) -> Answer | None:
        put.append(question)
        return answer

    handle.ask = ask
    return asyncio.run(QuestionsFeature(handle, given).ask([COLOUR, NAME])), put


def test_the_answers_of_the_user_become_a_message(handle: LiveSession) -> None:
    answers, (question,) = asked(handle, Answer(allow=True, words=["red", "Wally"]))
    assert answers == ["red", "Wally"]
    assert [form.text for form in question.form] == ["Which colour?", "What name?"]
    assert question.form[0].choices == [("red", "as the logo"), ("green", "")]
    assert handle.queued_messages == [
        "[The user's answers to your questions:]\nWhich colour? → red\nWhat name? → Wally"
    ]
    assert handle.denials.of_turn() == []


def test_only_what_was_not_answered_beforehand_is_asked(handle: LiveSession) -> None:
    given = {"Which colour?": "green"}.get
    answers, (question,) = asked(handle, Answer(allow=True, words=["Wally"]), given)
    assert answers == ["green", "Wally"]
    assert [form.text for form in question.form] == ["What name?"]


def test_prepared_answers_to_all_questions_ask_no_user(handle: LiveSession) -> None:
    answers, put = asked(handle, None, lambda question: question.upper())
    assert (answers, put) == (["WHICH COLOUR?", "WHAT NAME?"], [])


def test_a_user_who_declines_is_no_denial(handle: LiveSession) -> None:
    with pytest.raises(ToolError, match="The user did not answer"):
        asked(handle, Answer(allow=False))
    assert handle.queued_messages == []
    assert handle.denials.of_turn() == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "nobody can be asked in this run"),
        ({}.get, "the answers that were given have none for it"),
    ],
)
def test_where_nobody_answers_each_question_is_a_denial(
    handle: LiveSession, given: GivenAnswers | None, why: str
) -> None:
    with pytest.raises(ToolError, match="nobody can be asked in this run"):
        asked(handle, None, given)
    assert handle.denials.unasked() == [
        Denial("AskUser", text, "", why, asked=False) for text in ("Which colour?", "What name?")
    ]
