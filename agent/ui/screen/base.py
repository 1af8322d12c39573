"""Where the REPL shows and reads: what a screen does, and what it tells. There are two: the inline
application of a real terminal (terminal.py), and lines for everything that can do less (plain.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...errors import CtxagentError
from ..status import Fragment
from .asked import Choices

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..commands import Offer
    from .menu import Menu, Option


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

    def unfold(self) -> None:
        """Print what was folded last in full; asked for again, what was folded before it."""
        ...

    def earlier(self, words: str) -> str | None:
        """Give the newest words that wait out to be edited, or, for `words` that were given out,
        those before them; None when none wait."""
        ...

    def later(self, words: str) -> str | None:
        """Those after `words` that were given out, "" after the newest; None when none are."""
        ...

    def drop(self) -> None:
        """The words that were given out are not to be sent."""
        ...

    async def offers(self, place: str) -> "Sequence[Offer]":
        """What fits in a place that is being typed, as `commands.fitting` says."""
        ...

    def tell(self, error: CtxagentError) -> None:
        """Print what went wrong, and the next step."""
        ...

    def live(self) -> "Sequence[RenderableType]": ...

    def status(self, width: int) -> list[Fragment]: ...


class Screen(Protocol):
    """Where the REPL shows and reads. Nothing blocks; `run` ends after `exit`."""

    echoes: bool  # whether what the person typed is seen without being printed again
    paints: bool  # whether what the host shows live is seen
    speaks: bool  # whether what it shows may be read aloud

    @property
    def palette(self) -> str:
        """The colours in use, as the theme names them; "" where there are none."""
        ...

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

    async def answer(self, choices: Choices, keys: str, texts: Sequence[str] = ()) -> str:
        """One line of answer, begun with the first of `texts`, which the person may edit or change
        for another of them. Where keys are read, a character of `keys` alone answers at once; with
        BACK among them there is a way back, whatever is typed."""
        ...

    async def pick(self, menu: "Menu") -> "Option | None":
        """Let the person choose from a menu; None for nothing."""
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
