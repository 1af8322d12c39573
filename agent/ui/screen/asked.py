"""A question as it stands on a terminal: what may be answered to it, and what the answer may begin
with."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

BACK = "\x1b"  # Esc, as an answer: to what was asked before
INSTANT = "yaencfbspurwl"  # keys that a question may take for an answer

Choices = Callable[[str], str]  # what may be answered, for what is typed so far


def _nothing(typed: str) -> str:
    return ""


@dataclass
class Asked:
    """`keys` answer at once; with BACK among them Esc answers too, whatever is typed. The answer
    begins with the first of `texts`; there is always one."""

    choices: Choices = _nothing
    keys: str = ""
    texts: Sequence[str] = ()
    _texts: list[str] = field(init=False)
    _at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._texts = list(self.texts) or [""]

    @property
    def text(self) -> str:
        return self._texts[self._at]

    @property
    def several(self) -> bool:
        return len(self._texts) > 1

    @property
    def back(self) -> bool:
        return BACK in self.keys

    def other(self, typed: str, step: int) -> str:
        """Another text to begin with, as far as there is one. What is typed stays in its place."""
        self._texts[self._at] = typed
        self._at = min(max(self._at + step, 0), len(self._texts) - 1)
        return self.text

    def shown(self, typed: str, width: int, *, drafting: bool = False) -> str:
        """The choices, with the keys that a terminal has for them, in lines of `width`. With
        `drafting` the keyboard is not the question's yet."""
        takes = self.texts or (typed and typed in self.keys)
        keys = ["enter: take it"] if takes else []
        keys += ["↑↓: others"] if self.several else []
        keys += ["esc: back"] if self.back or typed else []
        keys = ["tab: answer"] if drafting else keys
        lines = _with(self.choices(typed), keys).split("\n")
        return "\n".join(_wrapped(line, width) for line in lines)


def in_lines(choices: Choices, texts: Sequence[str], *, back: bool) -> str:
    """The question where there are lines alone. What is typed is a line of its own, so the texts
    that it may begin with are numbered."""
    said = ["Enter alone takes the first, or type another"] if texts else []
    said += ["a number takes that one"] if len(texts) > 1 else []
    said += ["the word back goes back"] if back else []
    lines = [_with(choices(texts[0] if texts else ""), said)]
    return "\n".join([*lines, *(f"{n}. {text}" for n, text in enumerate(texts, 1))])


def of_line(line: str, texts: Sequence[str]) -> str:
    """What a line stands for, where the question was put in lines."""
    number = int(line) if line.strip().isdecimal() else 0
    if texts and (not line.strip() or 0 < number <= len(texts)):
        return texts[max(number - 1, 0)]
    return line


def _wrapped(line: str, width: int) -> str:
    """The line between words; what is longer than a line is left to the terminal."""
    return textwrap.fill(
        line,
        max(width, 8),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def _with(choices: str, said: Sequence[str]) -> str:
    """The choices, and what else there is: beside a single choice, below anything longer."""
    if not said:
        return choices
    return choices + ("\n" if "\n" in choices or len(said) > 1 else " · ") + " · ".join(said)
