"""The interface for extensions: Python files that add to the agent.

An extension is a file with a subclass of `Feature`, in `~/.config/ctxagent/extensions/` or in
`.ctxagent/extensions/` of a project. docs/guide/extensions.md has examples.
"""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.compaction.layers.layer import Clear, Layer, LayerState
    from ..agent.config.keys import Setting, one_of
    from ..agent.config.settings import ModelSettings
    from ..agent.context.items import Call, Item, ViewResult
    from ..agent.context.request import Request
    from ..agent.context.view import View
    from ..agent.context.window import Window
    from ..agent.errors import CtxagentError, ModelError, ToolError
    from ..agent.events import Event, Notice, StatusPart, TextDelta, TurnFinished
    from ..agent.extensions.command import Command, Prompt, command
    from ..agent.library.custom_model import CustomModel
    from ..agent.loop.interface import (
        Feature,
        IncomingMessage,
        MakeModel,
        Ruling,
        ToolCall,
        Turn,
        Veto,
        tool,
    )
    from ..agent.loop.live_session import LiveSession
    from ..agent.loop.open_log import SessionRecord
    from ..agent.models.base import Reply
    from ..agent.recordings.builder import RecordedResult, TranscriptBuilder
    from ..agent.session.entries import Entry, Note, Summary, Usage, User
    from ..tools.base import Context, Output, Params, Tool
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "Call",
    "Clear",
    "Command",
    "Context",
    "CtxagentError",
    "CustomModel",
    "Entry",
    "Event",
    "Feature",
    "IncomingMessage",
    "Item",
    "Layer",
    "LayerState",
    "LiveSession",
    "MakeModel",
    "ModelError",
    "ModelSettings",
    "Note",
    "Notice",
    "Output",
    "Params",
    "Prompt",
    "RecordedResult",
    "Reply",
    "Request",
    "Ruling",
    "SessionRecord",
    "Setting",
    "StatusPart",
    "Summary",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolError",
    "TranscriptBuilder",
    "Turn",
    "TurnFinished",
    "Usage",
    "User",
    "Veto",
    "View",
    "ViewResult",
    "Window",
    "command",
    "one_of",
    "tool",
]
