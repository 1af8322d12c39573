"""Front ends: a conversation with its questions, slash commands, screen and transcript."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.cli.conversation import ConversationPlace, conversation_place
    from ..agent.features.attachments import Attached
    from ..agent.ui import signals
    from ..agent.ui.capabilities import detect_for_process, report_rows
    from ..agent.ui.commands import Command, CommandContext, all_commands, parse, read_command_files
    from ..agent.ui.commands.settings import EFFORTS
    from ..agent.ui.compaction_report import receipt
    from ..agent.ui.context_control import answer_request, read_request
    from ..agent.ui.conversation.open_session import Conversation, ConversationServices, RunningTask
    from ..agent.ui.conversation.questions import MODES, Questions
    from ..agent.ui.render.render import dim, render_text, table
    from ..agent.ui.render.tool_calls import SANDBOXED_MEANS
    from ..agent.ui.screen import ChoiceRow, Choices, Menu, Option, Screen
    from ..agent.ui.stream_input import MAX_LINE_BYTES, bounded_lines, event_json, question_json
    from ..agent.ui.tasks import SubagentEvent, Subagents
    from ..agent.ui.transcript import Transcript
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "EFFORTS",
    "MAX_LINE_BYTES",
    "MODES",
    "SANDBOXED_MEANS",
    "Attached",
    "ChoiceRow",
    "Choices",
    "Command",
    "CommandContext",
    "Conversation",
    "ConversationPlace",
    "ConversationServices",
    "Menu",
    "Option",
    "Questions",
    "RunningTask",
    "Screen",
    "SubagentEvent",
    "Subagents",
    "Transcript",
    "all_commands",
    "answer_request",
    "bounded_lines",
    "conversation_place",
    "detect_for_process",
    "dim",
    "event_json",
    "parse",
    "question_json",
    "read_command_files",
    "read_request",
    "receipt",
    "render_text",
    "report_rows",
    "signals",
    "table",
]
