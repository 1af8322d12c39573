r"""Estimates of token counts until the API reports the real ones.

The usage of the last reply is exact, so only later additions are estimated. Each reply corrects a
factor for the current model (`view.py`). The estimate counts word classes. Measured against a
Claude tokenizer with one fitted factor, it errs by 5 % at the median and 17 % at p90.
Characters/3.5 errs by 16 % and 51 %. If the vocabulary of tiktoken's cl100k is already on disk, it
is used instead (7 % and 15 %, with fewer large errors).

The count of word classes is the number of matches of this regular expression:

    [A-Z]{1,4}[a-z]{0,9}|[a-z]{1,10}  runs of letters
    [0-9]{1,3}
    \n[ \t]*                          a newline with its indent
    [ \t]{3,}
    [CJK]                             one character, see _WIDE
    [!-/:-@[-`{-~]{1,3}               punctuation
    [any other non-ASCII]{1,2}

A regular expression takes 110 ns per character of source code, and resuming a session counts all
results of its log. So this module converts the whole text to one integer, with a byte for each byte
of UTF-8, and uses bit operations. That takes 6 to 8 ns per character.
"""

import hashlib
import json
import os
import string
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ..lazy import regex
from ..session.searches import FOUND

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WIDE = regex(rf"[{_CJK}]|[^\x00-\x7f{_CJK}]{{1,2}}")

_BITS = 8  # per byte
_LOWER, _UPPER, _DIGIT, _PUNCTUATION, _BLANK, _NEWLINE = (1 << n for n in range(6))
# The most bytes of a run that one match covers.
_MAX_LOWER, _MAX_UPPER, _MAX_OTHERS = 10, 4, 3
_NON_ASCII_ONLY = bytes(byte if byte > 0x7F else 0x20 for byte in range(256))


def _class_bits() -> bytes:
    """Return a table that maps each byte to the bit of its class, or to zero."""
    table = bytearray(256)
    for characters, bit in (
        (string.ascii_lowercase, _LOWER),
        (string.ascii_uppercase, _UPPER),
        (string.digits, _DIGIT),
        (string.punctuation, _PUNCTUATION),
        (" \t", _BLANK),
        ("\n", _NEWLINE),
    ):
        for character in characters:
            table[ord(character)] = bit
    return bytes(table)


_CLASS_BITS = _class_bits()


@cache
def _masks(count: int) -> tuple[int, ...]:
    """Return one mask of `count` bytes for each group of classes."""
    each = int.from_bytes(b"\1" * count, "little")
    others = _DIGIT | _PUNCTUATION
    visible = _LOWER | _UPPER | others
    return tuple(each * bits for bits in (_LOWER, _UPPER, others, _BLANK, _NEWLINE, visible))


def count_word_classes(text: str) -> int:
    """Return the number of word classes in a text."""
    data = text.encode("utf-8", "surrogatepass")
    lower, upper, others, blank, newline, visible = _masks(1 << len(data).bit_length())
    here = int.from_bytes(data.translate(_CLASS_BITS), "little")
    before = here << _BITS  # the class of the byte before
    wider = before >> 1  # the same, shifted to the bit of the next smaller class
    # A capital before a lower-case letter starts a lower-case run too, which is not counted.
    capitals = here >> 1 & here >> _BITS & lower
    inner = here & before | wider & here & lower  # bytes that continue a run
    two = inner & inner << _BITS  # bytes after at least two bytes of a run, and so on
    three = two & inner << 2 * _BITS
    four = two & two << 2 * _BITS
    ten = four & four << 4 * _BITS & two << 8 * _BITS
    first = here ^ inner
    begins = first & visible | capitals
    begins = _with_steps(begins, ten & lower, _MAX_LOWER)
    begins = _with_steps(begins, four & upper, _MAX_UPPER)
    begins = _with_steps(begins, three & others, _MAX_OTHERS)
    begins |= here & newline
    if wide := two & blank:
        first ^= first & wider  # blanks after a newline belong to it
        begins |= first << 2 * _BITS & wide
    count = begins.bit_count() - capitals.bit_count()
    return count if text.isascii() else count + _count_wide(data)


def _with_steps(begins: int, ends: int, step: int) -> int:
    """Add the later matches of a run to its first match, one every `step` bytes. `ends` marks the
    bytes that have at least `step` bytes of the run before them. Each round doubles the distance,
    so that a long run takes few rounds.
    """
    shift = step * _BITS
    while ends:
        begins |= begins << shift & ends
        ends &= ends << shift
        shift *= 2
    return begins


def _count_wide(data: bytes) -> int:
    """Return the count of the non-ASCII characters in UTF-8 data."""
    runs = b" ".join(data.translate(_NON_ASCII_ONLY).split())
    return len(_WIDE.findall(runs.decode("utf-8", "surrogatepass")))


_SAMPLE_CHARS = 65_536
VOCABULARY_FILE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # tiktoken's name for the file
_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_BYTES_PER_BASE64_CHAR = 0.75
_CHARS_PER_TOKEN = 3.5  # for texts of which only the length is known
_IMAGE_TOKENS = (
    1_600  # tokens of an image at the API's largest useful size (1568 px on the long edge)
)


RESULT_FRAME = 8  # tokens of a result in addition to its content
_to_json = json.JSONEncoder(ensure_ascii=False).encode  # made once, because each call uses it

_count: Callable[[str], int] = count_word_classes


def vocabulary_path() -> Path | None:
    """Return the path of the vocabulary in tiktoken's cache, or None if the file is missing or
    incomplete. Never call tiktoken without it: tiktoken would download the file, with no timeout.
    """
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    try:  # gettempdir writes a file to test each folder, so it fails on a full disk
        path = Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / VOCABULARY_FILE
        whole = folder != "" and hashlib.sha256(path.read_bytes()).hexdigest() == _SHA256
    except OSError:
        return None
    return path if whole else None


def use_vocabulary() -> bool:
    """Count with the vocabulary from now on if it is on disk. Return True if it is used. Loading
    takes 0.3 s.
    """
    global _count
    if _count is count_word_classes and vocabulary_path() is not None:
        import tiktoken

        encode = tiktoken.get_encoding("cl100k_base").encode_ordinary
        _count = lambda text: len(encode(text))  # noqa: E731
    return _count is not count_word_classes


def estimate(text: str) -> int:
    """Return the estimated tokens of a text. Above 256 KiB, extrapolate from three samples to limit
    the cost.
    """
    if len(text) <= _SAMPLE_CHARS:
        return _count(text)
    if len(text) <= 4 * _SAMPLE_CHARS:
        return sum(
            _count(text[at : at + _SAMPLE_CHARS]) for at in range(0, len(text), _SAMPLE_CHARS)
        )
    middle = len(text) // 2
    samples = (text[:_SAMPLE_CHARS], text[middle : middle + _SAMPLE_CHARS], text[-_SAMPLE_CHARS:])
    return sum(_count(s) for s in samples) * len(text) // (3 * _SAMPLE_CHARS)


def estimate_length(characters: int) -> int:
    """Return the estimated tokens of an unknown text with this number of characters."""
    return round(characters / _CHARS_PER_TOKEN)


def estimate_block(block: dict[str, Any]) -> int:
    """Return the estimated tokens of a content block, including its frame."""
    kind = block.get("type")
    if kind == "text":
        return estimate(str(block.get("text", "")))
    if kind == "tool_use":
        return 12 + _estimate_json(block.get("input", {}))
    if kind == "tool_result":
        content = block.get("content") or ""
        if isinstance(content, list):  # nested results (a damaged log) are not sent
            content = [b for b in content if not (isinstance(b, dict) and b.get("type") == kind)]
        return RESULT_FRAME + estimate_content(content)
    if kind in ("image", "document"):
        return _IMAGE_TOKENS
    if kind == FOUND:
        return 8 + _estimate_found(block.get("content"))
    if kind == "thinking":
        return estimate(str(block.get("thinking", "")))
    if kind == "redacted_thinking":
        return len(str(block.get("data", ""))) // 8
    return _estimate_json(block)


def estimate_content(content: str | list[dict[str, Any]]) -> int:
    """Return the estimated tokens of content. Items of a damaged log that are not blocks count as
    zero.
    """
    if isinstance(content, str):
        return estimate(content)
    blocks = content if isinstance(content, list) else ()
    return sum(estimate_block(b) for b in blocks if isinstance(b, dict))


def _estimate_found(content: Any) -> int:
    """Return the estimated tokens of search results. Their encrypted texts (base64) are counted by
    length.
    """
    if not isinstance(content, list):
        return _estimate_json(content)
    pages = [page for page in content if isinstance(page, dict)]
    hidden = sum(len(str(page.get("encrypted_content", ""))) for page in pages)
    shown = [{k: v for k, v in page.items() if k != "encrypted_content"} for page in pages]
    return _estimate_json(shown) + round(hidden * _BYTES_PER_BASE64_CHAR / _CHARS_PER_TOKEN)


def _estimate_json(value: Any) -> int:
    try:
        return estimate(_to_json(value))
    except RecursionError:  # a value this deep is not sent either
        return 0
