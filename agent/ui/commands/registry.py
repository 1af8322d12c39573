"""The registry of slash commands, used for help, completion and dispatch.

A command is a coroutine that takes a `CommandContext` and the text after its name. It prints
through the context and raises CtxagentError on failure. Commands marked `anytime` run at once, even
during a turn, because they do not disturb it.
"""

import difflib
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ...errors import UsageError
from ...extensions.command_files import CommandGroup
from ...lazy import dataclass, regex
from ..foreign_names import foreign_names
from ..screen import Offer
from .command_context import CommandContext

QUICK_COMMANDS = {  # messages that run a command
    "compress": "/compact",
    "context status": "/context status",
    "compression log": "/log compaction",
    "show session intent": "/intent",
    **dict.fromkeys(("exit", "quit", ":q", ":q!", ":wq"), "/exit"),
    **dict.fromkeys(("help", "?"), "/help"),
}
# One line after a #, but not a ref (#12), a Markdown heading (##) or a script (#!).
_NOTE = regex(r"#[ \t]*((?![ \t#!]|-?\d).*)")
# "recover" and one to four words that do not look like a sentence.
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
    run: Run | None  # None if the text itself is sent to the model
    group: CommandGroup
    argument: str = ""  # argument syntax for help, such as [ID]
    anytime: bool = False  # whether it may run during a turn
    complete: Complete | None = None  # returns completions for the argument
    plugin: str = ""  # name of its plugin, if any


MIN_LIKENESS = 0.7  # of a mistyped name

COMMANDS: dict[str, Command] = {}
NO_MORE: Mapping[str, Command] = {}


def parse(text: str, more: Mapping[str, Command] = NO_MORE) -> tuple[Command, str] | None:
    """Return the command that the text calls, and its argument; None if the text is for the model.
    `more` are commands in addition to the built-in ones.

    A unique prefix of a name is enough, and names of other agents are aliases. Raises UsageError
    for an unknown command.
    """
    commands = {**more, **COMMANDS}
    text = _expand(text)
    name, _, argument = text.strip().partition(" ")
    if not name.startswith("/") or "/" in name[1:] or "\n" in name:
        return None
    wanted, aliases, hints = name[1:], foreign_names("aliases"), foreign_names("commands")
    if ":" in wanted:
        commands = {f"{c.plugin}:{c.name}": c for c in more.values() if c.plugin} | commands
    if wanted in commands:
        return commands[wanted], argument.strip()
    if wanted in aliases:
        return parse(f"{aliases[wanted]} {argument}", more)
    found = sorted(n for n in commands if n.startswith(wanted))
    if len(found) == 1 and wanted not in hints:
        return commands[found[0]], argument.strip()
    near = found or difflib.get_close_matches(wanted, [*commands, *aliases], 1, MIN_LIKENESS)
    guess = f"Did you mean {', '.join(f'/{n}' for n in near)}?" if wanted and near else ""
    hint = hints.get(wanted) or guess or "/help lists them all."
    raise UsageError(f"there is no command {name}", hint=hint)


def _expand(text: str) -> str:
    """Replace a short form (a prefix character or a fixed phrase) by its command."""
    if text.startswith("!"):
        return f"/shell {text[1:].strip()}"
    if note := _NOTE.fullmatch(text.rstrip()):
        return f"/pin {note[1]}"
    topic = _TOPIC.fullmatch(text.strip())
    return f"/recover {topic[1]}" if topic else QUICK_COMMANDS.get(text.strip().lower(), text)


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
