"""Text in files: encodings, line ends, diffs, and numbered lines.

Pure functions over bytes and strings. All readers of a project's files decode them here.
`recognise` decides on an encoding by this evidence, in order: a byte order mark, valid UTF-8, what
the project states, the bytes themselves, and other files of the same kind. `splice` changes a part
of a text and keeps all other bytes.
"""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any

from ..agent.lazy import dataclass, regex
from .encoding.codec_names import codec_of
from .encoding.likelihood import decodes, excess, guess

CHUNK_BYTES = 64 * 1024  # read at once; of a large file, only the first chunk is evidence
SAMPLE_BYTES = 1 << 20  # to judge by, if they have other characters than ASCII
MAX_EXCESS_BITS = 20.0  # against the encoding of other files of the same kind
CONTEXT_LINES = 3  # lines shown on either side of a change
MAX_DIFF_LINES = 400
MAX_DIFF_CHARS = 40_000
MAX_DIFF_LINE_CHARS = 2_000  # characters of one line of a diff
MAX_EQUAL_PAIRS = 4_000_000  # pairs of equal lines; with more, difflib may take many seconds

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, since it begins with UTF-16's BOM
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"\x7fELF", "ELF program or library"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program or library"),
    (b"MZ", "Windows program or library"),
    (b"\0asm", "WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"PK\x03\x04", "zip archive (also jar, docx, xlsx, whl)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"%PDF-", "PDF document"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"RIFF", "RIFF media (wav, avi, webp)"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
)
_ODD_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\b\t\n\r\f\x1b"})
_ODD_CONTROL = regex(r"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_ESCAPED = regex(r"[\udc80-\udcff]")
_SURROGATE = regex(r"[\ud800-\udfff]")
_NOT_ASCII = regex(r"[^\x00-\x7f]")
_SWITCH = b"\x1b$"  # begins two-byte characters in ISO-2022, which has only bytes of ASCII
_C1 = regex(rb"[\x80-\x9f]")


class NotText(ValueError):
    """The bytes are not text in a known encoding."""


@dataclass(frozen=True, slots=True)
class Form:
    """The byte form of a text: encoding, BOM and error handling."""

    encoding: str = "utf-8"
    bom: bytes = b""
    errors: str = "strict"  # surrogateescape preserves invalid UTF-8 bytes through an edit
    is_certain: bool = True  # otherwise the encoding is only the most likely one

    @property
    def is_unicode(self) -> bool:
        return self.encoding.startswith("utf-")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence about an encoding outside the bytes of a file."""

    stated: str = ""  # the encoding that the project states, with `-bom` for a byte order mark
    siblings: Callable[[], str] = str  # the encoding of files of the same kind


def recognise(data: bytes, *, whole: bool = True, evidence: Evidence | None = None) -> Form:
    """Return the form of a file's bytes, or of its first bytes if not `whole`. Raises NotText."""
    evidence = evidence or Evidence()
    stated = evidence.stated.removesuffix("-bom")
    bom, encoding = next(((b, e) for b, e in _BOMS if data.startswith(b)), (b"", "utf-8"))
    body = data[len(bom) :]
    if encoding == "utf-8" and b"\0" in body:
        encoding = "" if bom else _wide(body, stated)
    if encoding != "utf-8":
        if encoding and _decodes(body, encoding, whole):
            return Form(encoding, bom)
        raise NotText
    if _SWITCH in body and body.isascii():
        return Form(bom=bom, is_certain=False)
    legacy = "" if stated.startswith("utf-") else stated
    if _decodes(body, "utf-8", whole):
        return Form(legacy if legacy and body.isascii() and not bom else "utf-8", bom)
    if legacy and not bom and decodes(body, legacy, whole=whole):
        return Form(_narrow(legacy, body))
    if bom or _mostly_utf8(body):
        return Form("utf-8", bom, "surrogateescape")
    if kind(body) or 50 * (len(body) - len(body.translate(None, _ODD_CONTROLS))) > len(body):
        raise NotText
    return _legacy(body, whole, evidence)


def _legacy(body: bytes, whole: bool, evidence: Evidence) -> Form:
    """Return the form of a text in an encoding that its bytes or similar files suggest."""
    found = guess(body, whole=whole)
    if not found.is_certain:
        other = evidence.siblings()
        if other and decodes(body, other, whole=whole) and excess(body, other) <= MAX_EXCESS_BITS:
            return Form(_narrow(other, body))
    return Form(_narrow(found.encoding or "latin-1", body), is_certain=found.is_certain)


def _narrow(encoding: str, body: bytes) -> str:
    """Return the smaller of two encodings that differ only in bytes that the text lacks."""
    if encoding not in ("cp1252", "latin-1"):
        return encoding
    return "cp1252" if _C1.search(body) and decodes(body, "cp1252") else "latin-1"


def in_encoding(data: bytes, name: str, *, whole: bool = True) -> Form:
    """Return the form of a text in a named encoding. Raises ValueError if that is unknown or does
    not fit.
    """
    encoding = codec_of(name)
    bom, wide = next(((b, e) for b, e in _BOMS if data.startswith(b)), (b"", ""))
    if wide.startswith(encoding):
        return Form(wide, bom)
    if encoding in ("utf-16", "utf-32"):
        encoding = _wide(data, "") or f"{encoding}-le"
    try:
        codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start:,} of the file is not valid {encoding}") from None
    return Form(encoding)


def new_form(name: str) -> Form:
    """Return the form of a new file in an encoding, with `-bom` for a byte order mark."""
    if not name:
        return Form()
    encoding = codec_of(name)
    if encoding in ("utf-16", "utf-32"):  # readers need a mark to know the order
        encoding, name = f"{encoding}-le", f"{name}-bom"
    bom = next((b for b, e in _BOMS if e == encoding and name.endswith("-bom")), b"")
    return Form(encoding, bom)


def decode(data: bytes, evidence: Evidence | None = None) -> tuple[str, Form]:
    """Return the text without the BOM, line ends unchanged, and its form. Raises NotText."""
    form = recognise(data, evidence=evidence)
    return decode_as(data, form), form


def decode_as(data: bytes, form: Form) -> str:
    """Return the text of a form without the BOM, line ends unchanged."""
    return data[len(form.bom) :].decode(form.encoding, form.errors)


def encode(text: str, form: Form) -> bytes:
    """Return the bytes of a text. Raises UnicodeEncodeError for a character that the encoding
    lacks.
    """
    return form.bom + text.encode(form.encoding, form.errors)


def byte_offsets(data: bytes, text: str, places: Iterable[int], form: Form) -> list[int]:
    """Return the offset of each character in the bytes of a file. `places` are sorted."""
    found: list[int] = []
    done, at = 0, len(form.bom)
    if not form.is_unicode and len(text) == len(data):  # one byte for each character
        return list(places)
    for place in places:
        at = _passed(data, at, text[done:place], form)
        found.append(at)
        done = place
    return found


def _passed(data: bytes, at: int, text: str, form: Form) -> int:
    """Return the offset behind a text that begins at an offset."""
    if form.is_unicode:
        return at + len(text.encode(form.encoding, form.errors))
    # In the other encodings a line feed is always one byte. Bytes that decode to the same character
    # may differ, so characters are counted and not encoded.
    for _ in range(text.count("\n")):
        at = data.index(b"\n", at) + 1
    decoder, left = codecs.getincrementaldecoder(form.encoding)(), len(text) - text.rfind("\n") - 1
    while left > 0:
        left -= len(decoder.decode(data[at : at + 1]))
        at += 1
    return at


def kind(data: bytes) -> str:
    """Return the kind of binary data by its first bytes; "" if unknown."""
    return next((name for magic, name in _MAGIC if data.startswith(magic)), "")


def line_end(text: str) -> str:
    r"""Return the line end of most lines: `\r\n` or `\n`."""
    return "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"


def unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def printable(text: str) -> str:
    """Replace each byte that was not valid by a replacement character."""
    return _SURROGATE.sub("\ufffd", text)


def lone_surrogate(text: str) -> re.Match[str] | None:
    """Find the first lone surrogate, which JSON can contain but a file cannot."""
    return _SURROGATE.search(text)


def line_at(text: str, offset: int) -> int:
    """Return the line number of an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1


def same_start(one: str, two: str) -> int:
    """Return the number of equal characters at the start of two texts."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(two[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def split(text: str) -> list[str]:
    r"""Return the lines without their ends.

    Only `\n` and `\r\n` end a line; a last line may lack it.
    """
    lines = unix(text).split("\n")
    return lines if lines[-1] else lines[:-1]


def cut_long_line(line: str, limit: int) -> str:
    """Return a line for display, cut after `limit` characters."""
    line = printable(line)
    return line if len(line) <= limit else f"{line[:limit]}… [{len(line):,} characters]"


def number(lines: list[str], first: int, limit: int = 300) -> str:
    """Return lines with their numbers, as Read shows them, each cut after `limit` characters."""
    return "\n".join(f"{n}\t{cut_long_line(line, limit)}" for n, line in enumerate(lines, first))


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff."""

    text: str  # limited, for the log
    whole: str  # unlimited, for the approval prompt
    added: int
    removed: int


def compare(before: str | None, after: str, name: str) -> Diff:
    """Return the diff from `before` to `after`; None is a file that does not exist.

    Line ends do not count. `Diff.text` is limited to MAX_DIFF_LINES lines and about MAX_DIFF_CHARS
    characters, with a note about the rest.
    """
    lines = list(_hunks(_ended(before or ""), _ended(after)))
    if not lines:
        return Diff("", "", 0, 0)
    source = "/dev/null" if before is None else f"a/{name}"
    head = [f"--- {source}", f"+++ b/{name}"]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    text, whole = ("\n".join([*head, *body]) + "\n" for body in (_bounded(lines), lines))
    return Diff(text, whole, added, removed)


def _hunks(before: list[str], after: list[str]) -> Iterator[str]:
    start, end = _shared(before, after)
    a, b = before[start : len(before) - end], after[start : len(after) - end]
    for group in _groups(a, b):
        (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
        yield f"@@ -{_span(start + a1, a2 - a1)} +{_span(start + b1, b2 - b1)} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in a[i1:i2])
            else:
                yield from (f"-{line}" for line in a[i1:i2])
                yield from (f"+{line}" for line in b[j1:j2])


def _groups(a: list[str], b: list[str]) -> Iterator[list[tuple[str, int, int, int, int]]]:
    times = Counter(b)
    popular = len(b) // 100 + 1 if len(b) >= 200 else len(b)  # difflib ignores more frequent lines
    if sum(times[line] for line in a if times[line] <= popular) <= MAX_EQUAL_PAIRS:
        yield from SequenceMatcher(None, a, b).get_grouped_opcodes(CONTEXT_LINES)
    else:
        yield [("replace", 0, len(a), 0, len(b))]


def _shared(a: list[str], b: list[str]) -> tuple[int, int]:
    """Return the number of equal lines at the start and at the end, minus the context lines."""
    most = min(len(a), len(b))
    start = next((i for i in range(most) if a[i] != b[i]), most)
    end = next((i for i in range(most - start) if a[-1 - i] != b[-1 - i]), most - start)
    return max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)


def _span(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"


def _ended(text: str) -> list[str]:
    lines = split(text)
    if text and not text.endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _bounded(lines: list[str]) -> list[str]:
    out: list[str] = []
    size = 0
    for place, line in enumerate(lines):
        line = line[0] + cut_long_line(line[1:], MAX_DIFF_LINE_CHARS)
        size += len(line)
        if place == MAX_DIFF_LINES or size > MAX_DIFF_CHARS:
            return [*out, f"… {len(lines) - place:,} more lines of diff are not shown"]
        out.append(line)
    return out


def _decodes(data: bytes, encoding: str, whole: bool) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return encoding == "utf-8" or not _ODD_CONTROL.search(text)


def _wide(data: bytes, stated: str) -> str:
    """Return the UTF-16 variant of a text without a BOM, as stated or judged by its zero bytes; ""
    for none.
    """
    if stated.startswith(("utf-16-", "utf-32-")):
        return stated
    sample = data[:8192]
    low, high = Counter(sample[0::2]), Counter(sample[1::2])
    if low[0] > high[0]:
        low, high = high, low
    half = len(sample) // 2
    # The upper bytes of a text are zero or, in another alphabet, one more value.
    uniform = sum(times for _, times in high.most_common(2)) >= 0.95 * half
    is_text = 10 * high[0] >= (half if uniform else 3 * half) and 4 * low[0] <= high[0]
    return ("utf-16-le" if high[0] == sample[1::2].count(0) else "utf-16-be") if is_text else ""


def _mostly_utf8(data: bytes) -> bool:
    text = data[:SAMPLE_BYTES].decode("utf-8", "surrogateescape")
    if text.isascii():
        text = data.decode("utf-8", "surrogateescape")
    invalid = len(_ESCAPED.findall(text))
    return invalid < len(_NOT_ASCII.findall(text)) - invalid


def strings_in(given: Any) -> Iterator[str]:
    """Yield the strings in a call's arguments, including nested ones."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            yield from strings_in(each)
