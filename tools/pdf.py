"""Extract the text of PDFs in another process, since a malicious PDF can use endless time or
memory.
"""

import json
import threading
from typing import Any, BinaryIO

from ..agent.lazy import dataclass
from . import pdf_pages
from .offered import Offered
from .system.isolated import run_isolated
from .system.phrasing import count_of, one_line
from .system.unicode import clean
from .text import printable

MAGIC = b"%PDF-"
MAX_WHY_CHARS = 200

_READERS = threading.BoundedSemaphore(2)  # each may use gigabytes for a moment


@dataclass(frozen=True, slots=True)
class PdfText:
    """Some pages of a PDF."""

    title: str
    total: int  # pages of the document
    first: int
    pages: list[str]
    cut: int  # characters of the last page if it is cut, else 0
    stopped: str  # why the next page is missing, "" if it was not requested

    @property
    def last(self) -> int:
        return self.first + len(self.pages) - 1

    def with_headings(self) -> str:
        """Return the pages, each with a heading."""
        numbered = enumerate(self.pages, self.first)
        return "\n\n".join(f"## Page {number}\n\n{text}" for number, text in numbered)


def read_pdf(source: BinaryIO | bytes, first: int, count: int, chars: int) -> PdfText:
    """Return `count` pages of a PDF, or fewer if they exceed `chars` characters. Blocks. Raises
    ValueError with the reason.
    """
    pages_of = (str(first), str(count), str(chars))
    with _READERS:
        written, why = run_isolated(pdf_pages.__file__, pages_of, source, pdf_pages.MAX_SECONDS)
    why = one_line(clean(why.removeprefix("ValueError: ")), MAX_WHY_CHARS)
    lines = written.split(b"\n")[:-1]
    if not lines:
        raise ValueError(why)
    head, *rows = map(json.loads, lines)
    pages = [_page(row) for row in rows]
    cut = rows[-1]["characters"] if rows and rows[-1]["characters"] > len(rows[-1]["text"]) else 0
    title = one_line(clean(printable(head["title"])), MAX_WHY_CHARS)
    return PdfText(title, head["pages"], first, pages, cut, why)


def _page(row: dict[str, Any]) -> str:
    if row["problem"]:
        return f"[This page cannot be read: {one_line(clean(row['problem']), MAX_WHY_CHARS)}]"
    return printable(row["text"]).strip()


def shown(name: str, found: PdfText, offered: Offered) -> str:
    """Return the pages as Read shows them, with a note on missing parts and the next step."""
    title = f"; title: {found.title}" if found.title else ""
    lines = [f"[{name}: PDF, {count_of(found.total, 'page')}{title}]", found.with_headings()]
    if found.pages and not any(found.pages):
        lines.append(
            offered.say(
                "[There is no text in these pages: they are probably scanned.",
                " To see them, make images with {Bash} (pdftoppm -r 100 -png -f {first} -l {last} "
                "FILE NAME) and {Read} those.",
                "]",
                first=found.first,
                last=found.last,
            )
        )
    if found.cut:
        lines.append(
            f"[Page {found.last} has {found.cut:,} characters and is cut"
            + offered.say(
                "; {Bash} pdftotext -f {page} -l {page} can show all of it", "]", page=found.last
            )
        )
    next_page = found.last + 1
    if found.stopped:
        lines.append(
            f"[Page {next_page} cannot be read: {found.stopped}. Go on behind it with "
            f"offset={next_page + 1}{offered.say(', or try {Bash} pdftotext')}.]"
        )
    elif next_page <= found.total:
        lines.append(
            f"[pages {found.first:,}-{found.last:,} of {found.total:,}; go on with "
            f"offset={next_page}]"
        )
    return "\n\n".join(filter(None, lines))
