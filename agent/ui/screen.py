"""The protocols of a screen and of its host.

There are two screens: the inline application for a real terminal (terminal/terminal.py), and plain
lines for everything else (terminal/plain.py).
"""

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

Offer = tuple[str, str]  # a completion: (text, description)

LEAVE_WINDOW_S = 2.0  # time in which a second Ctrl-C leaves


class ScreenHost(Protocol):
    """The REPL as its screen sees it."""

    @property
    def working(self) -> bool:
        """Whether a turn runs, which Esc and Ctrl-C interrupt."""

    def submit(self, message: str, *, alt: bool = False) -> None:
        """Submit a message. During a turn, send it after the current call or after the turn
        (setting); `alt` swaps the two.
        """

    def send_keys(self, message: str) -> str:
        """Return a hint on which key sends `message` at which time; "" if it cannot be sent during
        the turn.
        """

    def interrupt(self) -> None: ...

    @property
    def runs_command(self) -> bool:
        """Whether a foreground command or subagent can be sent to the background."""

    def send_to_background(self) -> None:
        """Send the foreground commands and subagents to the background."""

    @property
    def asks_to_leave(self) -> bool:
        """Whether the user will be asked before leaving, because background tasks run."""

    @property
    def is_leaving(self) -> bool:
        """Whether the user is being asked about leaving."""

    def leave(self) -> None:
        """Interrupt running work and end. If background tasks run, ask the user first, once."""

    def finish(self) -> None:
        """End after all submitted input is served; there is no more input."""

    def withdraw(self) -> bool:
        """Withdraw the mode change offered in a question; return True if there was one."""

    def cycle_mode(self) -> None:
        """Switch to the next permission mode, or only offer it during a permission question."""

    def unfold(self) -> None:
        """Print the newest folded output in full; a repeated call prints the previous one."""

    def earlier(self, message: str) -> str | None:
        """Take out the newest queued message for editing, or the one before the message that is
        out, which is put back as `message`. None if the queue is empty.
        """

    def later(self, message: str) -> str | None:
        """Return the queued message after the one that is out, "" at the end; None if
        none is out.
        """

    def drop(self) -> None:
        """Discard the message that is taken out of the queue."""

    async def offers(self, place: str) -> Sequence[Offer]:
        """Return completions for the word being typed (see `commands.completions_for`)."""

    def show_error(self, error: CtxagentError) -> None:
        """Print an error and its next step."""

    def live(self) -> "Sequence[RenderableType]":
        """Return unfinished output, to be painted below the printed text."""

    def status(self, width: int) -> list[Fragment]: ...

    def status_command_line(self, width: int) -> list[Fragment]:
        """Return the line from the user's status command, shown below the status line."""

    def notice_given(self, title: str, text: str) -> None:
        """Run the user's notice command. Called for every notice, even if `ui.notify` is off."""


class Screen(Protocol):
    """A place for output and input. No method blocks; `run` ends after `exit`. Unsupported methods
    do nothing.
    """

    keys: KeyboardSettings = DEFAULT_KEYS  # the key bindings
    echoes: bool  # the terminal itself echoes typed text
    paints: bool  # live output is visible
    speaks: bool  # output may be read aloud by a screen reader
    printed: int  # number of `put` calls so far

    @property
    def palette(self) -> str:
        """The name of the palette in use; "" if there are no colours."""

    @property
    def unfinished(self) -> bool:
        """Whether there is unfinished output between the printed text and the prompt."""

    def print_line(self, line: str) -> None:
        """Print one line before or after `run`, without importing rich."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Show the prompt, call `ready` once it is painted, and serve until `exit`."""

    def put(self, renderable: "RenderableType") -> None:
        """Print finished output."""

    def request_repaint(self) -> None:
        """Request a repaint because the host's live output has changed."""
        return

    async def answer(
        self, choices: Choices, keys: str, texts: Sequence[str] = (),
        rows: Sequence[ChoiceRow] = (), *, hidden: bool = False,
    ) -> str:  # fmt: skip
        """Read one line, or return the key of one of the `rows`. A `hidden` line is not shown.

        The line starts with the first of `texts`, which the user may edit or switch. On screens
        that read keys, a character of `keys` answers at once; BACK among them lets the user go back
        at any time.
        """

    async def pick(self, menu: "Menu") -> "Option | None":
        """Let the user choose from a menu; None if the user chose nothing."""

    async def edit(self, text: str, name: str) -> str:
        """Let the user edit a text in their editor, in a file called `name`; return the result.

        Raises CtxagentError.
        """

    async def type(self, message: str, pace: float) -> None:
        """Show a message being typed, at `pace` seconds per character."""
        return

    def restore(self, message: str) -> None:
        """Put an unsent message back into the input line."""
        return

    def hint(self, text: str) -> None:
        """Show a short hint briefly over the status line; "" removes it."""

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard. Raises CtxagentError if that is impossible."""
        raise CtxagentError(
            "there is no clipboard here", hint="/copy needs a terminal that paints; /export works."
        )

    def title(self, text: str) -> None:
        """Set the terminal's window title to the session's title; "" sets the project's name."""
        return

    def clean(self) -> None:
        """Scroll everything out of sight; it stays in the scrollback."""
        return

    def use_theme(self, theme: "Theme") -> None:
        """Change the colours, if there are any."""
        return

    def use_editing_mode(self, mode: "EditingMode") -> None:
        """Change the key bindings of the input."""
        return

    def turn_ended(self, seconds: float) -> None:
        """Notify the user of the end of a long turn, if enabled."""
        return

    def show_prompt(self) -> None:
        """Show the prompt again after all submitted input is served."""
        return

    def exit(self, error: BaseException | None = None) -> None:
        return
