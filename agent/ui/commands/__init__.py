"""Slash commands: what a person can do in the REPL besides talking to the agent."""

# Each module registers its commands. /help lists those of a group in the order of these imports.
from . import help, session, history, sessions, rewind, context, memory  # noqa: F401, I001
from . import pins, log, intent, preserve, plan, agents, jobs, models, cost, status  # noqa: F401
from . import settings, settings_menu, hooks, mcp  # noqa: F401
from .command_context import CommandContext
from .completions import completions_for
from .files import added_commands, read_command_files
from .registry import COMMANDS, Command, parse
from .sessions import pick_session

__all__ = [
    "COMMANDS",
    "Command",
    "CommandContext",
    "added_commands",
    "completions_for",
    "parse",
    "pick_session",
    "read_command_files",
]
