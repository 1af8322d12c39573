"""Slash commands: what a person can do in the REPL besides talking to the agent."""

# Each module registers its commands. /help lists them in the order of these imports.
from . import session, status, sessions, models, settings, context, cost, log  # noqa: F401, I001
from . import intent, agents, mcp, diagnostics, tasks, pins, plan, preserve, rewind  # noqa: F401
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
