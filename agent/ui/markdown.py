"""Markdown that arrives in pieces: finished blocks to print once, and the tail that may still grow.

A block is a paragraph, a fence, a list, a table or a heading. `Blocks` cuts a stream into them,
looking at each line once; `prose` makes a block a renderable for the terminal.
"""

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax

_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r" {0,3}([-*+]|\d{1,9}[.)])(\s|$)")
_ANY_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d{1,9}[.)]\s+|>\s?)*(`{3,}(?=[^`]*$)|~{3,})")


class Blocks:
    """Cuts a stream of Markdown into blocks. Costs the same for each line, however many came."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # of the unfinished block
        self._partial: list[str] = []  # pieces of the unfinished line
        self._fence = ""  # the marker that would close the open fence
        self._nested = False  # whether that fence stands inside a list or a quote
        self._gap = False  # a list was followed by a blank line and may still go on

    def feed(self, text: str) -> list[str]:
        """The blocks that `text` finishes, in order."""
        *lines, rest = text.split("\n")
        done: list[str] = []
        for line in lines:
            whole = "".join([*self._partial, line])
            self._partial.clear()
            done += self._line(whole)
        if rest:
            self._partial.append(rest)
        return done

    def finish(self) -> list[str]:
        """What is left, as blocks; the stream has ended."""
        done = self.feed("\n") if self._partial else []
        self._fence = ""
        return done + list(self._close())

    def tail(self, lines: int) -> str:
        """The last lines of what is not finished; inside a fence, with the line that opened it."""
        kept = self._lines[-lines:]
        if self._partial:
            kept = [*kept, "".join(self._partial)][-lines:]
        if self._fence and not self._nested and len(self._lines) > lines:
            kept = [self._lines[0], *kept]
        return "\n".join(kept)

    def _line(self, line: str) -> Iterator[str]:
        if self._fence:
            yield from self._inside_fence(line)
        elif not line.strip():
            if self._lines and _ITEM.match(self._lines[0]):
                self._gap = True
                self._lines.append(line)
            else:
                yield from self._close()
        else:
            if self._gap and not (line.startswith("  ") or _ITEM.match(line)):
                yield from self._close()
            self._gap = False
            yield from self._text(line)

    def _text(self, line: str) -> Iterator[str]:
        opening = _ANY_FENCE.match(line)
        if opening:
            in_list = bool(self._lines and _ITEM.match(self._lines[0]) and line.startswith(" "))
            self._nested = in_list or not _FENCE.match(line)
            if not self._nested:
                yield from self._close()
            self._fence = opening[1]
            self._lines.append(line)
        elif _HEADING.match(line):
            yield from self._close()
            yield line
        else:
            self._lines.append(line)

    def _inside_fence(self, line: str) -> Iterator[str]:
        self._lines.append(line)
        mark = line.strip().lstrip("> ")
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""
            if not self._nested:
                yield from self._close()

    def _close(self) -> Iterator[str]:
        block = "\n".join(self._lines).strip("\n")
        self._lines, self._gap = [], False
        if block.strip():
            yield block


class _Heading(Heading):
    LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _Code(CodeBlock):
    """Code without a background and without padding to the right, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        text = Syntax(code, self.lexer_name, theme=self.theme).highlight(code)
        text.rstrip()
        yield Padding(text, (0, 0, 0, 2), expand=False)


class _Prose(Markdown):
    """Markdown without blank lines around it: the transcript keeps the distances."""

    elements = {  # noqa: RUF012 (the base class declares it so)
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments = (s for s in super().__rich_console__(console, options) if isinstance(s, Segment))
        lines = list(Segment.split_lines(segments))
        while lines and _is_blank(lines[0]):
            del lines[0]
        while lines and _is_blank(lines[-1]):
            del lines[-1]
        for line in lines:
            yield from line
            yield Segment.line()


def _is_blank(line: list[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def prose(text: str, *, theme: str) -> Markdown:
    """A block for the terminal; `theme` is that of code, `ansi_dark` or `ansi_light`."""
    return _Prose(text, code_theme=theme, hyperlinks=False)
