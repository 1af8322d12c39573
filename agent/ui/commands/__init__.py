"""Slash commands: what a person can do in the REPL besides talking to the agent."""

from . import session, settings, context, work, agents, pins, preserve, recovery, rewind  # isort: skip  (in the order of /help)
from .registry import COMMANDS, Command, Desk, parse
from .settings import MODES

__all__ = [
    "COMMANDS",
    "MODES",
    "Command",
    "Desk",
    "agents",
    "context",
    "parse",
    "pins",
    "preserve",
    "recovery",
    "rewind",
    "session",
    "settings",
    "work",
]
