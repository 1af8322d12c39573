"""Skill: load the instructions of a skill into the context, where they stay."""

from collections.abc import Callable

from pydantic import Field

from ..agent.errors import ToolError
from .base import Context, Output, Params, Tool


class SkillParams(Params):
    name: str | None = Field(None, description="The skill. Without it: a list of all skills.")


def no_skill(name: str | None) -> Output:
    raise ToolError("There are no skills here.")


class SkillTool(Tool[SkillParams]):
    name = "Skill"
    description = (
        "Loads a skill: instructions for a kind of work, which then stand in the context and hold "
        "from there on, also after a compression. Load one that fits before you begin; one that "
        "stands there already need not be loaded again."
    )
    effect = "none"
    Params = SkillParams

    def __init__(self, load: Callable[[str | None], Output] = no_skill) -> None:
        """`load` loads a skill, or lists all for None. It raises ToolError."""
        self._load = load

    def title(self, params: SkillParams) -> str:
        return params.name or "all"

    def subject(self, params: SkillParams) -> str:
        """Return the skill's name without its plugin."""
        return (params.name or "").strip().removeprefix("/").rpartition(":")[2]

    async def run(self, params: SkillParams, context: Context) -> Output:
        return self._load(params.name)
