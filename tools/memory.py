"""Memory: read facts about the project that outlast a session, and propose changes to them.

Reading changes nothing. A change needs permission like any other change, and the user sees it as a
diff.
"""

import asyncio
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from ..agent.errors import ToolError
from .base import Context, Effect, Output, Params, Tool


class MemoryDraft(Protocol):
    """A proposed change of a fact."""

    @property
    def diff(self) -> str: ...


class Facts(Protocol):
    """The interface to the facts that the tool uses. Each method raises ToolError."""

    def read(self, name: str | None) -> Output: ...

    def draft(self, params: "MemoryParams") -> MemoryDraft: ...

    def make(self, draft: MemoryDraft) -> Output: ...


class MemoryParams(Params):
    action: Literal["read", "write", "edit", "forget"] = "read"
    name: str | None = Field(
        None, description="Name of the fact, such as build-command. Without it: list all."
    )
    about: str | None = Field(None, description="One line for the index.")
    text: str | None = Field(None, description="write: the fact. edit: the new text.")
    old: str | None = Field(None, description="edit: the text to replace; it must occur once.")


class MemoryTool(Tool[MemoryParams]):
    name = "Memory"
    description = (
        "Facts about this project that outlast the session. Save what a later session needs and "
        "cannot see in the files: decisions, preferences, traps. The user sees each change. No "
        "secrets, and nothing that matters only for this task."
    )
    effect: ClassVar[Effect] = "run"
    Params = MemoryParams

    def __init__(self, facts: Facts | None = None) -> None:
        self._facts = facts

    def subject(self, params: MemoryParams) -> str:
        return params.action

    def title(self, params: MemoryParams) -> str:
        return " ".join(filter(None, [params.action, params.name]))

    def resolve(self, params: MemoryParams) -> tuple[Tool[Any], Any]:
        return (_Reading if params.action == "read" else _Change)(self._facts), params

    async def run(self, params: MemoryParams, context: Context) -> Output:
        tool, resolved = self.resolve(params)
        return await tool.run(resolved, context)

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            raise ToolError("There is no memory here.")
        return self._facts


class _Reading(MemoryTool):
    effect = "none"

    async def run(self, params: MemoryParams, context: Context) -> Output:
        return await asyncio.to_thread(self.facts.read, params.name)


class _Change(MemoryTool):
    """A change of a fact. It writes exactly the draft that the user saw."""

    def __init__(self, facts: Facts | None = None) -> None:
        super().__init__(facts)
        self._shown: tuple[MemoryParams, MemoryDraft] | None = None

    async def preview(self, params: MemoryParams, context: Context) -> dict[str, Any]:
        draft = await asyncio.to_thread(self.facts.draft, params)
        self._shown = params, draft
        return {"diff": draft.diff}

    async def run(self, params: MemoryParams, context: Context) -> Output:
        facts, (shown, draft) = self.facts, self._shown or (None, None)
        if draft is None or shown != params:
            draft = await asyncio.to_thread(facts.draft, params)
        return await asyncio.to_thread(facts.make, draft)
