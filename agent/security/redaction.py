"""Redaction of secrets in stored and shown text: known values, and texts that look like a key.

Known values are the model's API key and the values of other variables that look like secrets. They
never reach the disk or a tool result. Shapes of keys, tokens and passwords are redacted on request,
in tool results and project files but not in the user's messages. Each secret is replaced by
`[redacted: KIND]`.

A model's reply is filtered too, since a server may return the API key it received. Streamed text is
filtered before it is displayed. A possible beginning of a secret is held back until the rest
arrives, even across deltas.

Shapes of keys, tokens and passwords, and their removal from a text.

A shape's pattern is tried only if the text contains one of its needles, so a text without needles
costs almost nothing. Patterns use possessive repeats to keep the time linear in the text length.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from ...tools.redaction_marks import mark
from ...tools.system.environment import secrets_in
from ..context.items import COMPACTION
from ..events import Retrying, TextDelta, ThinkingDelta, ToolFinished, ToolStarted
from ..lazy import dataclass, regex
from ..models.base import Reply, ReplyStream
from ..models.providers import providers, variables
from ..session.entries import (
    ATTACHMENT,
    HOOK,
    MEMORY,
    SKILL,
    SKILL_LIST,
    Entry,
    Note,
    ToolResult,
    User,
    altered_thinking,
)

if TYPE_CHECKING:
    from ...tools.base import Output
    from ...tools.system.capture import Sink

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


MAX_HELD_LINE_BYTES = 65_536  # a longer unfinished line is passed on, except for its end
OVERLAP_BYTES = 8_192  # the length of that end: no shape is longer
# Shorter values may be ordinary words.
_MIN_KEY_CHARS = 8
_MIN_SECRET_CHARS = 16
_PATH_OR_URL = regex(r"(?:~|\.{1,2})?/[\w.-]+/|[A-Za-z][\w+.-]*://")
# Sources of messages that the user did not write.
_PROJECT_SOURCES = (
    "environment", "instructions", SKILL_LIST, SKILL, MEMORY, HOOK, "shell", ATTACHMENT,
)  # fmt: skip
# Block types without text, or that must stay as the model wrote them.
_UNTOUCHED_BLOCKS = ("thinking", "redacted_thinking", "image", "document")

R = TypeVar("R", bound="Entry | Output")


@dataclass(frozen=True)
class Redaction:
    """The secrets that a session redacts."""

    known: Mapping[str, str] = field(default_factory=dict)  # secret value to its name
    shapes: bool = False  # whether to look for shapes of secrets, too

    def without_known(self, text: str) -> str:
        """Replace the known values in a text."""
        for value, name in self.known.items():
            if value in text:
                text = text.replace(value, mark(name))
        return text

    def clean_text(self, text: str) -> str:
        """Redact a tool's text."""
        text = self.without_known(text)
        return without_shapes(text, mark) if self.shapes else text

    def clean(self, record: R) -> R:
        """Redact a log entry before it is recorded or sent elsewhere, or the output of a tool."""
        if isinstance(record, User):
            is_found = record.source in _PROJECT_SOURCES
        else:
            is_found = isinstance(record, ToolResult | Note) or not isinstance(record, Entry)
        if not self.known and not (self.shapes and is_found):
            return record
        clean = self.clean_text if is_found else self.without_known
        values = {f.name: getattr(record, f.name) for f in fields(record)}
        cleaned = {name: _map_texts(value, clean) for name, value in values.items()}
        if details := values.get("details"):  # not a block, whatever its names
            cleaned["details"] = {name: _map_texts(value, clean) for name, value in details.items()}
        return record if cleaned == values else replace(record, **cleaned)

    def clean_blocks(self, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace the known values in the blocks of a reply."""
        cleaned: list[dict[str, Any]] = _map_texts(content, self.without_known)
        return cleaned

    def filtered_sink(self, sink: "Sink") -> "Sink":
        """Return a sink that passes redacted data on to `sink`."""
        if not self.known and not self.shapes:
            return sink
        return SecretFilter(sink, self.clean_text, tuple(self.known), whole_lines=self.shapes)


def redaction_for(
    environ: Mapping[str, str], *addresses: str | None, shapes: bool = False
) -> Redaction:
    """Return the redaction of the secrets in an environment and of the passwords in URLs."""
    named = [environ.get(name) for name in variables()]
    known = dict(_known_secrets(environ, (*addresses, *named)))
    longest_first = sorted(known.items(), key=lambda item: -len(item[0]))
    return Redaction(dict(longest_first), shapes)


def _known_secrets(
    environ: Mapping[str, str], addresses: tuple[str | None, ...]
) -> Iterator[tuple[str, str]]:
    """Yield each secret value with its name."""
    keys = {*variables()}
    for name, value in environ.items():
        min_chars = _MIN_KEY_CHARS if name in keys else _MIN_SECRET_CHARS
        for secret in secrets_in(name, value):
            if not _PATH_OR_URL.match(value) and _is_distinctive(secret, min_chars):
                yield secret, name
    in_headers = (key for provider in providers().values() for key in provider.written_keys())
    for name, value in in_headers:
        if _is_distinctive(value.strip(), _MIN_KEY_CHARS):
            yield value.strip(), name
    for address in filter(None, addresses):
        with suppress(ValueError):
            written = urlsplit(address).password or ""
            for password in (written, unquote(written)):
                if _is_distinctive(password, _MIN_KEY_CHARS):
                    yield password, "password of an address"


def _is_distinctive(value: str, min_chars: int) -> bool:
    """Return True if a value is unlikely to occur in a text by chance."""
    return len(value) >= min_chars and is_mixed(value) and not any(map(str.isspace, value))


def _map_texts(value: Any, clean: Any) -> Any:
    """Clean every text in a nested value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_map_texts(each, clean) for each in value]
    if isinstance(value, dict) and isinstance(thought := value.get("thinking"), str):
        # A changed text invalidates the signature, so the block is left out of requests. In some
        # protocols the signature contains text, too.
        said, signature = clean(thought), str(value.get("signature", ""))
        intact = said == thought and clean(signature) == signature
        return value if intact else altered_thinking(said)
    if isinstance(value, dict) and value.get("type") == COMPACTION:
        # A changed text invalidates the signature, so a plain summary replaces the block.
        said = _map_texts(value.get("content"), clean)
        return value if said == value.get("content") else {"type": COMPACTION, "content": said}
    if isinstance(value, dict) and value.get("type") not in _UNTOUCHED_BLOCKS:
        return {name: _map_texts(each, clean) for name, each in value.items()}
    return value


class SecretFilter:
    """A sink that redacts the data it passes on. Bytes that are not UTF-8 stay unchanged.

    It holds back a possible beginning of a secret until the rest arrives: a prefix of a known value
    and, if shapes are redacted, an unfinished line or private key.
    """

    def __init__(
        self, sink: "Sink", clean: Callable[[str], str], known: Sequence[str], *, whole_lines: bool
    ) -> None:
        self._sink = sink
        self._clean = clean
        self._known = [value.encode() for value in known]
        self._whole_lines = whole_lines
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data
        find_end = self._end_of_whole_lines if self._whole_lines else self._end_of_certain_text
        self._pass_on(find_end())

    def close(self) -> None:
        self._pass_on(len(self._held))
        self._sink.close()

    def _pass_on(self, end: int) -> None:
        if end > 0:
            text = bytes(self._held[:end]).decode("utf-8", "surrogateescape")
            del self._held[:end]
            self._sink.feed(self._clean(text).encode("utf-8", "surrogateescape"))

    def _end_of_certain_text(self) -> int:
        """Return the offset from which the data may be the beginning of a known value."""
        held, end = self._held, len(self._held)
        for value in self._known:
            for length in range(min(len(value) - 1, len(held)), 0, -1):
                if held.endswith(value[:length]):
                    end = min(end, len(held) - length)
                    break
        for value in self._known:  # the end of a value may be the beginning of another
            place = held.find(value, max(0, end - len(value) + 1), end + len(value) - 1)
            end = place if 0 <= place < end else end
        return end

    def _end_of_whole_lines(self) -> int:
        """Return the offset after the last whole line, or of an unfinished private key there."""
        held = self._held
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        if len(held) - end > MAX_HELD_LINE_BYTES:
            end = _word_boundary_before(held, len(held) - OVERLAP_BYTES)
        key = open_private_key(held, end)
        return end if key < 0 or len(held) - key > MAX_PRIVATE_KEY_CHARS else key


def _word_boundary_before(held: bytearray, end: int) -> int:
    """Return the nearest word boundary at or before `end`; `end` if there is none close enough."""
    for place in range(end, max(end - OVERLAP_BYTES, 0), -1):
        if held[place - 1] in b" \t,;\"'<>(){}[]":
            return place
    return end


def reply_filter(redaction: Redaction) -> Callable[[ReplyStream], ReplyStream]:
    """Return a function that removes known secrets from a stream of deltas and the reply."""
    return lambda stream: _filtered(stream, redaction) if redaction.known else stream


async def _filtered(stream: ReplyStream, redaction: Redaction) -> ReplyStream:
    text, thinking = _Held(redaction), _Held(redaction)
    async with aclosing(stream):
        async for delta in stream:
            if isinstance(delta, Retrying):
                text, thinking = _Held(redaction), _Held(redaction)
            if not isinstance(delta, ThinkingDelta) and (rest := thinking.rest()):
                yield ThinkingDelta(rest)
            if not isinstance(delta, TextDelta) and (rest := text.rest()):
                yield TextDelta(rest)
            if isinstance(delta, TextDelta):
                if shown := text.add(delta.text):
                    yield TextDelta(shown)
            elif isinstance(delta, ThinkingDelta):
                if shown := thinking.add(delta.text):
                    yield ThinkingDelta(shown)
            elif isinstance(delta, ToolStarted):
                title = redaction.without_known(delta.title)
                yield replace(delta, title=title, input={"query": title})
            elif isinstance(delta, ToolFinished):
                title, said = map(redaction.without_known, (delta.title, delta.text))
                yield replace(delta, title=title, text=said)
            elif isinstance(delta, Reply):
                content = redaction.clean_blocks(delta.content)
                broken = {id: redaction.without_known(raw) for id, raw in delta.broken.items()}
                yield replace(delta, content=content, broken=broken)
            else:
                yield delta


class _Held:
    """Filtered text of one kind of delta, and a `Sink` for the filter's output."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._out = bytearray()
        self._begin()

    def _begin(self) -> None:
        known = tuple(self._redaction.known)
        self._filter = SecretFilter(self, self._redaction.without_known, known, whole_lines=False)

    def add(self, text: str) -> str:
        """Add text. Return the new text that is certain to contain no part of a secret."""
        self._filter.feed(text.encode("utf-8", "surrogatepass"))
        return self._take()

    def rest(self) -> str:
        """Return the text held back, since no more text follows."""
        self._filter.close()
        self._begin()
        return self._take()

    def _take(self) -> str:
        out = self._out.decode("utf-8", "surrogatepass")
        self._out.clear()
        return out

    def feed(self, data: bytes) -> None:
        self._out += data

    def close(self) -> None:
        pass
