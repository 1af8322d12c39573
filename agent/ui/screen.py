"""The protocols of a screen and of its host, and the menus and questions that a screen shows.

There are two screens, both in `terminal`: the inline application for a real terminal, and plain
lines for everything else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from prompt_toolkit.utils import get_cwidth

from ...tools.system.phrasing import count_of
from ..config.keyboard import DEFAULT_KEYS, KeyboardSettings
from ..errors import CtxagentError
from ..lazy import dataclass
from .cells import cut_to_cells, wrap_words
from .status import Fragment

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..config.settings import EditingMode, Theme
    from .context_rows import ContextSource

MIN_KEY_PART_CHARS = 5  # shortest key part that finds an option
Styled = tuple[str, str]  # a role of the theme, and text


@dataclass(frozen=True, slots=True)
class Option:
    """A menu option, found by its title, detail and words, and by a part of its key."""

    key: str
    title: str
    facts: tuple[str, ...] = ()  # columns, least important last
    detail: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Menu:
    """A menu with options in scopes. `load` and `preview` run in threads."""

    title: str
    load: Callable[[int], Iterator[Sequence[Option]]]  # yields the options of a scope in batches
    action: str  # name of the action on the selected option
    empty_text: str  # shown when there is no option
    leaving: str = "back"  # name of the action on Esc
    takes_other: bool = False  # whether an unknown single word can be chosen
    scopes: Sequence[str] = ("",)  # display names of the option sources
    searches_all: bool = False  # a search uses the scope number len(scopes), for all options
    preview: Callable[[str], Sequence[Styled]] | None = None  # lines about the option with this key
    preview_rows: int = 10  # maximum, including the separator line
    moved: Callable[[str], None] = lambda key: None  # called with the key of the selected option

    def other(self, typed: str) -> Option | None:
        """Return the typed word as an option if the menu accepts words outside its list."""
        word = typed.strip()
        return Option(word, word) if self.takes_other and len(word.split()) == 1 else None


class OptionList:
    """The options of one scope, the search matches among them, and the selected option."""

    def __init__(self) -> None:
        self.complete = False  # whether all options have been added
        self.total = 0
        self.has_details = False  # whether any option has a detail text
        self.columns: list[int] = []  # cells of the widest fact in each column
        self.matches: list[Option] = []
        self.index = 0  # index of the selected option in `matches`
        self._all: list[tuple[str, Option]] = []
        self._words: list[str] = []

    @property
    def chosen(self) -> Option | None:
        return self.matches[self.index] if self.matches else None

    def add(self, options: Iterable[Option]) -> None:
        more = [(f"{o.title}\n{o.detail}\n{o.words}".casefold(), o) for o in options]
        self._all += more
        self.total = len(self._all)
        self.has_details = self.has_details or any(option.detail for _, option in more)
        self.matches += [option for text, option in more if self._matches_words(text, option.key)]
        for _, option in more:
            self.columns += [0] * (len(option.facts) - len(self.columns))
            for place, fact in enumerate(option.facts):
                self.columns[place] = max(self.columns[place], get_cwidth(fact))

    def search(self, text: str) -> None:
        """Keep the options that match these words. Select the option whose key equals them, else
        the first.
        """
        words = text.casefold().split()
        if words != self._words:
            self._words = words
            self.matches = [o for text, o in self._all if self._matches_words(text, o.key)]
            name = " ".join(words).removeprefix("/")
            same = (place for place, o in enumerate(self.matches) if o.key.casefold() == name)
            self.index = next(same, 0)

    def move(self, step: int) -> None:
        self.index = max(0, min(self.index + step, len(self.matches) - 1))

    def _matches_words(self, text: str, key: str) -> bool:
        return all(
            word in text or (len(word) >= MIN_KEY_PART_CHARS and word in key)
            for word in self._words
        )


BACK = "\x1b"  # the answer for Esc: go back to the previous question
INSTANT_KEYS = "yaencfbspurwl123456789"  # keys that may answer a question at once
ROW_KEYS = "↑↓ and Enter, a number or a letter"  # keys that select a row
MIN_WIDE_COLUMNS = 60  # minimum terminal width for full row labels

Choices = Callable[[str], str]  # returns the possible answers for the typed text


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A choice on its own line, selected with the arrows and Enter, its number or its letter."""

    key: str  # the answer: a letter or number
    label: str
    short: str = ""  # the label for narrow terminals, if different
    reply_prefix: str = ""  # the beginning of the reply, if the choice needs a text


@dataclass
class OpenQuestion:
    """An open question on a real terminal, with its suggested texts."""

    choices: Choices = lambda typed: ""
    keys: str = ""  # answer at once; with BACK, Esc always goes back
    texts: Sequence[str] = ()
    rows: Sequence[ChoiceRow] = ()
    hidden: bool = False  # whether typed text is not shown
    row: int | None = field(default=None, init=False)  # index of the selected row
    _edited: list[str] = field(init=False)  # the texts as edited so far, at least one
    _index: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._edited = list(self.texts) or [""]

    @property
    def text(self) -> str:
        return self._edited[self._index]

    @property
    def has_other_texts(self) -> bool:
        return len(self._edited) > 1

    @property
    def allows_back(self) -> bool:
        return BACK in self.keys

    @property
    def instant(self) -> str:
        """The keys that answer at once."""
        return self.keys + _row_keys(self.rows)

    @property
    def number(self) -> str:
        """The number of the selected row, "" if none is selected."""
        return "" if self.row is None else str(self.row + 1)

    def switch_text(self, typed: str, step: int) -> str:
        """Store the typed text; return the suggested text `step` positions on, or the last."""
        self._edited[self._index] = typed
        self._index = min(max(self._index + step, 0), len(self._edited) - 1)
        return self.text

    def move(self, step: int) -> None:
        """Select the next or previous row. The first move selects the first or the last row."""
        start = -1 if step > 0 else len(self.rows)
        moved = (start if self.row is None else self.row) + step
        self.row = min(max(moved, 0), len(self.rows) - 1)

    def shown(
        self, typed: str, width: int, height: int, style: str = "", *, drafting: bool = False
    ) -> list[Styled]:
        """Return the choices and their keys as lines of `width`. If this takes more than `height`
        lines, cut the text above the rows and omit the keys. With `drafting` the user is still
        typing a message, so the keys do not answer the question yet.
        """
        rows = self.rows if not typed or typed in self.instant else ()
        accepts = self.texts or (typed and typed in self.instant)
        keys = ["Enter: use this rule"] if self.texts else ["Enter: answer"] if accepts else []
        keys += [ROW_KEYS] if rows and not typed else []
        keys += ["↑↓: others"] if self.has_other_texts else []
        keys += ["Esc: back"] if self.allows_back or typed else []
        keys = ["Tab: answer"] if drafting else keys
        above = self.choices(typed)
        if not rows:
            return [(style, _wrapped(_with_notes(above, keys, width), width))]
        lines = [*self._row_lines(rows, width, style)]
        note, above_lines = " · ".join(keys), _wrapped(above, width)
        used = sum(text.count("\n") + 1 for _, text in lines)
        if used + above_lines.count("\n") + _wrapped(note, width).count("\n") + 2 > height:
            fitting, left = above.split("\n"), max(1, height - used)
            if len(fitting) > left:
                more = f"… +{count_of(len(fitting) - left + 1, 'line')} above"
                fitting = [*fitting[: left - 1], more] if left > 1 else fitting[:1]
            above_lines = "\n".join(cut_to_cells(line, width) for line in fitting)
            room = used + above_lines.count("\n") + 1 + _wrapped(note, width).count("\n") < height
            note = note if room else ""
        lines = [*([(style, above_lines)] if above else []), *lines]
        lines += [("class:dim", _wrapped(note, width))] if note else []
        return [piece for line in lines for piece in (line, ("", "\n"))][:-1]

    def _row_lines(self, rows: Sequence[ChoiceRow], width: int, style: str) -> Iterator[Styled]:
        for place, row in enumerate(rows):
            label = row.short if row.short and width < MIN_WIDE_COLUMNS else row.label
            mark, role = ("❯", "class:chosen") if place == self.row else (" ", style)
            yield role, wrap_words(f"{mark} {place + 1}. {label}", width, "     ")


def row_of(text: str, rows: Sequence[ChoiceRow]) -> ChoiceRow | None:
    """Return the row with the number in `text`, or None."""
    number = int(text) if text.strip().isdecimal() else 0
    return rows[number - 1] if 0 < number <= len(rows) else None


def as_lines(
    choices: Choices, texts: Sequence[str], rows: Sequence[ChoiceRow], *, back: bool
) -> str:
    """Return the question for the plain line screen, with numbered rows and suggested texts."""
    notes = ["Enter alone uses the first; or type another"] if texts else []
    notes += ["a number uses that one"] if len(texts) > 1 else []
    notes += ["type back to go back"] if back else []
    asked = choices(texts[0] if texts else "")
    numbered = [f"{number}. {row.label}" for number, row in enumerate(rows, 1)]
    asked = "\n".join([*filter(None, [asked]), *numbered])
    lines = [_with_notes(asked, notes)]
    return "\n".join([*lines, *(f"{n}. {text}" for n, text in enumerate(texts, 1))])


def answer_from_line(line: str, texts: Sequence[str]) -> str:
    """Return the answer for a line typed on the plain screen. A number selects a suggested text."""
    number = int(line) if line.strip().isdecimal() else 0
    if texts and (not line.strip() or 0 < number <= len(texts)):
        return texts[max(number - 1, 0)]
    return line


def _row_keys(rows: Sequence[ChoiceRow]) -> str:
    letters = "".join(row.key for row in rows if not row.reply_prefix)
    return letters + "".join(str(number) for number in range(1, len(rows) + 1))


def _wrapped(text: str, width: int) -> str:
    return "\n".join(wrap_words(line, width, "  ") for line in text.split("\n"))


def _with_notes(choices: str, notes: Sequence[str], width: int = 0) -> str:
    """Add notes to the choices: on the same line if both are single lines that fit into `width` (0:
    unlimited), else below.
    """
    if not (notes and choices):
        return choices or " · ".join(notes)
    joined = f"{choices} · {notes[0]}"
    if "\n" not in choices and len(notes) == 1 and (not width or get_cwidth(joined) <= width):
        return joined
    return f"{choices}\n{' · '.join(notes)}"


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
    def is_short(self) -> bool:
        """Whether the choices of a question leave little room above them."""
        return False

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

    async def browse(self, source: "ContextSource") -> bool:
        """Show the items of the context until the user leaves. Return False if this screen cannot
        show them.
        """
        return False

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
