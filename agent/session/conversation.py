"""`conversation.md`: the conversation of a session as text for people and tools, made from the log.

Each entry's text is appended right after the entry is written to the log, and compaction does not
change it. The expected file size is computed from the log, so a size check shows whether the file
is complete. If the file is too short, the missing texts are appended.

If the content differs from the log, the file is rewritten. The old file is kept if it has text that
the log does not have. To find such text, the file is read as bytes and each text of the log is
found at its heading, which contains the seq of its entry. Text in between is foreign: the log lost
it, or another version wrote it.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Reversible, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...tools.system.files import (
    keeping_old,
    open_kept,
    private_opener,
    replacing,
    sync_file,
)
from ..errors import RecordError, SessionError
from ..lazy import dataclass, regex
from .entries import Assistant, Block, Entry, ToolResult, User, summarized_text
from .searches import FOUND, SEARCH_TOOL, is_search, listing, query_of

_HEADING = regex(rb"^#{2,3} ([^\n]{1,300}) \xc2\xb7 #(\d{1,15})\n\n", re.MULTILINE)


class CopiedText(NamedTuple):
    """A text below one heading. `speaker` is a source of messages, "Assistant", a tool or
    "Result".
    """

    seq: int
    speaker: str
    text: str


@dataclass(slots=True)
class CopyDifference:
    """The differences between a conversation file and the texts of a log."""

    sections: list[CopiedText] = field(default_factory=list)  # foreign, in file order
    has_foreign_text: bool = False
    in_order: bool = True  # the texts of the log are in the order of the file
    lost: set[int] = field(default_factory=set)  # seqs of sections whose entry the log lacks


class _Heading(NamedTuple):
    start: int
    end: int
    speaker: bytes
    seq: int


def compare(path: Path, texts: Iterable[tuple[int, bytes]]) -> CopyDifference:
    """Compare a conversation file with the (seq, text) pairs of a log, in the order of the log.
    Reads the whole file. Raises OSError, and the errors of `texts`.
    """
    found = CopyDifference()
    with _mapped(path) as data:
        headings = [_Heading(*m.span(), m[1], int(m[2])) for m in _HEADING.finditer(data)]
        starts: dict[int, list[int]] = {}
        for heading in headings:
            starts.setdefault(heading.seq, []).append(heading.start)
        covered, there, last = list[tuple[int, int, int]](), set[int](), 0
        for seq, text in texts:
            there.add(seq)
            first = _HEADING.search(text)
            shift = first.start() if first else 0
            places = [at - shift for at in starts.get(seq, ()) if at >= shift]
            places = [at for at in places if data[at : at + len(text)] == text]
            covered += [(at, at + len(text), seq) for at in places]
            if places:
                later = [at for at in places if at >= last]
                found.in_order = found.in_order and bool(later)
                last = (later or places)[0]
        for begin, end, bounds in _gaps(sorted(covered), len(data)):
            found.has_foreign_text = found.has_foreign_text or bool(data[begin:end].strip())
            found.sections += _sections(data, begin, end, bounds, headings)
    found.lost = {section.seq for section in found.sections} - there
    return found


@contextmanager
def _mapped(path: Path) -> Iterator[bytes | mmap]:
    with open_kept(path) as file:
        if not file.read(1):
            yield b""
            return
        with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            yield data


def _gaps(
    covered: Sequence[tuple[int, int, int]], size: int
) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield start, end and the seqs before and after, of each range that is not covered."""
    begin, before = 0, 0
    for start, end, seq in [*covered, (size, size, 1 << 60)]:
        if begin < start:
            yield begin, start, (before, seq)
        if end > begin:
            begin, before = end, seq


def _sections(
    data: bytes | mmap, begin: int, end: int, bounds: tuple[int, int], headings: Sequence[_Heading]
) -> list[CopiedText]:
    """Return the sections in a range. A line of a text that looks like a heading is ignored if its
    seq does not fit between those before and after it.
    """
    first = bisect_right(headings, begin - 1, key=lambda heading: heading.start)
    last = bisect_right(headings, end - 1, key=lambda heading: heading.start)
    fitting = [each for each in headings[first:last] if bounds[0] <= each.seq <= bounds[1]]
    kept = _longest_rising(fitting)
    ends = [*(heading.start for heading in kept), end][1:]
    return [
        CopiedText(
            heading.seq,
            heading.speaker.decode("utf-8", "replace"),
            data[heading.end : stop].decode("utf-8", "replace").removesuffix("\n\n"),
        )
        for heading, stop in zip(kept, ends, strict=True)
    ]


def _longest_rising(headings: Sequence[_Heading]) -> list[_Heading]:
    """Return the longest selection of headings whose seqs never fall."""
    tops, before = list[int](), list[int | None]()  # indexes of headings
    for index, heading in enumerate(headings):
        place = bisect_right(tops, heading.seq, key=lambda top: headings[top].seq)
        before.append(tops[place - 1] if place else None)
        tops[place : place + 1] = [index]
    chosen, at = list[_Heading](), tops[-1] if tops else None
    while at is not None:
        chosen.append(headings[at])
        at = before[at]
    return chosen[::-1]


CONVERSATION_NAME = "conversation.md"
MAX_BYTES_AT_OPEN = 8 << 20  # a longer file is rewritten only with the first new entry


def conversation_text(entry: Entry) -> bytes:
    """Return the text that an entry adds to the conversation, or b"" if it adds none."""
    blocks: list[Block] = []
    speaker = "Assistant"
    if isinstance(entry, User):
        content = entry.content
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        speaker = "User" if entry.source == "person" else entry.source.capitalize()
    elif isinstance(entry, ToolResult):
        blocks = [{"type": "tool_result", "content": entry.content}]
    elif isinstance(entry, Assistant) and entry.purpose == "turn":
        blocks = entry.content
    texts = filter(None, (block_text(block, speaker, entry.seq) for block in blocks))
    return "".join(f"{text}\n\n" for text in texts).encode("utf-8", "replace")


def block_text(block: Block, speaker: str, seq: int) -> str:
    """Return a block of an entry under a heading that names the speaker. Return "" for thinking."""
    kind = block.get("type")
    if kind == "text":
        return f"## {speaker} · #{seq}\n\n{block.get('text', '')}"
    if kind == "tool_use":
        arguments = json.dumps(block.get("input"), ensure_ascii=False)
        return f"## {block.get('name')} · #{seq}\n\n{arguments}"
    if is_search(block):
        return f"## {SEARCH_TOOL} · #{seq}\n\n{query_of(block)}"
    if kind == FOUND:
        return f"### Result · #{seq}\n\n{listing(block)}"
    if kind == "tool_result":
        content = block.get("content")
        text = content if isinstance(content, str) else _text_of_blocks(content)
        return f"### Result · #{seq}\n\n{text}"
    if text := summarized_text(block):
        return f"## Summary · #{seq}\n\n{text}"
    return f"[{kind}]" if kind in ("image", "document") else ""


def _text_of_blocks(content: Any) -> str:
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(b.get("text", f"[{b.get('type')}]")) for b in blocks)


class ConversationFile:
    """`conversation.md` in the folder of a session that this process writes. `size` is the total
    size in bytes of the texts of all `entries`, and `missing` are the texts that the file lacks at
    its end, if they are known. The entries are read only if the file is wrong.
    """

    def __init__(
        self,
        folder: Path,
        entries: Reversible[Entry],
        size: int,
        missing: Sequence[bytes] | None = None,
    ) -> None:
        self.path = folder / CONVERSATION_NAME
        self._entries, self._size = entries, size
        self._is_whole = False  # the file matches the log
        with suppress(OSError, SessionError):
            self._complete(missing, may_rewrite=size <= MAX_BYTES_AT_OPEN)

    def add(self, entry: Entry) -> None:
        """Append the newest entry of the log. After a failure, the next call appends the missing
        texts.
        """
        if text := conversation_text(entry):
            before, self._size = self._size, self._size + len(text)
            with suppress(OSError, SessionError):
                if self._is_whole and size_of(self.path) == before:
                    _append(self.path, before, [text])
                else:
                    self._complete()

    def sync(self) -> None:
        """Flush the whole conversation to the storage device. Raises RecordError and
        SessionError.
        """
        try:
            self._complete()
            if not self._size:
                return
            with open_kept(self.path) as file:
                sync_file(file.fileno())
        except OSError as error:
            raise RecordError(
                f"cannot write {self.path}: {error.strerror}",
                hint="Free disk space, then continue.",
            ) from error

    def _complete(
        self, missing: Sequence[bytes] | None = None, *, may_rewrite: bool = True
    ) -> None:
        """Make the file match the log. Rewrite it only if `may_rewrite`. Raises OSError, and
        SessionError for a missing log.
        """
        size = size_of(self.path)
        if size and missing is None:
            missing = missing_texts(self.path, self._entries, self._size)
        if missing:
            _append(self.path, self._size - sum(map(len, missing)), missing)
        elif missing is None and (size or self._size):
            if not may_rewrite:
                return
            write_conversation(self.path.parent, self._entries)
        self._is_whole = True


def missing_texts(path: Path, entries: Reversible[Entry], whole_size: int) -> list[bytes] | None:
    """Return the texts of `entries` that a conversation file lacks at its end. `whole_size` is the
    size in bytes of all texts. Return None if the file must be rewritten, because too much is
    missing or the text before the gap differs. Raises OSError.
    """
    size, begin, missing = size_of(path), whole_size, list[bytes]()
    if size > whole_size:
        return None
    for text in filter(None, map(conversation_text, reversed(entries))):
        if begin <= size:
            with open_kept(path) as file:
                file.seek(max(0, begin - len(text)))
                return missing[::-1] if file.read(len(text)) == text else None
        begin -= len(text)
        missing.append(text)
        if whole_size - begin > MAX_BYTES_AT_OPEN:
            break
    return None


def write_conversation(folder: Path, entries: Iterable[Entry]) -> None:
    """Rewrite the whole conversation. Keep the old file if it has text that the entries do not
    have. Raises OSError and leaves the old file unchanged on failure.
    """
    path = folder / CONVERSATION_NAME
    is_foreign = bool(size_of(path)) and compare(path, conversation_texts(entries)).has_foreign_text
    with (
        keeping_old(path) if is_foreign else nullcontext(),
        replacing(path, part_name=f"{path.name}.part") as file,
    ):
        file.writelines(map(conversation_text, entries))


def conversation_texts(entries: Iterable[Entry]) -> Iterator[tuple[int, bytes]]:
    """Yield the seq and the text of each entry that adds text to the conversation."""
    for entry in entries:
        if text := conversation_text(entry):
            yield entry.seq, text


@contextmanager
def new_conversation(folder: Path) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that writes the texts of a log to a new conversation file, called in log
    order while the log is read. It does nothing if the file exists, and stops at the first write
    error.
    """
    path = folder / CONVERSATION_NAME
    with suppress(OSError), ExitStack() as stack:
        file: BinaryIO | None = None
        with suppress(OSError):
            if not path.exists():
                part = replacing(path, part_name=f"{path.name}.part", durable=False)
                file = stack.enter_context(part)

        def write(text: bytes) -> None:
            nonlocal file
            if file is not None:
                try:
                    file.write(text)
                except OSError:
                    file = None

        yield write


def size_of(path: Path) -> int:
    """Return the size of a file, or 0 for a missing file. Raises OSError."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(path: Path, end: int, texts: Sequence[bytes]) -> None:
    """Write texts after the first `end` bytes of a file. On failure, truncate the file to `end`
    bytes and raise OSError.
    """
    with open(path, "ab", buffering=0, opener=private_opener) as file:
        file.truncate(end)
        try:
            rest = memoryview(b"".join(texts))
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(end)
            raise
