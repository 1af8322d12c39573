"""Plan: propose a plan to the user, who can edit it, accept it or decline it."""

import re
from collections.abc import Awaitable, Callable, Sequence

from pydantic import Field

from ..agent.errors import ToolError
from ..agent.lazy import regex
from .base import Context, Output, Params, Tool, unstated
from .system.phrasing import one_line

MAX_STEPS = 40
MAX_STEP_CHARS = 300
MAX_PLAN_CHARS = 20_000

_HEADING = regex(r"#{1,6} +steps *#* *$", re.IGNORECASE)
_ANY_HEADING = regex(r"#{1,6} ")
_FENCE = regex(r" {0,3}(```|~~~)")
_ITEM = regex(r"(?:[-*+]|\d{1,3}[.)]) +(?:\[[ xX>]\] +)?(.*\S)")


class PlanParams(Params):
    plan: str = Field(
        min_length=1,
        max_length=MAX_PLAN_CHARS,
        description="Markdown: what, why, where, how to check it",
    )
    steps: list[str] = Field(min_length=1, max_length=MAX_STEPS, json_schema_extra=unstated)


async def no_user_to_agree(plan: str) -> Output:
    raise ToolError("There is nobody here to agree to a plan. Say it in your answer.")


class PlanTool(Tool[PlanParams]):
    name = "Plan"
    description = (
        "Proposes a plan. If the user agrees, plan mode ends and the steps become the todo list."
    )
    effect = "none"
    Params = PlanParams

    def __init__(self, propose: Callable[[str], Awaitable[Output]] = no_user_to_agree) -> None:
        """`propose` shows a plan in Markdown to the user and returns their answer."""
        self._propose = propose

    def title(self, params: PlanParams) -> str:
        return title_of(params.plan)

    async def run(self, params: PlanParams, context: Context) -> Output:
        return await self._propose(plan_text(params.plan, params.steps))


def plan_text(plan: str, steps: Sequence[str]) -> str:
    """Return a plan with its steps at the end, in Markdown that `steps_of` can read."""
    lines = [f"{n}. {one_line(step, MAX_STEP_CHARS)}" for n, step in enumerate(steps, 1)]
    return "\n".join([plan.strip(), "", "## Steps", "", *lines])


def steps_of(text: str) -> list[str]:
    """Return the steps of a plan: the top-level items below its last heading "Steps"; [] without
    such a heading.
    """
    steps, within, fence = list[str](), False, ""
    for line in text.split("\n"):
        if found := _FENCE.match(line):
            fence = "" if fence == found[1] else fence or found[1]
        elif fence:
            continue
        elif _HEADING.match(line):
            steps, within = [], True
        elif _ANY_HEADING.match(line):
            within = False
        elif within and (item := _ITEM.match(line)):
            steps.append(one_line(item[1], MAX_STEP_CHARS))
    return steps


def title_of(text: str) -> str:
    """Return the first line of a plan, shortened."""
    first = next((line for line in text.split("\n") if line.strip(" #\t")), "")
    return one_line(first.strip(" #\t"), MAX_STEP_CHARS // 3)
