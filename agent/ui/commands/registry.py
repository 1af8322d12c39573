"""The registry of slash commands, from which help, completion and dispatch follow.

A command is a coroutine over a `Desk`, what it may see and do of the REPL, and the words after its
name. It prints through the desk and raises CtxagentError for what cannot be done. Those marked
`anytime` only look, and so run at once even while a turn runs.
"""

import difflib
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...keeping import RuleFiles
    from ...loop import Loop
    from ..screen.menu import Menu, Option
    from ..subagents import Subagents

ALONE = {  # S0 "Quick Commands": words that are a command when nothing else is said
    "compress": "/compact",
    "context status": "/context status",
    "compression log": "/log compaction",
    "show session intent": "/intent",
}
# One line that is no ref, no heading further down and no script.
_NOTE = re.compile(r"#[ \t]*((?![ \t#!]|-?\d).*)")
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
        is told so much of another. When another process has it, the person says what to do."""
        ...

    @property
    def handed(self) -> str:
        """What the open session was told of another, "" for nothing."""
        ...

    def sessions(self) -> Sequence[Path]:
        """Logs of this project, newest first."""
        ...

    def everywhere(self) -> Sequence[Path]:
        """Logs of all projects, newest first."""
        ...

    @property
    def rules(self) -> "RuleFiles | None":
        """The files that a person's rules are kept in, None where there are none."""
        ...

    def settings(self) -> Sequence[Sequence[str]]:
        """Rows of key, value, origin."""
        ...

    def checks(self) -> Sequence[Sequence[str]]:
        """Rows of ok or FAIL, what was looked at, and what was found; it may take a second."""
        ...

    def set_model(self, id: str) -> None: ...

    def models(self) -> Sequence[Sequence[str]]:
        """Rows of the models that are known: id, and what there is to say of it."""
        ...

    def copy(self, upto: int) -> str:
        """Copy the session up to an entry; the id of the copy."""
        ...

    async def unfold(self) -> None:
        """Print what was folded last in full; asked for again, what was folded before it."""
        ...

    def doing(self, text: str) -> None:
        """Say what the command waits for, as long as it runs."""
        ...

    async def choose(self, choices: str, keys: str) -> str:
        """Put a question; one line of answer, where a character of `keys` answers at once."""
        ...

    async def pick(self, menu: "Menu") -> "Option | None":
        """Let the person choose from a menu; None for nothing."""
        ...

    def offer(self, words: str) -> None:
        """Put words where the person types, to be said again or otherwise."""
        ...

    async def edit(self, text: str) -> str:
        """The text as the person leaves it in their editor. Raises CtxagentError without one."""
        ...

    def leave(self) -> None: ...


Offer = tuple[str, str]  # what may be typed, and what it is
Complete = Callable[[Desk], Awaitable[Sequence[Offer]]]


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` shows what may follow the name, e.g. `[ID]`, `complete` gives what that can be."""

    name: str
    help: str
    run: Callable[[Desk, str], Coroutine[Any, Any, None]]
    argument: str = ""
    anytime: bool = False
    complete: Complete | None = None


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
    """What is typed as the command that it stands for: a mark in front, or a few words alone."""
    if words.startswith("!"):
        return f"/shell {words[1:].strip()}"
    if note := _NOTE.fullmatch(words.rstrip()):
        return f"/pin {note[1]}"
    topic = _TOPIC.fullmatch(words.strip())
    return f"/recover {topic[1]}" if topic else ALONE.get(words.strip().lower(), words)


def command(
    help: str,
    *,
    argument: str = "",
    anytime: bool = False,
    complete: Complete | None = None,
) -> Callable[[Callable[[Desk, str], Coroutine[Any, Any, None]]], None]:
    """Register the function `_name` as the command `/name`."""

    def register(run: Callable[[Desk, str], Coroutine[Any, Any, None]]) -> None:
        name = run.__name__.strip("_")
        COMMANDS[name] = Command(name, help, run, argument, anytime, complete)

    return register
