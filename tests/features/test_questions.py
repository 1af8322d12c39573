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
    session: LiveSession, answer: Answer | None, given: GivenAnswers | None = None
) -> tuple[Sequence[str], list[Question]]:
    """Ask a user who gives this answer both questions. Return the answers and the question
    shown.
    """
    put: list[Question] = []

    async def ask(question: Question) -> Answer | None:
        put.append(question)
        return answer

    session.ask = ask
    return asyncio.run(QuestionsFeature(session, given).ask([COLOUR, NAME])), put


def test_the_answers_of_the_user_become_a_message(session: LiveSession) -> None:
    answers, (question,) = asked(session, Answer(allow=True, words=["red", "Wally"]))
    assert answers == ["red", "Wally"]
    assert [form.text for form in question.form] == ["Which colour?", "What name?"]
    assert question.form[0].choices == [("red", "as the logo"), ("green", "")]
    assert session.queued_messages == [
        "[The user's answers to your questions:]\nWhich colour? → red\nWhat name? → Wally"
    ]
    assert session.denials.of_turn() == []


def test_only_what_was_not_answered_beforehand_is_asked(session: LiveSession) -> None:
    given = {"Which colour?": "green"}.get
    answers, (question,) = asked(session, Answer(allow=True, words=["Wally"]), given)
    assert answers == ["green", "Wally"]
    assert [form.text for form in question.form] == ["What name?"]


def test_prepared_answers_to_all_questions_ask_no_user(session: LiveSession) -> None:
    answers, put = asked(session, None, lambda question: question.upper())
    assert (answers, put) == (["WHICH COLOUR?", "WHAT NAME?"], [])


def test_a_user_who_declines_is_no_denial(session: LiveSession) -> None:
    with pytest.raises(ToolError, match="The user did not answer"):
        asked(session, Answer(allow=False))
    assert session.queued_messages == []
    assert session.denials.of_turn() == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "nobody can be asked in this run"),
        ({}.get, "the answers that were given have none for it"),
    ],
)
def test_where_nobody_answers_each_question_is_a_denial(
    session: LiveSession, given: GivenAnswers | None, why: str
) -> None:
    with pytest.raises(ToolError, match="nobody can be asked in this run"):
        asked(session, None, given)
    assert session.denials.unasked() == [
        Denial("AskUser", text, "", why, asked=False) for text in ("Which colour?", "What name?")
    ]
