"""Todo: the model's own list of steps. Each call replaces the whole list."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ..agent.errors import ToolError
from .base import Context, Output, Params, Tool

MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoItem(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: str = Field(min_length=1)
    status: Literal["pending", "in_progress", "completed"]


class TodoParams(Params):
    todos: list[TodoItem]


class TodoTool(Tool[TodoParams]):
    name = "Todo"
    description = (
        "Keeps a list for work of three or more steps. Give the whole list each time, one step "
        "in_progress."
    )
    effect = "none"
    Params = TodoParams

    def title(self, params: TodoParams) -> str:
        done = sum(item.status == "completed" for item in params.todos)
        return f"{done} of {len(params.todos)} done"

    async def run(self, params: TodoParams, context: Context) -> Output:
        todos = [{"content": item.content, "status": item.status} for item in params.todos]
        active = [t["content"] for t in todos if t["status"] == "in_progress"]
        if len(active) > 1:
            raise ToolError(
                f"{len(active)} todos are in_progress: {'; '.join(active)}. Leave one of them so, "
                "set the others to pending or completed. The list is as it was."
            )
        context.todos[:] = todos
        return Output(_render(todos), {"todos": todos})


def _render(todos: list[dict[str, str]]) -> str:
    if not todos:
        return "The todo list is empty."
    counts = {status: sum(t["status"] == status for t in todos) for status in MARKS}
    head = (
        f"{len(todos)} todos: {counts['completed']} completed, "
        f"{counts['in_progress']} in progress, {counts['pending']} pending"
    )
    steps = [f"{MARKS[t['status']]} {' '.join(t['content'].split())}" for t in todos]
    return "\n".join([head, *steps])
