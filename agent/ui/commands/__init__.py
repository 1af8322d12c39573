"""Slash commands: what a person can do in the REPL besides talking to the agent."""

from . import session, others, settings, context, cost, log, work, manual  # isort: skip  (in the order of /help)
from . import agents, pins, preserve, recovery, rewind  # isort: skip
from .offers import fitting
from .registry import COMMANDS, Command, Desk, Offer, parse
from .settings import MODES

__all__ = [
    "COMMANDS",
    "MODES",
    "Command",
    "Desk",
    "Offer",
    "agents",
    "context",
    "cost",
    "fitting",
    "log",
    "manual",
    "offers",
    "others",
    "parse",
    "pins",
    "preserve",
    "recovery",
    "rewind",
    "session",
    "settings",
    "work",
]
