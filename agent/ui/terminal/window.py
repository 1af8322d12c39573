"""The window that the terminal stands in: its title, whether it has the keyboard's focus, and how
it tells keys.

The title is saved with what xterm calls the title stack, and restored whenever another program gets
the terminal. Reports of the focus (DEC private mode 1004) come among the keys; `input_filter` takes
them out. What is not known to a terminal has no effect there.
Where it can, it tells Shift-Enter and others apart (kitty's keyboard protocol), as long as no other
program has the terminal.
https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

from collections.abc import Callable

from .output import BatchedOutput

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
FOCUS_REPORTS_ON, FOCUS_REPORTS_OFF = "\x1b[?1004h", "\x1b[?1004l"
# Flags 1 and 4: keys that other terminals confuse, with their place on an English keyboard.
KEYS_APART_FLAGS = 5
KEYS_APART_ON, KEYS_APART_OFF = f"\x1b[>{KEYS_APART_FLAGS}u", "\x1b[<u"
WORKING_MARK, ASKING_MARK = "● ", "? "  # before the name
MAX_TITLE_CHARS = 80


class TerminalWindow:
    """The window of `output`, called `project` while the session has no name of its own.

    `titled` says whether its title may be set, `reports` whether its focus can be heard of.
    """

    def __init__(
        self, output: BatchedOutput, *, project: str, titled: bool = False, reports: bool = False
    ) -> None:
        self.focused: bool | None = None  # None: the terminal has never reported it
        self.on_focus: Callable[[bool], None] = lambda focused: None
        self._output = output
        self._project = self.name = project
        self._titled = titled
        self._reports = reports
        self._saved = False
        self._keys_apart: bool | None = None  # None: the terminal has not said that it can
        self._shown = ""

    def enter(self) -> None:
        """Begin, or go on after another program had the terminal."""
        if self._reports:
            self._output.write_raw(FOCUS_REPORTS_ON)
        if self._titled and not self._saved:
            self._output.write_raw(SAVE_TITLE)
            self._saved = True
        if self._keys_apart is not None:
            self.tell_keys_apart()
        self._shown = ""
        if self.focused is not None:  # someone has just given the terminal back to us
            self.focused = True
        self._output.flush()

    def leave(self) -> None:
        """Give the window back as it was found."""
        if self._reports:
            self._output.write_raw(FOCUS_REPORTS_OFF)
        if self._saved:
            self._output.write_raw(RESTORE_TITLE)
            self._saved = False
        if self._keys_apart:
            self._output.write_raw(KEYS_APART_OFF)
            self._keys_apart = False
        self._output.flush()

    def tell_keys_apart(self, flags: int = 0) -> None:
        """Have the terminal, which can, tell more keys apart until `leave`. `flags` are what it has
        reported: ours at a start were left by a program that was killed, and are taken back."""
        left = self._keys_apart is None and flags == KEYS_APART_FLAGS
        again = KEYS_APART_OFF if self._keys_apart or left else ""
        self._keys_apart = True
        self._output.write_raw(again + KEYS_APART_ON)
        self._output.flush()

    def rename(self, name: str) -> None:
        """Call the window by this name from the next `show` on; "" is that of the project."""
        self.name = name or self._project

    def show(self, mark: str) -> None:
        """Show the name, behind a mark for the state, if the title is not that already."""
        title = mark + printable(self.name, MAX_TITLE_CHARS)
        if self._saved and title != self._shown:
            self._shown = title
            self._output.write_raw(f"\x1b]2;{title}\a")
            self._output.flush()

    def take_focus(self, focused: bool) -> None:
        """Take a report of the terminal."""
        self.focused = focused
        self.on_focus(focused)


def printable(text: str, most: int) -> str:
    """Return at most so many characters of a text, without those that act on a terminal."""
    return "".join(c for c in text if c.isprintable())[:most]
