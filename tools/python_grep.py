"""The program that searches where ripgrep is missing: Python's `re` over a list of files.

`search_engines.py` runs this file by its path, in an interpreter of its own that can be killed when
a pattern hangs; so it imports nothing but the standard library. It reads one line of JSON (the job)
and then paths separated by NUL from stdin, and prints what ripgrep prints for `--null --column`:
`path NUL line:column:text` for matches, `path NUL line-text` for context, `path NUL` or `path NUL
count`. Exit code 2: the pattern is refused, the reason is on stderr. Exit code 0 otherwise; each
file that could not be read gives a line on stderr.
"""

import bisect
import codecs
import errno
import itertools
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

BLOCK_BYTES = 1 << 20  # bytes of a file that are looked at together
MAX_BYTES = 64 << 20  # bytes of one line, or of one file when matches may span lines
SNIFFED_BYTES = 1 << 16  # a NUL in so many first bytes: a binary file

# What may run over line ends, and so take long on a whole block, or has another meaning there.
# Without any of it a pattern matches in a block just where it matches in one of its lines.
_CROSSING = re.compile(r"\[\^|\\(?![bdwS])[A-Za-z0-9]|\(\?(?!:|P|i\))|[*+?}]\+")

Judged = tuple[int, int | None, str]  # line number, where the match starts in it, the line


def main() -> int:
    job = json.loads(sys.stdin.buffer.readline())
    paths = [path for path in sys.stdin.buffer.read().split(b"\0") if path]
    flags = re.MULTILINE
    flags |= re.IGNORECASE if job["ignore_case"] else 0
    flags |= re.DOTALL if job["multiline"] else 0
    try:
        regex = re.compile(job["pattern"], flags)
    except (re.error, OverflowError, RecursionError) as error:
        print(error, file=sys.stderr)
        return 2
    for path in paths:
        try:
            for record in search_file(path, regex, job):
                sys.stdout.buffer.write(record)
        except FileNotFoundError:
            continue  # deleted since it was listed
        except OSError as error:
            name = path.decode("utf-8", "replace")
            print(f"{name}: {error.strerror} (os error {error.errno})", file=sys.stderr)
        sys.stdout.buffer.flush()
    return 0


def search_file(path: bytes, regex: re.Pattern[str], job: dict[str, Any]) -> Iterator[bytes]:
    """Yield the records of one file as they are printed. A link has none, nor has what lies behind
    one."""
    if (descriptor := open_file(path)) is None:
        return
    with os.fdopen(descriptor, "rb") as file:
        before, after = job["before"], job["after"]
        text = next(blocks(file, MAX_BYTES), "") if job["multiline"] else ""
        if job["multiline"]:
            judged = judge_across(text, regex)
        else:
            judged = judge_lines(blocks(file, BLOCK_BYTES), regex, before, after)
        if job["mode"] == "content":
            for number, start, line in in_context(judged, before, after):
                yield path + b"\0" + _line(number, start, line)
            return
        matching = (number for number, start, _ in judged if start is not None)
        if job["mode"] == "files":
            if next(matching, None) is not None:
                yield path + b"\0"
            return
        found: Iterable[Any] = matches_across(text, regex) if job["multiline"] else matching
        count = sum(1 for _ in found)
        if count:
            yield b"%b\0%d\n" % (path, count)


def open_file(path: bytes) -> int | None:
    """Open a regular file without following a link in its path; None for anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    *folders, name = path.split(b"/")
    at = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            at, before = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at), at
            os.close(before)
        if not stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            return None
        return os.open(name, flags, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return None
        raise
    finally:
        os.close(at)


def blocks(file: BinaryIO, size: int) -> Iterator[str]:
    """Yield the text of a file in blocks of about `size` bytes that end at a line's end.

    A binary file yields none, and nothing comes from the first NUL on. UTF-16 is known by its mark.
    """
    data = file.read(size)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data += file.read(MAX_BYTES)
        yield data.decode("utf-16", "replace").replace("\r\n", "\n")
        return
    if b"\0" in data[:SNIFFED_BYTES]:
        return
    data = data.removeprefix(codecs.BOM_UTF8)
    while data:
        data += file.readline(MAX_BYTES)
        data, nul, _ = data.partition(b"\0")
        yield data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        data = b"" if nul else file.read(size)


def judge_lines(
    texts: Iterable[str], regex: re.Pattern[str], before: int, after: int
) -> Iterator[Judged]:
    """Yield lines in order, each searched by itself.

    Of a block without a match only those lines come that can be context of a match in its
    neighbours.
    """
    sieve = not _CROSSING.search(regex.pattern)
    passed = 0
    for text in texts:
        idle = sieve and not regex.search(text)
        if idle and not (before or after):
            passed += text.count("\n")
            continue
        lines = _split(text)
        for place in _edges(len(lines), before, after) if idle else range(len(lines)):
            found = None if idle else regex.search(lines[place])
            yield passed + place + 1, found.start() if found else None, lines[place]
        passed += len(lines)


def judge_across(text: str, regex: re.Pattern[str]) -> Iterator[Judged]:
    """Yield all lines in order; matches may span several."""
    lines = _split(text)
    offsets = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    starts: dict[int, int] = {}
    for found in matches_across(text, regex):
        first = bisect.bisect_right(offsets, found.start()) - 1
        last = bisect.bisect_right(offsets, max(found.start(), found.end() - 1)) - 1
        starts.setdefault(first, found.start() - offsets[first])
        for place in range(first + 1, last + 1):
            starts.setdefault(place, 0)
    for place, line in enumerate(lines):
        yield place + 1, starts.get(place), line


def matches_across(text: str, regex: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches in a text; the place after its last line end is on no line."""
    past_lines = len(text) if not text or text.endswith("\n") else -1
    return (found for found in regex.finditer(text) if found.start() != past_lines)


def in_context(judged: Iterable[Judged], before: int, after: int) -> Iterator[Judged]:
    """Yield the matching lines with so many lines before and after each."""
    recent: deque[Judged] = deque(maxlen=before)
    due = 0
    for line in judged:
        if line[1] is not None:
            yield from recent
            recent.clear()
            yield line
            due = after
        elif due:
            yield line
            due -= 1
        else:
            recent.append(line)


def _edges(count: int, before: int, after: int) -> Iterable[int]:
    return itertools.chain(range(min(after, count)), range(max(after, count - before), count))


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _line(number: int, start: int | None, line: str) -> bytes:
    text = line.encode("utf-8", "surrogateescape")
    if start is None:
        return b"%d-%b\n" % (number, text)
    column = len(line[:start].encode("utf-8", "surrogateescape")) + 1
    return b"%d:%d:%b\n" % (number, column, text)


if __name__ == "__main__":
    sys.exit(main())
