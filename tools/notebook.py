"""Jupyter notebooks as readable text: cells with their number, source and outputs.

Pure functions over the text of an .ipynb file (nbformat 4). Invalid parts are left out, so a
damaged notebook still shows its valid parts.
"""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ..agent.lazy import dataclass
from .offered import EVERY, Offered
from .system.capture import clean
from .system.phrasing import count_of
from .text import printable

SUFFIX = ".ipynb"
MAX_CHARS = 40_000  # per answer
MAX_OUTPUT_CHARS = 4_000  # per output, if several cells are shown
MAX_IMAGES = 8  # per answer
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
TEXT_TYPES = ("text/markdown", "text/plain", "text/latex", "text/html")


@dataclass(slots=True)
class CellPage:
    """Some cells of a notebook."""

    total: int  # cells of the notebook
    first: int
    language: str
    single: bool  # only one cell was requested, so more of it is shown
    offered: Offered
    cells: list[str] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.cells) - 1

    def shown(self, name: str) -> str:
        """Return the cells as Read shows them, and the next step."""
        kind = f"notebook ({self.language})" if self.language else "notebook"
        about = f"[{name}: {kind}, {count_of(self.total, 'cell')}"
        about += self.offered.say(
            ("; {Edit} and {Grep} see it as JSON", "; {Edit or Grep} sees it as JSON"), "]"
        )
        more = f"[cells {self.first:,}-{self.last:,} of {self.total:,}; go on with "
        more += f"offset={self.last + 1}]"
        return "\n\n".join([about, *self.cells, *([more] if self.last < self.total else [])])


def read_cells(text: str, first: int, count: int, offered: Offered = EVERY) -> CellPage:
    """Return `count` cells of a notebook, or fewer if they exceed MAX_CHARS. Raises ValueError for
    a text that is not a notebook.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"its JSON is broken: {error}") from None
    cells = found.get("cells") if isinstance(found, dict) else None
    if not isinstance(cells, list):
        raise ValueError("its JSON has no list of cells")
    language = _at(found, "metadata", "language_info", "name")
    language = language if isinstance(language, str) else ""
    page = CellPage(len(cells), first, language, single=count == 1, offered=offered)
    room = MAX_CHARS
    for number, cell in enumerate(cells[first - 1 : first - 1 + count], first):
        images = len(page.images)
        shown = _cell(number, cell, page)
        room -= len(shown)
        if room < 0 and page.cells:
            del page.images[images:]
            break
        page.cells.append(shown)
    return page


def _cell(number: int, cell: object, page: CellPage) -> str:
    run = _at(cell, "execution_count")
    heading = f"## Cell {number} · {_text(_at(cell, 'cell_type')) or 'unknown'}"
    heading += f" · run {run}" if isinstance(run, int) else ""
    parts = [heading, _text(_at(cell, "source"))]
    most = MAX_CHARS if page.single else MAX_OUTPUT_CHARS
    outputs = _at(cell, "outputs")
    for output in outputs if isinstance(outputs, list) else ():
        kind, shown = _output(output, page, number)
        parts += [f"### {kind}", _cut(shown, most, number, page)]
    return _cut("\n".join(parts), MAX_CHARS, number, page)


def _output(output: object, page: CellPage, number: int) -> tuple[str, str]:
    """Return the kind and the text of an output. Images are added to the page."""
    if _at(output, "output_type") == "stream":
        return _text(_at(output, "name")) or "output", _text(_at(output, "text"))
    if _at(output, "output_type") == "error":
        traceback = _at(output, "traceback")
        lines = map(_text, traceback if isinstance(traceback, list) else ())
        said = f"{_text(_at(output, 'ename'))}: {_text(_at(output, 'evalue'))}"
        return "error", "\n".join(lines) or said
    data = _at(output, "data")
    return "output", "\n".join(_rich(data if isinstance(data, dict) else {}, page, number))


def _rich(data: Mapping[str, Any], page: CellPage, number: int) -> Iterator[str]:
    """Yield the best text of an output with several formats, or the mark of its image."""
    if kind := next((kind for kind in IMAGE_TYPES if kind in data), ""):
        yield _image(kind, _text(data[kind]), page, number)
    elif kind := next((kind for kind in TEXT_TYPES if kind in data), ""):
        yield _text(data[kind])
    else:
        for kind, value in data.items():
            size = len(value if isinstance(value, str) else json.dumps(value))
            yield f"[{printable(kind)[:100]}, {size:,} characters: not shown]"


def _image(kind: str, encoded: str, page: CellPage, number: int) -> str:
    if len(page.images) >= MAX_IMAGES:
        way = page.offered.say("; {Read} with offset={number} and limit=1 shows it", number=number)
        return f"[{kind}: not shown here{way}]"
    try:
        page.images.append(b64decode(encoded))
    except ValueError:
        return f"[{kind}: it is garbled]"
    return f"[image {len(page.images)}]"


def _cut(text: str, most: int, number: int, page: CellPage) -> str:
    """Return a text. A long one is cut in the middle, with advice on how to see the rest."""
    if len(text) <= most:
        return text
    how = page.offered.say("; {Read} with offset={number} and limit=1 shows more", number=number)
    if page.single:
        how = f"; cells[{number - 1}] of the file has them"
        how += page.offered.say(": use jq or python3 in {Bash}")
    half = most // 2
    note = f"[{len(text) - 2 * half:,} characters are left out{how}]"
    return f"{text[:half]}\n… {note} …\n{text[-half:]}"


def _text(value: object) -> str:
    """Return a notebook text, a string or a list of lines, as a terminal would show it."""
    if isinstance(value, list):
        value = "".join(each for each in value if isinstance(each, str))
    return printable(clean(value)).rstrip("\n") if isinstance(value, str) else ""


def _at(value: object, *names: str) -> Any:
    """Return the value at a path of names in nested objects; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
