"""The registry of slash commands, from which help, completion and dispatch follow.

A command is a coroutine that takes a `CommandContext` and the words after its name. It prints
through the context and raises CtxagentError for what cannot be done. Commands marked `anytime` only
look, so they run at once even while a turn runs.
"""

import difflib
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ...errors import UsageError
from ...extensions.command_groups import CommandGroup
from ...lazy import dataclass, regex
from ..habits import habits
from ..screen import Offer
from .command_context import CommandContext

QUICK_COMMANDS = {  # words that are a command when nothing else is typed
    "compress": "/compact",
    "context status": "/context status",
    "compression log": "/log compaction",
    "show session intent": "/intent",
    **dict.fromkeys(("exit", "quit", ":q", ":q!", ":wq"), "/exit"),
    **dict.fromkeys(("help", "?"), "/help"),
}
# One line after a #: no ref (#12), no Markdown heading (##), no script (#!).
_NOTE = regex(r"#[ \t]*((?![ \t#!]|-?\d).*)")
# "recover" and one to four words, if they do not begin the way a sentence would go on.
_TOPIC = regex(
    r"recover (?!(?:the|a|an|all|my|our|your|this|that|these|it|from|what|and)\b)"
    r"((?:\S+ ){0,3}\S*[^\s.!?])",
    re.IGNORECASE,
)

Complete = Callable[[CommandContext], Awaitable[Sequence[Offer]]]
Run = Callable[[CommandContext, str], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command."""

    name: str  # without the slash
    help: str
    run: Run | None  # None where the words themselves go to the model
    group: CommandGroup
    argument: str = ""  # what may follow the name, as help shows it: [ID]
    anytime: bool = False  # whether it may run while a turn runs
    complete: Complete | None = None  # gives completions for the argument


COMMANDS: dict[str, Command] = {}
NO_MORE: Mapping[str, Command] = {}


def parse(words: str, more: Mapping[str, Command] = NO_MORE) -> tuple[Command, str] | None:
    """Return the command that the words call, and its argument; None when they are for the model.
    `more` are commands next to our own.

    A command may be shortened as long as only one begins so, and names of other agents are aliases.
    Raises UsageError for an unknown one.
    """
    commands = {**more, **COMMANDS}
    words = _expand(words)
    name, _, argument = words.strip().partition(" ")
    if not name.startswith("/") or "/" in name[1:] or "\n" in name:
        return None
    wanted, aliases, hints = name[1:], habits("aliases"), habits("commands")
    if wanted in aliases and wanted not in commands:
        return parse(f"{aliases[wanted]} {argument}", more)
    found = [wanted] if wanted in commands else [n for n in commands if n.startswith(wanted)]
    if wanted in commands or (len(found) == 1 and wanted not in hints):
        return commands[found[0]], argument.strip()
    near = found or difflib.get_close_matches(wanted, [*commands, *aliases, *hints], 1)
    guess = f"Did you mean {', '.join(f'/{n}' for n in near)}?" if wanted and near else ""
    hint = hints.get(wanted) or guess or "/help lists them all."
    raise UsageError(f"there is no command {name}", hint=hint)


def _expand(words: str) -> str:
    """Replace a short form, a mark in front or a few words alone, by the command it stands for."""
    if words.startswith("!"):
        return f"/shell {words[1:].strip()}"
    if note := _NOTE.fullmatch(words.rstrip()):
        return f"/pin {note[1]}"
    topic = _TOPIC.fullmatch(words.strip())
    return f"/recover {topic[1]}" if topic else QUICK_COMMANDS.get(words.strip().lower(), words)


def command(
    help: str,
    *,
    group: CommandGroup,
    argument: str = "",
    anytime: bool = False,
    complete: Complete | None = None,
) -> Callable[[Run], None]:
    """Register the function `_some_name` as the command `/some-name`."""

    def register(run: Run) -> None:
        name = run.__name__.strip("_").replace("_", "-")
        COMMANDS[name] = Command(name, help, run, group, argument, anytime, complete)

    return register
