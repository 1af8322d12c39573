"""The groups of slash commands, in the order in which /help shows them."""

from typing import Literal, get_args

CommandGroup = Literal[
    "conversation", "context", "files and work", "model and cost", "setup", "your own"
]
GROUPS: tuple[CommandGroup, ...] = get_args(CommandGroup)
OWN: CommandGroup = "your own"  # commands from files, plugins, servers and extensions


def group_named(name: str) -> CommandGroup:
    """Return the group of this name, OWN for an unknown name."""
    return next((group for group in GROUPS if group == name), OWN)
