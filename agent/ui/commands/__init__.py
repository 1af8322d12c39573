"""Slash commands: everything the user can do in the REPL except talking to the agent."""

# Each module registers its commands. /help lists the commands of a group in import order.
from . import help, session, history, sessions, recordings, rewind, context, memory  # noqa: F401, I001
from . import pins, log, intent, preserve, plan, diagnostics, agents, tasks, directories  # noqa: F401
from . import models, login, cost, status, settings, settings_menu, hooks, mcp  # noqa: F401
from .command_context import CommandContext
from .completions import completions_for
from .files import added_commands, read_command_files
from .login import ask_key_again, first_start
from .recordings import pick_recording
from .registry import COMMANDS, Command, parse
from .sessions import pick_session

__all__ = [
    "COMMANDS",
    "Command",
    "CommandContext",
    "added_commands",
    "ask_key_again",
    "completions_for",
    "first_start",
    "parse",
    "pick_recording",
    "pick_session",
    "read_command_files",
]
