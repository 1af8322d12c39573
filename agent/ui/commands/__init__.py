"""Slash commands: everything the user can do in the REPL except talking to the agent."""

# Each module registers its commands. /help lists the commands of a group in import order.
from . import help, session, sessions, rewind, context, memory  # noqa: F401, I001
from . import intent, tasks, hooks  # noqa: F401
from . import login, settings  # noqa: F401
from .command_context import CommandContext
from .completions import completions_for
from .files import added_commands, read_command_files
from .login import ask_key_again, first_start
from .sessions import pick_recording
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
