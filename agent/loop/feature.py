"""The interface of features: the parts of the agent that are not the loop.

A feature is a subclass of `Feature` that overrides the methods for the events it needs. The loop
calls the features in a fixed order and knows none of them by name. Extensions use the same
interface.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...tools.base import Output, Tool
from ..errors import RequestRejected
from ..events import TurnFinished
from ..models.base import Reply
from ..session.entries import Content, Entry
from .session_handle import SessionHandle


class Veto(Exception):
    """Raised by a feature to prevent what is about to happen. The reason is shown."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message of the user."""

    content: Content
    attached: Sequence[Any] = ()  # see `features.attachments`
    verbatim: bool = False  # names no files, skills or resources
    mid_turn: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn was started with."""

    schema: Any = None  # see `features.result_schema`


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool with valid arguments."""

    id: str
    tool: str
    title: str  # one line for people
    arguments: Mapping[str, Any]
    cwd: Path


class Feature:
    """A part of the agent. Every method does nothing unless a subclass overrides it.

    Methods may record entries (`self.handle.record`) and raise RecordError when that fails.
    """

    name: ClassVar[str] = ""  # for settings and messages

    def __init__(self, handle: SessionHandle) -> None:
        self.handle = handle

    def tools(self) -> Sequence[Tool[Any]]:
        """Return the tools that this feature adds."""
        return ()

    def first_entries(self) -> Sequence[Entry]:
        """Return entries to record before the first turn. Runs in a thread; may block."""
        return ()

    async def prepare(self) -> None:
        """Get ready before the list of tools is recorded, once."""

    async def session_started(self) -> None:
        """Act after the first entries are recorded, once."""

    async def session_ended(self) -> None:
        """Act after the log is closed."""

    async def turn_started(self, turn: Turn) -> None:
        """Act before the first model call of a turn."""

    async def message_received(self, message: IncomingMessage) -> Content | None:
        """Return a replacement for a message of the user before it is recorded; None keeps it.
        Raises Veto."""
        return None

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Act after a message of the user is recorded."""

    async def before_call(self) -> None:
        """Act before a model call. Raises Veto to end the turn."""

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Act on a recorded reply. For a final one, return a notice with which the turn goes on
        ("" for none); None lets it end."""
        return None

    async def before_tool(self, call: ToolCall) -> Mapping[str, Any] | None:
        """Return other arguments for a call that is about to run; None keeps them. Raises Veto."""
        return None

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output | None:
        """Return another output of a call before it is recorded; None keeps it."""
        return None

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Act after the output of a call is recorded."""

    async def step_finished(self) -> str | None:
        """Act after a reply and the results of its calls are recorded, if the turn goes on. Return
        a text to end the turn with that as the answer."""
        return None

    async def request_refused(self, refusal: RequestRejected) -> bool:
        """Return True if the request is worth sending again, after a change of the view."""
        return False

    def recorded(self, entry: Entry) -> None:
        """Act on an entry of the log. Must be quick."""

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        """Act before a summary is made. Raises Veto."""

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        """Act after a summary is recorded."""

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return entries to add after a summary. `staying` has the numbers of the entries that
        stay in the view."""
        return ()

    async def turn_ended(self, finished: TurnFinished) -> None:
        """Act after the end of a turn is recorded."""

    async def close(self) -> None:
        """Release what the feature holds, before the log is closed."""
