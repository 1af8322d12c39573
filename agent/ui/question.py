"""A question to the person: what may be answered, and the text that the answer begins with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prompt_toolkit.utils import get_cwidth

from .cells import wrap_words

BACK = "\x1b"  # Esc, as an answer: go back to the question before
INSTANT_KEYS = "yaencfbspurwl123456789"  # keys that a question may take for an answer

Choices = Callable[[str], str]  # what may be answered, for what is typed so far


@dataclass
class OpenQuestion:
    """A question on a real terminal, with the texts that its answer may begin with."""

    choices: Choices = lambda typed: ""
    keys: str = ""  # that answer at once; BACK among them lets Esc go back, whatever is typed
    texts: Sequence[str] = ()
    _edited: list[str] = field(init=False)  # the texts as typed by now, at least one
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

    def switch_text(self, typed: str, step: int) -> str:
        """Keep what is typed, and return the text `step` places on, as far as there is one."""
        self._edited[self._index] = typed
        self._index = min(max(self._index + step, 0), len(self._edited) - 1)
        return self.text

    def choices_text(self, typed: str, width: int, *, drafting: bool = False) -> str:
        """Return the choices and the keys for them, in lines of `width`. With `drafting` the
        person still types other words, so that the keys are not the question's yet."""
        accepts = self.texts or (typed and typed in self.keys)
        keys = ["Enter: use this rule"] if self.texts else ["Enter: answer"] if accepts else []
        keys += ["↑↓: others"] if self.has_other_texts else []
        keys += ["Esc: back"] if self.allows_back or typed else []
        keys = ["Tab: answer"] if drafting else keys
        lines = _with_notes(self.choices(typed), keys, width).split("\n")
        return "\n".join(wrap_words(line, width, "  ") for line in lines)


def as_lines(choices: Choices, texts: Sequence[str], *, back: bool) -> str:
    """Return the question for a screen of lines: the texts to begin with are numbered there."""
    notes = ["Enter alone uses the first; or type another"] if texts else []
    notes += ["a number uses that one"] if len(texts) > 1 else []
    notes += ["back goes back"] if back else []
    lines = [_with_notes(choices(texts[0] if texts else ""), notes)]
    return "\n".join([*lines, *(f"{n}. {text}" for n, text in enumerate(texts, 1))])


def answer_from_line(line: str, texts: Sequence[str]) -> str:
    """Return the answer that a line means, where the question was put in lines."""
    number = int(line) if line.strip().isdecimal() else 0
    if texts and (not line.strip() or 0 < number <= len(texts)):
        return texts[max(number - 1, 0)]
    return line


def _with_notes(choices: str, notes: Sequence[str], width: int = 0) -> str:
    """Add notes to the choices: beside a single line and note where they fit into the `width` (0:
    any), below anything longer."""
    if not notes:
        return choices
    beside = f"{choices} · {notes[0]}"
    if "\n" not in choices and len(notes) == 1 and (not width or get_cwidth(beside) <= width):
        return beside
    return f"{choices}\n{' · '.join(notes)}"
