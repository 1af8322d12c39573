"""Where the REPL shows and reads: what a screen does, and what it tells. There are two: the inline
application of a real terminal (terminal.py), and lines for everything that can do less (plain.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .status import Fragment

if TYPE_CHECKING:
    from rich.console import RenderableType


class Host(Protocol):
    """Whom a screen serves."""

    @property
    def working(self) -> bool:
        """Whether a turn runs, so that Esc and Ctrl-C interrupt it."""
        ...

    def submit(self, words: str) -> None: ...

    def interrupt(self) -> None: ...

    def leave(self) -> None:
        """End now: what runs is interrupted."""
        ...

    def finish(self) -> None:
        """End once everything submitted is done: there is no more input."""
        ...

    def cycle_mode(self) -> None: ...

    def recall(self) -> str:
        """Take back the words that wait to be sent, "" when none do."""
        ...

    def live(self) -> "Sequence[RenderableType]": ...

    def status(self, width: int) -> list[Fragment]: ...


class Screen(Protocol):
    """Where the REPL shows and reads. Nothing blocks; `run` ends after `exit`."""

    echoes: bool  # whether what the person typed is seen without being printed again
    paints: bool  # whether what the host shows live is seen

    def greet(self, line: str) -> None:
        """Print one line before `run`, at the least cost."""
        ...

    async def run(self, ready: Callable[[], None]) -> None:
        """Show the prompt, call `ready` once it is painted, and serve until `exit`."""
        ...

    def put(self, renderable: "RenderableType") -> None:
        """Print something finished."""
        ...

    def touch(self) -> None:
        """What the host would show live has changed."""
        ...

    async def answer(self, choices: str, keys: str, text: str = "") -> str:
        """One line of answer, begun with `text`, which the person may edit; a character of `keys`
        alone answers at once where keys are read."""
        ...

    async def edit(self, text: str) -> str:
        """Hand the terminal over to the person's editor; the text as they leave it.

        Raises CtxagentError where there is no editor, and when it failed."""
        ...

    async def type(self, words: str, pace: float) -> None:
        """Show words being typed, `pace` seconds a character."""
        ...

    def restore(self, words: str) -> None:
        """Give words back to the person, to be edited."""
        ...

    def hint(self, text: str) -> None:
        """Say something for a moment, in place of the status line; "" ends the moment."""
        ...

    def rest(self) -> None:
        """Everything submitted is done."""
        ...

    def exit(self, error: BaseException | None = None) -> None: ...
