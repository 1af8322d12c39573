"""Slash commands: everything the user can do in the REPL except talking to the agent."""

from importlib import import_module
from pkgutil import iter_modules

from ...extensions.command import Command, commands_in
from .command_context import COMMANDS, CommandContext, parse
from .completions import completions_for
from .files import all_commands, read_command_files
from .login import ask_key_again, first_start
from .sessions import pick_recording, pick_session

__all__ = [
    "COMMANDS",
    "Command",
    "CommandContext",
    "all_commands",
    "ask_key_again",
    "completions_for",
    "first_start",
    "parse",
    "pick_recording",
    "pick_session",
    "read_command_files",
]

# Every module adds the commands among its functions. /help lists the commands of a group, and
# the menu all, in this order, then those of other modules.
_FIRST = (
    "help", "context", "session", "sessions", "tasks", "rewind", "memory", "intent", "settings",
    "hooks", "login",
)  # fmt: skip
_modules = dict.fromkeys([*_FIRST, *(each.name for each in iter_modules(__path__))])
for _module in _modules:
    _found = commands_in(vars(import_module(f"{__name__}.{_module}")))
    COMMANDS.update((each.name, each) for each in _found)
