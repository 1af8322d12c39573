"""/history: the user's earlier messages in this project."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from prompt_toolkit.history import FileHistory

from ....tools.system.shorten import one_line
from ...errors import UsageError
from ..menu import Menu, Option
from .command_context import CommandContext
from .files import added_commands
from .registry import COMMANDS, Command, command, parse

MAX_MESSAGES = 2_000  # newest messages
MAX_PRINTED = 20
MAX_ROW_CHARS = 300
EMPTY_TEXT = "no earlier messages yet"


@command(
    "your earlier messages in this project; Enter edits one again",
    argument="[WORDS]",
    group="conversation",
)
async def _history(repl: CommandContext, argument: str) -> None:
    messages = await asyncio.to_thread(_messages, repl)
    words = argument.casefold().split()
    found = [each for each in messages if all(word in each.casefold() for word in words)]
    if not found:
        raise UsageError("no earlier message has these words" if words else EMPTY_TEXT)
    if not repl.screen.paints:
        repl.show("\n".join(one_line(each, MAX_ROW_CHARS) for each in found[:MAX_PRINTED][::-1]))
    elif chosen := await repl.screen.pick(_menu(found)):
        repl.screen.restore(found[int(chosen.key)])


def _messages(repl: CommandContext) -> list[str]:
    """Return the distinct messages, newest first. Built-in commands are left out; Up and Ctrl-R
    find them. Blocks.
    """
    path = repl.services.history
    if path is None or not path.is_file():
        return []
    newest = islice(FileHistory(str(path)).load_history_strings(), MAX_MESSAGES)
    added = added_commands(repl)
    return [each for each in dict.fromkeys(newest) if _is_message(each, added)]


def _is_message(text: str, added: Mapping[str, Command]) -> bool:
    try:
        found = parse(text, added) if text.startswith("/") else None
    except UsageError:  # a mistyped command
        return False
    return found is None or found[0].name not in COMMANDS


def _menu(messages: Sequence[str]) -> Menu:
    def load(scope: int) -> Iterator[Sequence[Option]]:
        yield [
            Option(str(n), one_line(each, MAX_ROW_CHARS), words=each)
            for n, each in enumerate(messages)
        ]

    return Menu(
        title="Your earlier messages",
        load=load,
        action="put it into the input",
        empty_text=EMPTY_TEXT,
        preview=lambda key: [("", messages[int(key)])],
        preview_rows=6,
    )
