"""Questions of the agent to the user: the tool AskUser."""

from collections.abc import Sequence
from typing import Any

from ...tools.ask_user import AskUserTool, QuestionParams
from ...tools.base import Tool
from ..errors import ToolError
from ..events import FormQuestion, GivenAnswers, Question
from ..loop.denials import Denial
from ..loop.feature import Feature
from ..loop.session_handle import SessionHandle

NOBODY = "nobody can be asked in this run"
NO_ANSWER = "the answers that were given have none for it"
_HEADING = "[The user's answers to your questions:]"


class QuestionsFeature(Feature):
    """Asks the user, or finds the answers among those given on the command line."""

    name = "questions"

    def __init__(self, handle: SessionHandle, given: GivenAnswers | None = None) -> None:
        super().__init__(handle)
        self._given = given

    def tools(self) -> list[Tool[Any]]:
        """Return the tool AskUser."""
        return [AskUserTool(self.ask)]

    async def ask(self, questions: Sequence[QuestionParams]) -> Sequence[str]:
        """Return the answers to questions. They are recorded as a message of the user after the
        results of this reply. Raises ToolError if nobody answers."""
        handle = self.handle
        given = [self._given(each.question) if self._given else None for each in questions]
        answers = [answer for answer in given if answer is not None]
        if len(answers) < len(questions):
            left = [q for q, answer in zip(questions, given, strict=True) if answer is None]
            form = [
                FormQuestion(q.question, [(c.label, c.description) for c in q.choices], q.multiple)
                for q in left
            ]
            asked = Question("AskUser", form[0].text, {}, "", "", form=form)
            answer = await handle.ask(asked) if handle.ask else None
            if answer is None:
                why = NO_ANSWER if self._given else NOBODY
                denials = (Denial("AskUser", q.question, "", why, asked=False) for q in left)
                handle.denials.add(*denials)
                raise ToolError(
                    f"Not answered: {NOBODY}. Decide yourself where that does no harm, or say in "
                    "your answer what you need to know."
                )
            if not answer.allow:
                raise ToolError("The user did not answer. Go on without, or ask in your answer.")
            said = iter(answer.words)
            answers = [next(said) if each is None else each for each in given]
        lines = [f"{q.question} → {answer}" for q, answer in zip(questions, answers, strict=True)]
        handle.queued_messages.append("\n".join([_HEADING, *lines]))
        return answers
