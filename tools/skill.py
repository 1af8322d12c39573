"""Skill: loads the instructions of a skill, which stand in the context from then on."""

from pydantic import Field

from .base import Context, Output, Params, Tool


class SkillParams(Params):
    name: str | None = Field(None, description="The skill. Without it: a list of all skills.")


class SkillTool(Tool[SkillParams]):
    name = "Skill"
    description = (
        "Loads a skill: instructions for a kind of work, which then stand in the context and hold "
        "from there on, also after a compression. Load one that fits before you begin; one that "
        "stands there already need not be loaded again."
    )
    effect = "none"
    Params = SkillParams

    def title(self, params: SkillParams) -> str:
        return params.name or "all"

    def subject(self, params: SkillParams) -> str:
        return params.name or ""

    async def run(self, params: SkillParams, context: Context) -> Output:
        return context.skill(params.name)
