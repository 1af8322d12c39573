"""AskUser: ask the user one to four questions, with choices or free text as answers."""

from collections.abc import Awaitable, Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from ..agent.errors import ToolError
from .base import Context, Output, Params, Tool, unstated

MAX_QUESTIONS = 4
MAX_CHOICES = 8


class ChoiceParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    label: str = Field(min_length=1, max_length=100)
    description: str = Field("", max_length=300)


class QuestionParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=500)
    choices: list[ChoiceParams] = Field(max_length=MAX_CHOICES, json_schema_extra=unstated)
    multiple: bool = False  # several may be chosen


class AskUserParams(Params):
    questions: list[QuestionParams] = Field(
        min_length=1, max_length=MAX_QUESTIONS, json_schema_extra=unstated
    )


async def no_answers(questions: Sequence[QuestionParams]) -> Sequence[str]:
    raise ToolError("Nobody can be asked here.")


class AskUserTool(Tool[AskUserParams]):
    name = "AskUser"
    description = "Asks the user what only they can decide, not for permission."
    effect = "none"
    Params = AskUserParams

    def __init__(
        self, ask: Callable[[Sequence[QuestionParams]], Awaitable[Sequence[str]]] = no_answers
    ) -> None:
        """`ask` returns the user's answers. It raises ToolError if nobody can answer."""
        self._ask = ask

    def title(self, params: AskUserParams) -> str:
        more = len(params.questions) - 1
        return params.questions[0].question + (f" and {more} more" if more else "")

    async def run(self, params: AskUserParams, context: Context) -> Output:
        answers = await self._ask(params.questions)
        pairs = zip(params.questions, answers, strict=True)
        lines = [f"{each.question} → {answer}" for each, answer in pairs]
        return Output("\n".join(["The user answers:", *lines]), {"answers": list(answers)})
