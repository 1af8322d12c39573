"""Questions that the agent puts to the person."""

from collections.abc import Sequence
from typing import Protocol

from ...tools.ask_user import QuestionParams
from ..errors import ToolError
from ..events import Ask, FormQuestion, GivenAnswers, Question
from ..session.entries import Entry, User
from .tool_calls import Denial

NOBODY = "nobody can be asked in this run"
NO_ANSWER = "the answers that were given have none for it"
_HEADING = "[The user's answers to your questions:]"


class Asker(Protocol):
    """A conversation as its questions need it; `AgentState` has these members."""

    denials: list[Denial]
    unrecorded_answers: list[str]

    @property
    def ask(self) -> Ask | None: ...

    @property
    def answers(self) -> GivenAnswers | None: ...

    def record(self, entry: Entry) -> Entry: ...


async def ask_person(agent: Asker, questions: Sequence[QuestionParams]) -> Sequence[str]:
    """Return the answers to questions: those given beforehand, else the person's. They are recorded
    as the person's words behind the results of this reply. Raises ToolError where nobody answers.
    """
    given = [agent.answers(each.question) if agent.answers else None for each in questions]
    answers = [answer for answer in given if answer is not None]
    if len(answers) < len(questions):
        open_questions = [q for q, answer in zip(questions, given, strict=True) if answer is None]
        form = [
            FormQuestion(q.question, [(c.label, c.description) for c in q.choices], q.multiple)
            for q in open_questions
        ]
        asked = Question("AskUser", form[0].text, {}, "", "", form=form)
        answer = await agent.ask(asked) if agent.ask else None
        if answer is None:
            why = NO_ANSWER if agent.answers else NOBODY
            for each in open_questions:
                agent.denials.append(Denial("AskUser", each.question, "", why, asked=False))
            raise ToolError(
                f"Not answered: {NOBODY}. Decide yourself where that does no harm, or say in your "
                "answer what you need to know."
            )
        if not answer.allow:
            raise ToolError("The user did not answer. Go on without, or ask in your answer.")
        said = iter(answer.words)
        answers = [next(said) if each is None else each for each in given]
    lines = [f"{q.question} → {answer}" for q, answer in zip(questions, answers, strict=True)]
    agent.unrecorded_answers.append("\n".join([_HEADING, *lines]))
    return answers


def record_answers(agent: Asker) -> None:
    """Record the answers as the person's words. Raises RecordError."""
    while agent.unrecorded_answers:
        text = agent.unrecorded_answers[0]
        agent.record(User(content=text, mid_turn=True))
        del agent.unrecorded_answers[0]
