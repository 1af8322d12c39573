"""The built-in slash commands, and the call of a command in a message.

The first parameter of a built-in command is the `CommandContext`, through which it prints.
"""

import difflib
import re
from collections.abc import Mapping

from ...errors import UsageError
from ...extensions.command import Command
from ...lazy import regex
from ..foreign_names import foreign_names

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

MIN_LIKENESS = 0.7  # of a mistyped name

COMMANDS: dict[str, Command] = {}  # by name, not bound to a front end


def parse(text: str, commands: Mapping[str, Command]) -> tuple[Command, str] | None:
    """Return the command that the text calls, and its argument; None if the text is for the model.

    A unique prefix of a name is enough, and names of other agents are aliases. Raises UsageError
    for an unknown command.
    """
    text = _expand(text)
    name, _, argument = text.strip().partition(" ")
    if not name.startswith("/") or "/" in name[1:] or "\n" in name:
        return None
    wanted, aliases, hints = name[1:], foreign_names("aliases"), foreign_names("commands")
    if ":" in wanted:
        of_plugins = {f"{c.plugin}:{c.name}": c for c in commands.values() if c.plugin}
        commands = {**of_plugins, **commands}
    if wanted in commands:
        return commands[wanted], argument.strip()
    if wanted in aliases:
        return parse(f"{aliases[wanted]} {argument}", commands)
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
