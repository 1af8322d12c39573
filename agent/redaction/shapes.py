"""The shapes that keys, tokens and passwords are known by, and a text without them.

A shape has needles, one of which must be there before its pattern is tried: what holds none costs
next to nothing. Patterns take what they match for good, so that none takes more than time in
proportion to the text, whatever stands in it.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

LONGEST_KEY = 20_000  # characters of a private key in PEM
_DASHES = "-----"
_BEGINS, _ENDS = f"{_DASHES}BEGIN ", f"{_DASHES}END "


class _Shape(NamedTuple):
    """`pattern` has the secret in its last group, or is one; `holds` says whether it is."""

    kind: str
    needles: tuple[str, ...]
    pattern: str
    holds: Callable[[str], bool] = bool


def _is_mixed(text: str) -> bool:
    """Whether there are letters and digits: a slug or a word is no key."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _has_capitals(text: str) -> bool:
    return _is_mixed(text) and text.lower() != text


def _is_given(text: str) -> bool:
    """Whether a password is one: neither the name of one nor a place to put it."""
    return not _STANDS_FOR.search(text)


def _is_random(text: str) -> bool:
    """Whether a text looks as if it had been drawn by lot."""
    counts = Counter(text).values()
    bits = -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
    drawn = len(text) >= 12 and bits > 3.0 and _is_mixed(text)
    return drawn and _is_given(text) and not _ELSEWHERE.match(text)


_STANDS_FOR = re.compile(
    r"(?i)^(?:x+|\*+|\.+|-+)$|^(?:pass|pwd|password|passwd|secret|token|key|none|null|true|false|"
    r"undefined|string|required|optional)$|your|example|change.?me|placeholder|dummy|redacted|"
    r"insert|\bxxx|\.\.\.|…|\*\*\*"
)
_ELSEWHERE = re.compile(r"/\w[\w.-]*/|\.{0,2}/\w+$|~/|[a-z]+://|\[redacted")
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
        _is_mixed,
    ),
    _Shape(
        "Slack token",
        ("xoxa-", "xoxb-", "xoxe", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
        rf"{_NOT_BEFORE}(?:xox[abeprs][.-]|xapp-)[A-Za-z0-9.-]{{10,300}}",
        _is_mixed,
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
        _is_mixed,
    ),
    _Shape(
        "API key",
        ("sk-",),
        rf"{_NOT_BEFORE}sk-(?:(?:ant|proj|svcacct|admin|or)-[\w-]{{16,300}}|[A-Za-z0-9]{{20,100}})",
        _is_mixed,
    ),
    _Shape(
        "JWT",
        ("eyJ",),
        rf"{_NOT_BEFORE}eyJ[\w-]{{8,4000}}+\.eyJ[\w-]{{8,16000}}+\.[\w-]{{10,2000}}",
    ),
    _Shape("npm token", ("npm_",), rf"{_NOT_BEFORE}npm_[A-Za-z0-9]{{30,60}}(?!\w)", _is_mixed),
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
        _is_given,
    ),
    _Shape(
        "authorization",
        ("earer ", "earer%20"),
        r"\b[Bb]earer(?: |%20)([A-Za-z0-9._~+/=-]{16,4000}+)",
        _is_mixed,
    ),
    _Shape(
        "authorization",
        ("asic ",),
        r"(?i)authorization[\"']?[ \t]?[:=][ \t]?[\"']?basic ([A-Za-z0-9+/=]{8,2000}+)",
    ),
)
# `NAME=value` as in a file of variables, and `name = "value"` as in code and JSON.
_WORDS = r"(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|credential)"
_NAME = re.compile(rf"{_WORDS}|_pass=|_pwd=")
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_VARIABLE = re.compile(
    r"(?<![A-Za-z0-9_$])[A-Z0-9_]{0,50}?(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY"
    r"|SECRET_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?|_PASS|_PWD)="
    r"([\"']?)([^\s\"'`$(){}<>\\,;]{6,500}+)\1(?=[\s,;\\]|$)",
    re.ASCII,
)
_ASSIGNED = re.compile(
    rf"(?i)(?<![A-Z0-9_.-])(?=[A-Z0-9_.-]{{0,40}}?{_WORDS})[A-Z0-9_.-]{{3,80}}+[\"']?[ \t]{{0,4}}"
    r"(?::|=|:=|=>)[ \t]{0,4}(?:([\"'])([A-Z0-9+/=_.~!@#%^&*-]{8,500}+)\1"
    r"|([A-Z0-9+/=_~-]{16,500}+)(?=[\s,;]|$))",
    re.ASCII,
)
_BASE64 = re.compile(r"[A-Za-z0-9+/=]{16,}")
_SAME_LINE = re.compile(r"[A-Za-z0-9+/=\\]+")
_HEADERS = 3  # lines before those that are the key
_LONGEST_LINE = 80  # characters of the first or the last line of a private key
_BEGINNING, _END = (
    re.compile(rf"-----{word} [A-Z0-9 ]{{0,30}}PRIVATE KEY(?: BLOCK)?-----")
    for word in ("BEGIN", "END")
)


@cache
def _patterns() -> list[tuple[_Shape, re.Pattern[str]]]:
    return [(shape, re.compile(shape.pattern, re.ASCII)) for shape in _SHAPES]


def without_shapes(text: str, mark: Callable[[str], str]) -> str:
    """The text with what `mark` makes of each kind in the place of what has a known shape."""
    if "PRIVATE KEY" in text:
        text = _without_keys(text, mark("private key"))
    for shape, pattern in _patterns():
        if any(needle in text for needle in shape.needles):
            text = _replaced(text, pattern, shape.holds, mark(shape.kind))
    return _without_values(text, mark("secret"))


def _without_values(text: str, mark: str) -> str:
    """The text without what is said to be a secret, in the lines that name one."""
    parts, done, lowered = [], 0, text.lower()
    if len(lowered) != len(text):  # a letter that is two in lower case
        lowered = text.translate(_LOWER)
    for found in _NAME.finditer(lowered):
        if found.start() < done:
            continue
        start = text.rfind("\n", done, found.start()) + 1 or done
        end = text.find("\n", found.end())
        end = len(text) if end < 0 else end
        line = _replaced(text[start:end], _VARIABLE, _is_value, mark)
        parts += [text[done:start], _replaced(line, _ASSIGNED, _is_random, mark)]
        done = end
    return "".join([*parts, text[done:]])


def _is_value(text: str) -> bool:
    return _is_given(text) and not text.isdigit() and not _ELSEWHERE.match(text)


def _replaced(text: str, pattern: re.Pattern[str], holds: Callable[[str], bool], mark: str) -> str:
    def put(match: re.Match[str]) -> str:
        group = match.lastindex or 0
        start, end = match.span(group)
        if not holds(match[group]):
            return match[0]
        return f"{match.string[match.start() : start]}{mark}{match.string[end : match.end()]}"

    return pattern.sub(put, text)


def _without_keys(text: str, mark: str) -> str:
    parts, done = [], 0
    for start, end in private_keys(text):
        parts += [text[done:start], mark]
        done = end
    return "".join([*parts, text[done:]])


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Where private keys stand, from their first line to the end of their last. One whose end is
    not there goes as far as lines follow that look like the rest of it, and one whose beginning is
    not there as far back."""
    done, place = 0, 0
    while (place := text.find(_DASHES, place)) >= 0:
        line = text[place : place + _LONGEST_LINE]
        begins, ends = _BEGINNING.match(line), _END.match(line)
        if begins:
            end = _end_of(text, place + begins.end())
            if end < 0:
                place += begins.end()
                continue
            yield place, end
        elif ends:
            first, end = _first(text, place, done), place + ends.end()
            if first < place:
                yield first, end
        else:
            place += 1  # one dash further, another line may begin
            continue
        done = place = end


def _end_of(text: str, place: int) -> int:
    """Where a key ends whose first line ends at a place; -1 where none follows."""
    following = text.find(_DASHES, place, place + LONGEST_KEY)
    ends = _END.match(text[following : following + _LONGEST_LINE]) if following >= 0 else None
    if ends:
        held = _BASE64.search(text, place, following)
        return following + ends.end() if held else -1
    last, line = -1, 0  # some of it was cut off
    while line < LONGEST_KEY // 64 and place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        found = _BASE64.search(text, place, min(end, place + 200))
        if not found and (last >= 0 or line > _HEADERS):
            break
        if found:
            last = _SAME_LINE.match(text, found.start(), end).end()  # type: ignore[union-attr]
        place, line = end + 1, line + 1
    return last


def _first(text: str, place: int, done: int) -> int:
    """Where the first of the lines begins that may be a key which ends at a place."""
    first, end = place, text.rfind("\n", done, place)
    while end > done:
        start = text.rfind("\n", done, end) + 1 or done
        found = _BASE64.search(text, start, end)
        if not found or place - start > LONGEST_KEY:
            break
        first, end = found.start(), start - 1
    return first


def open_key(data: bytes | bytearray, end: int) -> int:
    """Where in the first `end` bytes a private key begins whose end is not there; -1 for none."""
    place = data.rfind(_BEGINS.encode(), 0, end)
    if place < 0 or b"PRIVATE KEY" not in data[place : place + 80]:
        return -1
    return place if data.find(_ENDS.encode(), place, end) < 0 else -1
