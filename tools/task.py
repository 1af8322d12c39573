"""Task: give work to a subagent, which has its own context and returns one answer.

The tool does not depend on subagents: it receives their types and a function that runs one.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import Field

from ..agent.errors import ToolError
from .base import Context, Output, Params, SubagentTask, Tool

MAX_ANSWER_TOKENS = 2_000  # limit of an answer in the context


class TaskParams(Params):
    description: str = Field(min_length=1)  # a few words
    prompt: str = Field(
        min_length=1,
        description="The task, what is known, what the answer must contain",
    )
    type: str | None = None  # not needed with resume
    model: str | None = Field(None, description="If the user asks for one")
    resume: str | None = Field(None, description="Id of a subagent")
    background: bool = False  # return at once


async def no_subagents(task: SubagentTask) -> Output:
    raise ToolError("Subagents cannot be started here. Do the work yourself.")


class TaskTool(Tool[TaskParams]):
    name = "Task"
    description = (
        "Gives work to a subagent: searches in many files, large outputs, a second opinion, "
        "independent parts (not on the same files). Only its answer comes back, not shown to the "
        "user. It does not know this conversation and cannot ask. Not for a few calls."
    )
    effect = "none"  # each call of the subagent is judged and recorded separately
    max_result_tokens = MAX_ANSWER_TOKENS
    Params = TaskParams

    def __init__(
        self,
        types: Sequence[tuple[str, str]] = (),
        spawn: Callable[[SubagentTask], Awaitable[Output]] = no_subagents,
    ) -> None:
        """`types` has the name and the purpose of each type. `spawn` runs a subagent."""
        self._types, self._spawn = types, spawn

    def subject(self, params: TaskParams) -> str:
        """Return the type without its plugin. For a resumed subagent, its ID contains the type."""
        if params.resume:
            return params.resume.rpartition("-")[0]
        return (params.type or "").rpartition(":")[2]

    def title(self, params: TaskParams) -> str:
        line = " ".join(params.description.split())
        return f"{params.resume or params.type or ''}: {line}".removeprefix(": ")

    def schema(self) -> dict[str, Any]:
        listed = [f"- {name}: {what}" for name, what in self._types]
        text = "\n".join([self.description, "Types:", *listed]) if listed else self.description
        return {**Tool.schema(self), "description": text}

    async def run(self, params: TaskParams, context: Context) -> Output:
        if params.resume is None and params.type is None:
            raise ToolError("Give a type, or the id of a subagent to resume.")
        return await self._spawn(
            SubagentTask(
                description=" ".join(params.description.split()),
                prompt=params.prompt,
                type=params.type,
                model=params.model,
                resume=params.resume,
                background=params.background,
            )
        )
