"""How a change of files looks: each line with its number and a plain + or -, in the colours of its
language, what changed within a line underlined. Long lines go on below, under their mark: nothing
is cut."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ..visible import clean
from .code import Code, folded, lexer_for

FOLDED, NEW = 40, 12  # lines of a folded diff, and of a file that is new
ALIKE = 0.5  # share that two lines have in common for one to be the other, changed
LONG = 500  # characters of a line from which on it is not compared by words
INSET = 2

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT = re.compile(r"diff --git .* b/(.*)")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_STYLES = {"+": "added", "-": "removed"}


@dataclass(slots=True)
class _Line:
    """`mark` is + or -, a blank for one that stands there as before, @ where lines are left out,
    = for the name of a file, ! for a remark."""

    mark: Literal["+", "-", " ", "@", "=", "!"]
    text: str
    number: int = 0
    shown: Text = field(default_factory=Text)


@dataclass(slots=True)
class _Hunk:
    """Where its next lines stand before and after (0 where that is not known), and how many there
    still are: what looks like the name of a file may be one of them."""

    old: int
    new: int
    old_left: int
    new_left: int

    @property
    def is_over(self) -> bool:
        return self.old_left <= 0 and self.new_left <= 0

    def take(self, line: str) -> _Line:
        mark = line[0]
        taken = _Line("-", line[1:], self.old)
        if mark != "-":
            taken = _Line("+" if mark == "+" else " ", line[1:], self.new)
            self.new, self.new_left = self.new + bool(self.new), self.new_left - 1
        if mark != "+":
            self.old, self.old_left = self.old + bool(self.old), self.old_left - 1
        return taken


@dataclass(frozen=True, slots=True)
class Diff:
    """`lines` of a diff, and how many more there are, with how to see them."""

    lines: Sequence[_Line]
    hidden: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        digits = len(str(max((line.number for line in self.lines), default=0)))
        for line in self.lines:
            yield from self._rows(line, digits, options.max_width)
        if self.hidden:
            yield Text(f"{' ' * INSET}{self.hidden}", style="dim")

    def _rows(self, line: _Line, digits: int, width: int) -> Iterator[Text]:
        if line.mark == "=":
            yield Text(f"{' ' * INSET}{line.text}", style="bold")
            return
        if line.mark in "@!":
            yield Text(f"{' ' * (INSET + digits + 1)}{line.text}", style="dim")
            return
        style = _STYLES.get(line.mark, "dim")
        number = str(line.number) if line.number else ""
        gutter = f"{' ' * INSET}{number:>{digits}} {line.mark} "
        room = max(width - cell_len(gutter), 1)
        for place, row in enumerate(folded(line.shown, room)):
            start = Text(" " * len(gutter) if place else gutter, style=style)
            start.no_wrap, start.overflow = True, "ignore"
            yield Text.assemble(start, row, no_wrap=True, overflow="ignore")


def diff(text: str, *, fold: bool = False, path: str = "", way: str = "") -> Diff:
    """A unified diff, of git or of ours. Folded it has its first lines; `way` says how to see the
    others. `path` is given where a headline names the file already."""
    lines = list(_parsed(clean(text), path))
    if path and sum(line.mark == "=" for line in lines) == 1:
        lines = [line for line in lines if line.mark != "="]
    most = len(lines)
    if fold:
        most = NEW if all(line.mark in "+@!" for line in lines) else FOLDED
    kept = lines[:most] if len(lines) > most + 1 else lines
    _colour(kept, _path(text) or path)
    _emphasise(kept)
    left = len(lines) - len(kept)
    return Diff(kept, f"… +{left:,} lines{way}" if left else "")


def _parsed(text: str, path: str) -> Iterator[_Line]:
    lines = text.rstrip("\n").split("\n")
    hunk: _Hunk | None = None
    named = -1  # the line that was read as the second of two with names
    by_git = False  # which names each file in a line of its own
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        free = hunk is None or hunk.is_over
        if free and (git := _GIT.match(line)):
            hunk, by_git = None, True
            yield _Line("=", git[1])
        elif by_git and hunk is None and line.startswith(("index ", "--- ", "+++ ")):
            continue
        elif by_git and hunk is None and not _HUNK.match(line):
            yield _Line("!", line)
        elif found := _HUNK.match(line):
            if hunk is not None:
                yield _Line("@", "⋯")
            hunk = _Hunk(int(found[1]), int(found[3]), int(found[2] or 1), int(found[4] or 1))
        elif free and line[:4] + following[:4] == "--- +++ ":
            hunk, named = None, place + 1
            yield _Line("=", _named(following, line) or path)
        elif line[:1] in ("+", "-", " ") and line and place != named:
            yield (hunk or _Hunk(0, 0, 0, 0)).take(line)
        elif hunk is not None and line:
            yield _Line("!", line.removeprefix("\\ "))


def _named(after: str, before: str) -> str:
    """The file that the two lines above a hunk name."""
    for line in (after, before):
        name = line[4:].split("\t")[0]
        if name != "/dev/null":
            return name.removeprefix("b/") if line is after else name.removeprefix("a/")
    return ""


def _path(text: str) -> str:
    found = re.search(r"^\+\+\+ b/([^\t\n]+)", text, re.MULTILINE)
    return found[1] if found else ""


def _colour(lines: Sequence[_Line], path: str) -> None:
    """Each side of a hunk as code of its own."""
    start, named = 0, path
    for end in range(len(lines) + 1):
        if end < len(lines) and lines[end].mark not in "@=":
            continue
        for side in ("+ ", "-"):
            chosen = [line for line in lines[start:end] if line.mark in side]
            # What stood before is read with the lines around it, and only its own are coloured.
            read = chosen if side == "+ " else [x for x in lines[start:end] if x.mark in "- "]
            code = Code(lexer_for(named)).take("\n".join(line.text for line in read))
            for line, shown in zip(read, code.split("\n", allow_blank=True), strict=False):
                if line.mark in side:
                    line.shown = _with_blanks_seen(line, shown)
        if end < len(lines) and lines[end].mark == "=":
            named = lines[end].text
        start = end + 1


def _with_blanks_seen(line: _Line, shown: Text) -> Text:
    """A changed line with the blanks at its end as dots, which nobody would see otherwise."""
    bare = shown.plain.rstrip(" ")
    blanks = len(shown.plain) - len(bare)
    if line.mark == " " or not blanks:
        return shown
    return Text.assemble(shown[: len(bare)], ("·" * blanks, "dim"))


def _emphasise(lines: Sequence[_Line]) -> None:
    """Underline what changed within lines that are otherwise alike."""
    place = 0
    while place < len(lines):
        removed = _run(lines, place, "-")
        added = _run(lines, place + len(removed), "+")
        for before, after in zip(removed, added, strict=False):
            _compare(before, after)
        place += max(1, len(removed) + len(added))


def _run(lines: Sequence[_Line], start: int, mark: str) -> list[_Line]:
    found = []
    for line in lines[start:]:
        if line.mark != mark:
            break
        found.append(line)
    return found


def _compare(before: _Line, after: _Line) -> None:
    if max(len(before.text), len(after.text)) > LONG:
        return
    old, new = _WORD.findall(before.text), _WORD.findall(after.text)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < ALIKE:
        return
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            _underline(before.shown, old, a, b)
            _underline(after.shown, new, c, d)


def _underline(shown: Text, words: Sequence[str], first: int, end: int) -> None:
    start = sum(map(len, words[:first]))
    length = sum(map(len, words[first:end]))
    if length:
        shown.stylize("bold underline", start, start + length)
