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
    description: str = Field(min_length=1, description="Three to seven words")
    prompt: str = Field(
        min_length=1,
        description="What to do, where to look, what is known, what the answer must contain",
    )
    type: str | None = Field(None, description="Not needed with resume")
    model: str | None = Field(None, description="Id of another model, if the user asks for it")
    resume: str | None = Field(None, description="Id of a subagent that continues")
    background: bool = Field(False, description="Returns at once")


async def no_subagents(task: SubagentTask) -> Output:
    raise ToolError("Subagents cannot be started here. Do the work yourself.")


class TaskTool(Tool[TaskParams]):
    name = "Task"
    description = (
        "Gives work to a subagent. It has its own context: however much it reads, only its answer "
        "comes back. Use it for searches through many files, large outputs, a second opinion, and "
        "independent parts (several calls in one message; not on the same files). It does not know "
        "this conversation and cannot ask: put everything it needs into the prompt. The user does "
        "not see its answer. Do not use it for what takes you a few calls."
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
