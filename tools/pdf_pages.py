"""Print the text of a PDF: a script of its own, so that a file that is made to take for ever, or
all memory, ends with it.

`python pdf_pages.py FIRST COUNT CHARS` reads a PDF on stdin. It writes a line of JSON about the
document, then one for each page from FIRST on: at most COUNT pages, and at most CHARS characters.
It imports nothing of the program.
"""

import io
import json
import resource
import sys
import zlib
from typing import Any

MAX_SECONDS = 20  # after which its starter ends it
MAX_MEMORY_BYTES = 2 << 30


def main(first: int, count: int, chars: int) -> None:
    """Write the lines. Raises what pypdf raises, and ValueError for a PDF with a password."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    garbled = (
        PyPdfError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
        OSError, RuntimeError, TypeError, ValueError, zlib.error,
    )  # fmt: skip
    stdin = sys.stdin.buffer
    if stdin.seekable():  # a file, which need not be held in memory
        stdin.seek(0)
    reader = PdfReader(stdin if stdin.seekable() else io.BytesIO(stdin.read()))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError(
            "it is encrypted and needs a password; Bash can make a copy without one "
            "(qpdf --password=WORD --decrypt FILE COPY)"
        )
    total = len(reader.pages)
    try:
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except garbled:
        title = ""
    write({"pages": total, "title": title})
    for number in range(first, min(total, first + count - 1) + 1):
        try:
            text, problem = reader.pages[number - 1].extract_text(), ""
        except garbled as error:
            text, problem = "", f"{type(error).__name__}: {error}"[:200]
        if len(text) > chars and number > first:
            return
        write({"text": text[:chars], "characters": len(text), "problem": problem})
        chars -= len(text)


def write(row: dict[str, Any]) -> None:
    """Write a line that the starter gets even if the next page ends this process."""
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    limit = MAX_SECONDS + 1  # without a starter it ends as well
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    if sys.platform.startswith("linux"):  # macOS refuses this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    main(*map(int, sys.argv[1:4]))
