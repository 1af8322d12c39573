"""Todo: each call replaces the list, and the output has counts."""

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.todo import TodoParams, TodoTool


def call(context: Context, *todos: tuple[str, str]) -> Output:
    params = TodoParams(todos=[{"content": c, "status": s} for c, s in todos])
    return asyncio.run(TodoTool().run(params, context))


def test_the_list_is_shown_with_counts_and_kept() -> None:
    context = Context(cwd=Path("/"))
    output = call(
        context, ("Find it", "completed"), ("Fix\n it", "in_progress"), ("Test it", "pending")
    )
    assert output.text == (
        "3 todos: 1 completed, 1 in progress, 1 pending\n[x] Find it\n[>] Fix it\n[ ] Test it"
    )
    assert output.details["todos"] == context.todos
    assert context.todos[1] == {"content": "Fix\n it", "status": "in_progress"}


def test_each_call_replaces_the_list() -> None:
    context = Context(cwd=Path("/"))
    call(context, ("a", "pending"), ("b", "pending"))
    call(context, ("b", "completed"))
    assert context.todos == [{"content": "b", "status": "completed"}]
    assert call(context).text == "The todo list is empty."
    assert context.todos == []


def test_two_steps_at_once_are_refused_and_change_nothing() -> None:
    context = Context(cwd=Path("/"))
    call(context, ("a", "in_progress"))
    with pytest.raises(ToolError, match="2 todos are in_progress: a; b"):
        call(context, ("a", "in_progress"), ("b", "in_progress"))
    assert context.todos == [{"content": "a", "status": "in_progress"}]


def test_bad_items_are_refused() -> None:
    with pytest.raises(ValidationError):
        TodoParams(todos=[{"content": "", "status": "pending"}])
    with pytest.raises(ValidationError):
        TodoParams(todos=[{"content": "a", "status": "done"}])


def test_the_title_counts() -> None:
    params = TodoParams(
        todos=[{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]
    )
    assert TodoTool().title(params) == "1 of 2 done"
