"""Questions of the agent to the user: the tool AskUser."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...tools.ask_user import AskUserTool, QuestionParams
from ...tools.base import Tool
from ..errors import ToolError
from ..events import Answer, FormQuestion, GivenAnswers, Question
from ..loop.denials import Denial
from ..loop.interface import Feature
from ..loop.live_session import LiveSession

NOBODY = "nobody can be asked in this run"
NO_ANSWER = "the answers that were given have none for it"
_HEADING = "[The user's answers to your questions:]"


class QuestionsFeature(Feature):
    """Asks the user, or uses prepared answers from the command line."""

    name = "questions"

    def __init__(self, session: LiveSession, given: GivenAnswers | None = None) -> None:
        super().__init__(session)
        self._given = given

    def tools(self) -> list[Tool[Any]]:
        """Return the tool AskUser."""
        return [AskUserTool(self.ask)]

    async def ask(self, questions: Sequence[QuestionParams]) -> Sequence[str]:
        """Return the answers to questions. They are recorded as a user message after the results of
        this reply. Raises ToolError if nobody answers.
        """
        form = [
            FormQuestion(q.question, [(c.label, c.description) for c in q.choices], q.multiple)
            for q in questions
        ]
        answer = await fill_in(self.session, self._given, form)
        if answer is None:
            raise ToolError(
                f"Not answered: {NOBODY}. Decide yourself where that does no harm, or say in "
                "your answer what you need to know."
            )
        if not answer.allow:
            raise ToolError("The user did not answer. Go on without, or ask in your answer.")
        pairs = zip(questions, answer.words, strict=True)
        lines = [f"{q.question} → {said}" for q, said in pairs]
        self.session.queued_messages.append("\n".join([_HEADING, *lines]))
        return answer.words


async def fill_in(
    session: LiveSession, given: GivenAnswers | None, form: Sequence[FormQuestion]
) -> Answer | None:
    """Return the answers to a form: the prepared ones, else the user's. Return None if nobody
    answers; this counts as a denial.
    """
    known = [given(each.text) if given else None for each in form]
    left = [each for each, answer in zip(form, known, strict=True) if answer is None]
    if not left:
        return Answer(True, words=[answer or "" for answer in known])
    asked = Question("AskUser", left[0].text, {}, "", "", form=left)
    answer = await session.ask(asked) if session.ask else None
    if answer is None:
        why = NO_ANSWER if given else NOBODY
        session.denials.add(*(Denial("AskUser", each.text, "", why, asked=False) for each in left))
        return None
    said = iter(answer.words)
    words = [next(said, "") if each is None else each for each in known]
    return replace(answer, words=words) if answer.allow else answer
