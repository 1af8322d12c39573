"""Shapes of keys, tokens and passwords, and their removal from a text.

A shape's pattern is tried only if the text contains one of its needles, so a text without needles
costs almost nothing. Patterns use possessive repeats to keep the time linear in the text length.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from ..lazy import regex

MAX_PRIVATE_KEY_CHARS = 20_000  # in PEM
_DASHES = "-----"
_BEGIN_MARKER, _END_MARKER = f"{_DASHES}BEGIN ", f"{_DASHES}END "


class _Shape(NamedTuple):
    """One kind of secret."""

    kind: str
    needles: tuple[str, ...]  # every text with such a secret contains one of them
    pattern: str  # the secret is its last group, or the whole match
    is_secret: Callable[[str], bool] = bool  # returns True if the match is a secret


def is_mixed(text: str) -> bool:
    """Return True if a text has both letters and digits. Keys do, slugs and words do not."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _has_capitals(text: str) -> bool:
    return is_mixed(text) and text.lower() != text


def _is_real_value(text: str) -> bool:
    """Return True if a text is not a placeholder or a word such as `password`."""
    return not _PLACEHOLDER.search(text)


def _looks_random(text: str) -> bool:
    """Return True if a text looks like a random string."""
    counts = Counter(text).values()
    bits = -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
    drawn = len(text) >= 12 and bits > 3.0 and is_mixed(text)
    return drawn and _is_real_value(text) and not _PATH_OR_ADDRESS.match(text)


_PLACEHOLDER = regex(
    r"(?i)^(?:x+|\*+|\.+|-+)$|^(?:pass|pwd|password|passwd|secret|token|key|none|null|true|false|"
    r"undefined|string|required|optional)$|your|example|change.?me|placeholder|dummy|redacted|"
    r"insert|\bxxx|\.\.\.|…|\*\*\*"
)
_PATH_OR_ADDRESS = regex(r"/\w[\w.-]*/|\.{0,2}/\w+$|~/|[a-z]+://|\[redacted")
_NOT_BEFORE = r"(?<![A-Za-z0-9_-])"
_SHAPES = (
    _Shape("AWS key", ("AKIA", "ASIA"), r"(?<![A-Za-z0-9])A[KS]IA[A-Z2-7]{4}[A-Z0-9]{12}(?!\w)"),
    _Shape(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        rf"{_NOT_BEFORE}(?:gh[pousr]_[A-Za-z0-9]{{20,255}}|github_pat_[A-Za-z0-9_]{{20,255}})",
    ),
    _Shape(
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-"),
        rf"{_NOT_BEFORE}gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_.-]{{20,300}}",
        is_mixed,
    ),
    _Shape(
        "Slack token",
        ("xoxa-", "xoxb-", "xoxe", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
        rf"{_NOT_BEFORE}(?:xox[abeprs][.-]|xapp-)[A-Za-z0-9.-]{{10,300}}",
        is_mixed,
    ),
    _Shape(
        "Slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9+/]{40,200})",
    ),
    _Shape(
        "Google key",
        ("AIza", "ya29.", "GOCSPX-"),
        rf"{_NOT_BEFORE}(?:AIza[\w-]{{35}}(?![\w-])|ya29\.[\w-]{{20,1000}}|GOCSPX-[\w-]{{20,60}})",
    ),
    _Shape(
        "Stripe key",
        ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"),
        rf"{_NOT_BEFORE}(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{{16,250}}",
        is_mixed,
    ),
    _Shape(
        "API key",
        ("sk-",),
        rf"{_NOT_BEFORE}sk-(?:(?:ant|proj|svcacct|admin|or)-[\w-]{{16,300}}|[A-Za-z0-9]{{20,100}})",
        is_mixed,
    ),
    _Shape(
        "JWT",
        ("eyJ",),
        rf"{_NOT_BEFORE}eyJ[\w-]{{8,4000}}+\.eyJ[\w-]{{8,16000}}+\.[\w-]{{10,2000}}",
    ),
    _Shape("npm token", ("npm_",), rf"{_NOT_BEFORE}npm_[A-Za-z0-9]{{30,60}}(?!\w)", is_mixed),
    _Shape("PyPI token", ("pypi-",), rf"{_NOT_BEFORE}pypi-[\w-]{{40,400}}", _has_capitals),
    _Shape(
        "token",
        ("hf_", "dop_v1_", "SG.", "dckr_pat_", "shpat_", "hvs.", "AGE-SECRET-KEY-1", "rubygems_"),
        rf"{_NOT_BEFORE}(?:hf_[A-Za-z]{{34}}(?!\w)|dop_v1_[a-f0-9]{{64}}"
        r"|SG\.[\w-]{16,32}\.[\w-]{40,50}|dckr_pat_[\w-]{20,60}|shpat_[a-f0-9]{32}"
        r"|hvs\.[\w-]{24,200}|AGE-SECRET-KEY-1[0-9A-Z]{50,70}|rubygems_[a-f0-9]{48})",
    ),
    _Shape(
        "Azure key",
        ("AccountKey=", "SharedAccessKey=", "sig="),
        r"(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{30,100}={0,2})"
        r"|[?&;]sig=([A-Za-z0-9%+/=_-]{30,200})",
    ),
    _Shape(
        "password of an address",
        ("://",),
        r"://[^\s/:@\"'<>]{0,100}+:([^\s/@\"'<>${}`]{3,200}+)@(?=[\w\[])",
        _is_real_value,
    ),
    _Shape(
        "authorization",
        ("earer ", "earer%20"),
        r"\b[Bb]earer(?: |%20)([A-Za-z0-9._~+/=-]{16,4000}+)",
        is_mixed,
    ),
    _Shape(
        "authorization",
        ("asic ",),
        r"(?i)authorization[\"']?[ \t]?[:=][ \t]?[\"']?basic ([A-Za-z0-9+/=]{8,2000}+)",
    ),
)
# `NAME=value` as in .env files, and `name = "value"` as in code and JSON.
_SECRET_WORDS = (
    r"(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|credential)"
)
_SECRET_NAME = regex(rf"{_SECRET_WORDS}|_pass=|_pwd=")
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_VARIABLE = regex(
    r"(?<![A-Za-z0-9_$])[A-Z0-9_]{0,50}?(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY"
    r"|SECRET_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?|_PASS|_PWD)="
    r"([\"']?)([^\s\"'`$(){}<>\\,;]{6,500}+)\1(?=[\s,;\\]|$)",
    re.ASCII,
)
_ASSIGNED = regex(
    rf"(?i)(?<![A-Z0-9_.-])(?=[A-Z0-9_.-]{{0,40}}?{_SECRET_WORDS})[A-Z0-9_.-]{{3,80}}+"
    r"[\"']?[ \t]{0,4}(?::|=|:=|=>)[ \t]{0,4}(?:([\"'])([A-Z0-9+/=_.~!@#%^&*-]{8,500}+)\1"
    r"|([A-Z0-9+/=_~-]{16,500}+)(?=[\s,;]|$))",
    re.ASCII,
)
_BASE64 = regex(r"[A-Za-z0-9+/=]{16,}")
_SAME_LINE = regex(r"[A-Za-z0-9+/=\\]+")
_MAX_HEADER_LINES = 3  # header lines before the key data
_MAX_MARKER_LINE_CHARS = 80  # characters of the first or the last line of a private key
_KEY_BEGINS = regex(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = regex(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")


@cache
def _patterns() -> list[tuple[_Shape, re.Pattern[str]]]:
    return [(shape, re.compile(shape.pattern, re.ASCII)) for shape in _SHAPES]


def without_shapes(text: str, mark: Callable[[str], str]) -> str:
    """Replace texts with a known shape by `mark(kind)`."""
    if "PRIVATE KEY" in text:
        text = _without_private_keys(text, mark("private key"))
    for shape, pattern in _patterns():
        if any(needle in text for needle in shape.needles):
            text = _replace_secrets(text, pattern, shape.is_secret, mark(shape.kind))
    return _without_named_secrets(text, mark("secret"))


def _without_named_secrets(text: str, mark: str) -> str:
    """Replace values that are assigned to names such as `password` or `API_KEY`."""
    parts, done, lowered = [], 0, text.lower()
    if len(lowered) != len(text):  # some letters become two in lower case
        lowered = text.translate(_ASCII_LOWER)
    for found in _SECRET_NAME.finditer(lowered):
        if found.start() < done:
            continue
        start = text.rfind("\n", done, found.start()) + 1 or done
        end = text.find("\n", found.end())
        end = len(text) if end < 0 else end
        line = _replace_secrets(text[start:end], _VARIABLE, _is_secret_value, mark)
        parts += [text[done:start], _replace_secrets(line, _ASSIGNED, _looks_random, mark)]
        done = end
    return "".join([*parts, text[done:]])


def _is_secret_value(text: str) -> bool:
    return _is_real_value(text) and not text.isdigit() and not _PATH_OR_ADDRESS.match(text)


def _replace_secrets(
    text: str, pattern: re.Pattern[str], is_secret: Callable[[str], bool], mark: str
) -> str:
    def put(match: re.Match[str]) -> str:
        group = match.lastindex or 0
        start, end = match.span(group)
        if not is_secret(match[group]):
            return match[0]
        return f"{match.string[match.start() : start]}{mark}{match.string[end : match.end()]}"

    return pattern.sub(put, text)


def _without_private_keys(text: str, mark: str) -> str:
    parts, done = [], 0
    for start, end in private_keys(text):
        parts += [text[done:start], mark]
        done = end
    return "".join([*parts, text[done:]])


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each private key, marker lines included. A key without an end or a
    beginning covers the adjoining lines that look like key data.
    """
    done, place = 0, 0
    while (place := text.find(_DASHES, place)) >= 0:
        line = text[place : place + _MAX_MARKER_LINE_CHARS]
        begins, ends = _KEY_BEGINS.match(line), _KEY_ENDS.match(line)
        if begins:
            end = _private_key_end(text, place + begins.end())
            if end < 0:
                place += begins.end()
                continue
            yield place, end
        elif ends:
            first, end = _private_key_start(text, place, done), place + ends.end()
            if first < place:
                yield first, end
        else:
            place += 1  # a marker may begin one dash later
            continue
        done = place = end


def _private_key_end(text: str, place: int) -> int:
    """Return the end of the key whose first line ends at `place`; -1 if there is no key data."""
    following = text.find(_DASHES, place, place + MAX_PRIVATE_KEY_CHARS)
    line = text[following : following + _MAX_MARKER_LINE_CHARS] if following >= 0 else ""
    if ends := _KEY_ENDS.match(line):
        held = _BASE64.search(text, place, following)
        return following + ends.end() if held else -1
    last, count = -1, 0  # the end is missing
    while count < MAX_PRIVATE_KEY_CHARS // 64 and place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        found = _BASE64.search(text, place, min(end, place + 200))
        if not found and (last >= 0 or count > _MAX_HEADER_LINES):
            break
        if found:
            last = _SAME_LINE.match(text, found.start(), end).end()  # type: ignore[union-attr]
        place, count = end + 1, count + 1
    return last


def _private_key_start(text: str, place: int, done: int) -> int:
    """Return the start of the key lines before `place`, the beginning of the key's last line."""
    first, end = place, text.rfind("\n", done, place)
    while end > done:
        start = text.rfind("\n", done, end) + 1 or done
        found = _BASE64.search(text, start, end)
        if not found or place - start > MAX_PRIVATE_KEY_CHARS:
            break
        first, end = found.start(), start - 1
    return first


def open_private_key(data: bytes | bytearray, end: int) -> int:
    """Return the offset of an unfinished private key in the first `end` bytes; -1 for none."""
    place = data.rfind(_BEGIN_MARKER.encode(), 0, end)
    if place < 0 or b"PRIVATE KEY" not in data[place : place + 80]:
        return -1
    return place if data.find(_END_MARKER.encode(), place, end) < 0 else -1
