"""A question to the user: the possible answers, and the suggested texts to edit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from prompt_toolkit.utils import get_cwidth

from ..lazy import dataclass
from .cells import cut_to_cells, wrap_words
from .menu import Styled

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
            above_lines = "\n".join(cut_to_cells(line, width) for line in above.split("\n"))
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
