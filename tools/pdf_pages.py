"""Print the text of a PDF. This is a separate script, so that a malicious PDF that uses endless
time or memory only ends this process.

`python pdf_pages.py FIRST COUNT CHARS` reads a PDF on stdin. It writes a line of JSON about the
document, then one for each page from FIRST on: at most COUNT pages, and at most CHARS characters.
It imports no module of ctxagent.
"""

import io
import json
import logging
import os
import resource
import sys
import zlib
from typing import Any

MAX_SECONDS = 20  # of computing
MAX_MEMORY_BYTES = 2 << 30
TOO_LARGE = "it is too large when it is unpacked; try pdftotext"


def main(first: int, count: int, chars: int) -> None:
    """Write the lines. Raises pypdf's exceptions, and ValueError for a PDF with a password."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    garbled = (
        PyPdfError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
        OSError, RuntimeError, TypeError, ValueError, zlib.error,
    )  # fmt: skip
    stdin = sys.stdin.buffer
    if stdin.seekable():  # a file need not be read into memory
        stdin.seek(0)
    reader = PdfReader(stdin if stdin.seekable() else io.BytesIO(stdin.read()))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError(
            "it is encrypted and needs a password; a command can make a copy without one "
            "(qpdf --password=WORD --decrypt FILE COPY)"
        )
    total = len(reader.pages)
    try:
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except garbled:
        title = ""
    write({"pages": total, "title": title})
    skipped = SkippedParts()
    logging.getLogger("pypdf").addHandler(skipped)
    for number in range(first, min(total, first + count - 1) + 1):
        skipped.errors.clear()
        try:
            text, problem = reader.pages[number - 1].extract_text(), ""
        except garbled as error:
            text, problem = "", problem_of(error)
        if not text and not problem and skipped.errors:
            problem = problem_of(skipped.errors[0])
        if len(text) > chars and number > first:
            return
        write({"text": text[:chars], "characters": len(text), "problem": problem})
        chars -= len(text)


class SkippedParts(logging.Handler):
    """A log handler that collects the errors of page parts that pypdf skips with a warning."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        values = record.args.values() if isinstance(record.args, dict) else ()
        self.errors += [each for each in values if isinstance(each, Exception)]


def problem_of(error: Exception) -> str:
    """Return why a page cannot be read."""
    from pypdf.errors import LimitReachedError

    if isinstance(error, LimitReachedError | MemoryError):
        return TOO_LARGE
    return f"{type(error).__name__}: {error}"[:200]


def write(row: dict[str, Any]) -> None:
    """Write a line at once, so that the parent gets it even if the next page ends this process."""
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    limit = int(os.environ["CPU_SECONDS"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    if sys.platform.startswith("linux"):  # macOS refuses this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    main(*map(int, sys.argv[1:4]))
