"""The terminal's window: its title, its keyboard focus, and its keyboard protocol.

The title is saved on xterm's title stack, and restored whenever another program gets the terminal.
Focus reports (DEC private mode 1004) arrive among the keys; `input_filter` removes them. Terminals
ignore sequences they do not support.

With kitty's keyboard protocol, Shift-Enter and other keys are distinguished. Source:
https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

from collections.abc import Callable

from .output import BatchedOutput

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
FOCUS_REPORTS_ON, FOCUS_REPORTS_OFF = "\x1b[?1004h", "\x1b[?1004l"
# Flags 1 and 4: distinguish ambiguous keys, and report their English keyboard equivalents.
KEYS_APART_FLAGS = 5
KEYS_APART_ON, KEYS_APART_OFF = f"\x1b[>{KEYS_APART_FLAGS}u", "\x1b[<u"
WORKING_MARK, ASKING_MARK = "● ", "? "  # prefix of the title
MAX_TITLE_CHARS = 80


class TerminalWindow:
    """The window of `output`, named after the `project` while the session has no title. `titled`
    means that its title may be set, `reports` that focus reports can be read.
    """

    def __init__(
        self, output: BatchedOutput, *, project: str, titled: bool = False, reports: bool = False
    ) -> None:
        self.focused: bool | None = None  # None if never reported
        self.on_focus: Callable[[bool], None] = lambda focused: None
        self._output = output
        self._project = self.name = project
        self._titled = titled
        self._reports = reports
        self._saved = False
        self._has_key_protocol: bool | None = None  # None if support is not known
        self._shown = ""

    def enter(self) -> None:
        """Start, or continue after another program had the terminal."""
        if self._reports:
            self._output.write_raw(FOCUS_REPORTS_ON)
        if self._titled and not self._saved:
            self._output.write_raw(SAVE_TITLE)
            self._saved = True
        if self._has_key_protocol is not None:
            self.enable_key_protocol()
        self._shown = ""
        if self.focused is not None:  # the terminal was just returned to us
            self.focused = True
        self._output.flush()

    def leave(self) -> None:
        """Restore the window to its original state."""
        if self._reports:
            self._output.write_raw(FOCUS_REPORTS_OFF)
        if self._saved:
            self._output.write_raw(RESTORE_TITLE)
            self._saved = False
        if self._has_key_protocol:
            self._output.write_raw(KEYS_APART_OFF)
            self._has_key_protocol = False
        self._output.flush()

    def enable_key_protocol(self, flags: int = 0) -> None:
        """Enable kitty's keyboard protocol until `leave`. `flags` is the terminal's report. If the
        first report equals our flags, a killed program left the protocol on, and it is reset first.
        """
        left = self._has_key_protocol is None and flags == KEYS_APART_FLAGS
        again = KEYS_APART_OFF if self._has_key_protocol or left else ""
        self._has_key_protocol = True
        self._output.write_raw(again + KEYS_APART_ON)
        self._output.flush()

    def rename(self, name: str) -> None:
        """Set the window's name for the next `show`; "" restores the project's name."""
        self.name = name or self._project

    def show(self, mark: str) -> None:
        """Show a state mark and the name as the title, if it has changed."""
        title = mark + printable(self.name, MAX_TITLE_CHARS)
        if self._saved and title != self._shown:
            self._shown = title
            self._output.write_raw(f"\x1b]2;{title}\a")
            self._output.flush()

    def take_focus(self, focused: bool) -> None:
        """Handle a focus report."""
        self.focused = focused
        self.on_focus(focused)


def printable(text: str, most: int) -> str:
    """Return at most `most` characters of a text, without control characters."""
    return "".join(c for c in text if c.isprintable())[:most]
