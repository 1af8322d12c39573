"""The protocols of a screen and of its host. There are two screens: the inline application of a
real terminal (terminal/terminal.py), and lines for all others (terminal/plain.py)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..config.keyboard import DEFAULT_KEYS, KeyboardSettings
from ..errors import CtxagentError
from .question import ChoiceRow, Choices
from .status import Fragment

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..config.settings import EditingMode, Theme
    from .menu import Menu, Option

Offer = tuple[str, str]  # a completion: the text, and what it stands for

LEAVE_WINDOW_S = 2.0  # within which a second Ctrl-C leaves


class ScreenHost(Protocol):
    """The REPL, as the screen that it shows on sees it."""

    @property
    def working(self) -> bool:
        """Whether a turn runs, so that Esc and Ctrl-C interrupt it."""

    def submit(self, words: str, *, alt: bool = False) -> None:
        """Serve words: now, or while a turn runs once its call is over or once all of it is, by the
        settings; with `alt` the other of the two."""

    def send_keys(self, words: str) -> str:
        """Return which key sends the words when; "" where Enter sends them now."""

    def interrupt(self) -> None: ...

    @property
    def runs_command(self) -> bool:
        """Whether a command or subagent is waited for that can be sent to the background."""

    def send_to_background(self) -> None:
        """Let the commands and subagents that are waited for go on in the background."""

    @property
    def asks_to_leave(self) -> bool:
        """Whether the user would be asked before leaving, since tasks run."""

    @property
    def is_leaving(self) -> bool:
        """Whether the user is asked that now."""

    def leave(self) -> None:
        """End now, and interrupt what runs; while tasks run the user is asked once."""

    def finish(self) -> None:
        """End once everything submitted is done: there is no more input."""

    def withdraw(self) -> bool:
        """Withdraw what is offered within a question; return whether there was anything."""

    def cycle_mode(self) -> None:
        """Go on to the next permission mode, or offer it while a permission is asked for."""

    def unfold(self) -> None:
        """Print the newest folded output in full; called again, the one before it."""

    def earlier(self, words: str) -> str | None:
        """Take out the newest waiting words for editing, or those before `words`; None if none
        wait."""

    def later(self, words: str) -> str | None:
        """Return waiting words after `words`, "" past the newest; None if none is taken out."""

    def drop(self) -> None:
        """Drop the words that are taken out: they are not to be sent."""

    async def offers(self, place: str) -> Sequence[Offer]:
        """Return what fits in a place that is being typed, as `commands.completions_for` does."""

    def tell(self, error: CtxagentError) -> None:
        """Print what went wrong, and the next step."""

    def live(self) -> "Sequence[RenderableType]":
        """Return what is not finished, to be painted below everything printed."""

    def status(self, width: int) -> list[Fragment]: ...

    def own_line(self, width: int) -> list[Fragment]:
        """Return the line of the user's own command, which stands below the status line."""

    def notice_given(self, title: str, text: str) -> None:
        """Take note that the user was called, or would have been where `ui.notify` is off."""


class Screen(Protocol):
    """A place to show and read. No method blocks; `run` ends after `exit`. What a screen has no way
    to do, it leaves out: then nothing happens."""

    keys: KeyboardSettings = DEFAULT_KEYS  # which key does what, where keys are read
    echoes: bool  # the terminal itself shows what the person types
    paints: bool  # the person sees what the host shows live
    speaks: bool  # what is printed may be read aloud
    printed: int  # how much has been printed, in things that were put

    @property
    def palette(self) -> str:
        """The name of the palette in use; "" where there are no colours."""

    @property
    def unfinished(self) -> bool:
        """Whether something stands between what is printed and what is asked."""

    def greet(self, line: str) -> None:
        """Print one line before or after `run`, without loading what rich needs."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Show the prompt, call `ready` once it is painted, and serve until `exit`."""

    def put(self, renderable: "RenderableType") -> None:
        """Print something finished."""

    def touch(self) -> None:
        """Paint again soon: what the host shows live has changed."""
        return

    async def answer(
        self, choices: Choices, keys: str, texts: Sequence[str] = (),
        rows: Sequence[ChoiceRow] = (), *, hidden: bool = False,
    ) -> str:  # fmt: skip
        """Read one line of answer, or return the key of one of the `rows`. A `hidden` line is not
        shown while it is typed.

        It begins with the first of `texts`, which the user may edit or change for another one.
        Where keys are read, a character of `keys` alone answers at once; BACK among them lets the
        person go back whatever is typed.
        """

    async def pick(self, menu: "Menu") -> "Option | None":
        """Let the user choose from a menu; None if they chose nothing."""

    async def edit(self, text: str, name: str) -> str:
        """Return a text as the user leaves it in their editor, which sees a file of this name.

        Raises CtxagentError."""

    async def type(self, words: str, pace: float) -> None:
        """Show words being typed, at `pace` seconds a character."""
        return

    def restore(self, words: str) -> None:
        """Give words back to the user for editing."""
        return

    def hint(self, text: str) -> None:
        """Show a text for a moment in place of the status line; "" ends the moment."""

    def copy(self, text: str) -> None:
        """Put a text into the clipboard. Raises CtxagentError where that is impossible."""
        raise CtxagentError(
            "there is no clipboard here", hint="/copy needs a terminal that paints; /export works."
        )

    def title(self, text: str) -> None:
        """Name the terminal's window after the session; "" names it after the project."""
        return

    def clean(self) -> None:
        """Scroll all that is shown out of sight; it stays in the scrollback."""
        return

    def use_theme(self, theme: "Theme") -> None:
        """Change the colours, where there are any."""
        return

    def use_editing_mode(self, mode: "EditingMode") -> None:
        """Change the key bindings of the input."""
        return

    def turn_ended(self, seconds: float) -> None:
        """Call the user back after a turn that took so long, where that is wanted."""
        return

    def rest(self) -> None:
        """Show the prompt again: everything submitted is done."""
        return

    def exit(self, error: BaseException | None = None) -> None:
        return
