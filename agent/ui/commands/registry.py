"""The registry of slash commands, from which help, completion and dispatch follow.

A command is a coroutine over a `Desk`, what it may see and do of the REPL, and the words after its
name. It prints through the desk and raises CtxagentError for what cannot be done. Those marked
`anytime` only look, and so run at once even while a turn runs.
"""

import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...loop import Loop
    from ..subagents import Subagents

ALONE = {  # S0 "Quick Commands": words that are a command when nothing else is said
    "compress": "/compact",
    "context status": "/context status",
    "compression log": "/log compaction",
    "show session intent": "/intent",
}
# A few words, and none with which a sentence goes on.
_TOPIC = re.compile(
    r"recover (?!(?:the|a|an|all|my|our|your|this|that|these|it|from|what|and)\b)"
    r"((?:\S+ ){0,3}\S*[^\s.!?])",
    re.IGNORECASE,
)


class Desk(Protocol):
    """What a command may see and do."""

    @property
    def loop(self) -> "Loop":
        """The open conversation. Raises CtxagentError when none is open."""
        ...

    @property
    def session(self) -> str:
        """Its id, "" when none is open."""
        ...

    @property
    def cwd(self) -> Path: ...

    @property
    def subagents(self) -> "Subagents":
        """Those that have been heard of since the start, and how far they are."""
        ...

    def put(self, *renderables: "RenderableType") -> None: ...

    async def reopen(
        self, *, resume: str | None = None, fork: bool = False, prior: str | None = None
    ) -> None:
        """Go over to another session; the one left stays on disk. With `prior`, to a fresh one that
        is told so much of another."""
        ...

    def sessions(self) -> Sequence[Path]:
        """Logs of this project, newest first."""
        ...

    def settings(self) -> Sequence[Sequence[str]]:
        """Rows of key, value, origin."""
        ...

    def checks(self) -> Sequence[Sequence[str]]:
        """Rows of ok or FAIL, what was looked at, and what was found; it may take a second."""
        ...

    def set_model(self, id: str) -> None: ...

    def copy(self, upto: int) -> str:
        """Copy the session up to an entry; the id of the copy."""
        ...

    def doing(self, text: str) -> None:
        """Say what the command waits for, as long as it runs."""
        ...

    async def choose(self, choices: str, keys: str) -> str:
        """Put a question; one line of answer, where a character of `keys` answers at once."""
        ...

    def offer(self, words: str) -> None:
        """Put words where the person types, to be said again or otherwise."""
        ...

    async def edit(self, text: str) -> str:
        """The text as the person leaves it in their editor. Raises CtxagentError without one."""
        ...

    def leave(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` shows what may follow the name, e.g. `[ID]`; `slow` ones can be interrupted."""

    name: str
    help: str
    run: Callable[[Desk, str], Awaitable[None]]
    argument: str = ""
    anytime: bool = False
    slow: bool = False


COMMANDS: dict[str, Command] = {}


def parse(words: str) -> tuple[Command, str] | None:
    """The command that the words call, and its argument; None when they are for the model.

    A beginning that only one command has is enough. Raises UsageError for an unknown one.
    """
    words = _spelled_out(words)
    name, _, argument = words.strip().partition(" ")
    if not name.startswith("/") or "/" in name[1:] or "\n" in name:
        return None
    wanted = name[1:]
    found = [wanted] if wanted in COMMANDS else [n for n in COMMANDS if n.startswith(wanted)]
    if len(found) == 1:
        return COMMANDS[found[0]], argument.strip()
    near = found or difflib.get_close_matches(wanted, COMMANDS, 1)
    hint = f"Did you mean {', '.join(f'/{n}' for n in near)}?" if wanted and near else ""
    raise UsageError(f"there is no command {name}", hint=hint or "/help lists them all.")


def _spelled_out(words: str) -> str:
    """What is typed alone as the command that it stands for."""
    topic = _TOPIC.fullmatch(words.strip())
    return f"/recover {topic[1]}" if topic else ALONE.get(words.strip().lower(), words)


def command(
    help: str, *, argument: str = "", anytime: bool = False, slow: bool = False
) -> Callable[[Callable[[Desk, str], Awaitable[None]]], None]:
    """Register the function `_name` as the command `/name`."""

    def register(run: Callable[[Desk, str], Awaitable[None]]) -> None:
        name = run.__name__.strip("_")
        COMMANDS[name] = Command(name, help, run, argument, anytime, slow)

    return register
