"""What the REPL is given to open and copy conversations with, and what holds without it; where an
opened one was left."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import UsageError
from ..events import Ask, Emit

if TYPE_CHECKING:
    from ..loop import Loop
    from ..record.entries import Entry


class Opener(Protocol):
    """Opens a session: the one the command line asked for, or another; with `prior`, a fresh one
    that is told so much of another. Raises CtxagentError."""

    async def __call__(
        self,
        emit: Emit,
        ask: Ask,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
    ) -> "Loop": ...


def last_exchange(entries: "Iterable[Entry]") -> tuple[str, str]:
    """The person's last words and the last answer to them, "" for what there is none of."""
    from ..record.entries import Assistant, User
    from ..record.sessions import plain

    said = answer = ""
    for entry in entries:
        if isinstance(entry, User) and entry.source == "person":
            said, answer = plain(entry.content), ""
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            answer = plain([b for b in entry.content if b.get("type") == "text"]) or answer
    return said, answer


def keep_model(loop: "Loop", id: str) -> None:
    raise UsageError("the model cannot be changed here", hint=f"Start with --model {id}")


def keep_single(log: Path, upto: int) -> Path:
    raise UsageError("this session cannot be copied here")
