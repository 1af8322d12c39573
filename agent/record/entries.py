"""The kinds of entry: what a line of the log can be, as values.

An entry is durable and never changes. `seq` and `at` are given by the log when it is appended;
until then they are 0 and "". Fields this version does not know survive a round trip in `extra`,
and a line of an unknown kind in `Unknown`. `docs/log-format.md` has each kind on one page.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

VERSION = 1

Block = dict[str, Any]
Content = str | list[Block]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or the sum over several, as the API counts them."""

    input: int = 0
    cache_read: int = 0
    cache_creation: int = 0
    output: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_creation + other.cache_creation,
            self.output + other.output,
        )

    @property
    def prompt(self) -> int:
        """Tokens of the prompt, however they were priced."""
        return self.input + self.cache_read + self.cache_creation

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def to_json(self) -> dict[str, int]:
        return {
            "input": self.input,
            "cache_read": self.cache_read,
            "cache_creation": self.cache_creation,
            "output": self.output,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Usage":
        """Raises ValueError for counts that are not whole numbers."""
        counts = {}
        for key in ("input", "cache_read", "cache_creation", "output"):
            value = data.get(key, 0)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"usage.{key} is {value!r}, not a count of tokens")
            counts[key] = value
        return cls(**counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log."""

    kind: ClassVar[str] = ""
    seq: int = 0
    at: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Entry):
    """A process opened the session. `system` and `tools` are None where they are as before.

    They are recorded because what the model was told is part of the prefix of every request.
    `parent` is `{"id", "seq"}` of the session this one was forked from.
    """

    kind: ClassVar[str] = "session"
    id: str
    cwd: str
    version: str
    model: str
    system: str | None = None
    tools: list[dict[str, Any]] | None = None
    parent: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User(Entry):
    """Words that go to the model. `source` says whose: person, environment, instructions or
    notice."""

    kind: ClassVar[str] = "user"
    content: Content
    source: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant(Entry):
    """A reply, its blocks as the API gave them.

    `purpose` is turn, summary or verify; only turns stand in the view. `broken` has the raw
    arguments, by tool_use id, of calls whose JSON did not parse: they are answered with an error
    and never run. `cost_usd` is None when the model's price is not known.
    """

    kind: ClassVar[str] = "assistant"
    content: list[Block]
    usage: dict[str, int]
    stop_reason: str | None
    model: str
    purpose: str = "turn"
    message_id: str | None = None
    cost_usd: float | None = None
    broken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Entry):
    """The result of one tool call. `offloaded` names the file, under the session's folder, that
    holds the whole text when `content` is a preview of it."""

    kind: ClassVar[str] = "tool_result"
    tool_use_id: str
    content: Content
    is_error: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    offloaded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(Entry):
    """Stubs take the place of results or inputs, one entry for each pass of a layer.

    `targets` are `{"seq", "tool_use_id", "stub"}` for a result and `{"seq", "tool_use_id",
    "input"}` for the input of a call.
    """

    kind: ClassVar[str] = "mask"
    layer: str
    targets: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Entry):
    """A summary stands for the entries `covers[0]..covers[1]`.

    In the view it is a user message with `text`, then the items whose seq is in `keep`, then
    everything from `keep_from` on. `document` is the same summary by section.
    """

    kind: ClassVar[str] = "summary"
    document: dict[str, Any]
    text: str
    covers: list[int]
    keep_from: int
    keep: list[int] = field(default_factory=list)
    tokens_before: int = 0
    tokens_after: int = 0
    trigger: str = ""
    probes: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert(Entry):
    """The mask or summary at `target` is taken back: the view is folded as if it had not been."""

    kind: ClassVar[str] = "revert"
    target: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Entry):
    kind: ClassVar[str] = "checkpoint"
    number: int
    path: str
    snapshot: str | None = None
    trigger: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(Entry):
    kind: ClassVar[str] = "pin"
    ref: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpin(Entry):
    kind: ClassVar[str] = "unpin"
    ref: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Entry):
    """Something worth keeping that the model does not see. `topic`: intent, decision, drift,
    phase, permission, warning."""

    kind: ClassVar[str] = "note"
    topic: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Entry):
    """A subagent: what it was asked, where its log is, what it answered."""

    kind: ClassVar[str] = "agent"
    id: str
    type: str
    prompt: str
    log: str
    status: str = "running"
    answer: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Entry):
    """A turn ended. `status` as in the JSON result."""

    kind: ClassVar[str] = "end"
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Entry):
    """A line of a kind this version does not know; `extra` holds its fields."""

    kind: ClassVar[str] = "unknown"
    name: str


KINDS: dict[str, type[Entry]] = {
    c.kind: c
    for c in (
        Session, User, Assistant, ToolResult, Mask, Summary, Revert, Checkpoint, Pin, Unpin, Note,
        Agent, End,
    )
}  # fmt: skip

_COMMON = ("kind", "seq", "at", "extra")
_SHAPES: dict[str, tuple[type, ...]] = {
    "content": (str, list),
    "usage": (dict,),
    "stop_reason": (str, type(None)),
    "tool_use_id": (str,),
    "targets": (list,),
    "covers": (list,),
    "keep": (list,),
    "keep_from": (int,),
    "target": (int,),
    "text": (str,),
    "broken": (dict,),
    "system": (str, type(None)),
    "tools": (list, type(None)),
    "cost_usd": (int, float, type(None)),
    "is_error": (bool,),
}


def encode(entry: Entry) -> dict[str, Any]:
    """An entry as the JSON object of its line."""
    head = {"v": VERSION, "seq": entry.seq, "at": entry.at}
    if isinstance(entry, Unknown):
        return {**head, "kind": entry.name, **entry.extra}
    body = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in _COMMON}
    return {**head, "kind": entry.kind, **body, **entry.extra}


def decode(line: Mapping[str, Any]) -> Entry:
    """The entry a line of the log stands for.

    Raises ValueError, naming the field, for a line that is not an entry or whose fields have the
    wrong shape: a reader skips such a line and says so.
    """
    seq, at, kind = line.get("seq"), line.get("at", ""), line.get("kind")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
        raise ValueError(f"seq is {seq!r}, not a number from 1")
    if not isinstance(kind, str) or not isinstance(at, str):
        raise ValueError("no kind")
    rest = {k: v for k, v in line.items() if k not in ("v", "seq", "at", "kind")}
    cls = KINDS.get(kind)
    if cls is None:
        return Unknown(seq=seq, at=at, name=kind, extra=rest)
    known = {f.name for f in fields(cls)} - set(_COMMON)
    body = {k: v for k, v in rest.items() if k in known}
    for name, value in body.items():
        shapes = _SHAPES.get(name)
        if shapes and not isinstance(value, shapes):
            raise ValueError(f"{kind}.{name} is a {type(value).__name__}")
    if isinstance(body.get("content"), list):
        if not all(isinstance(b, dict) for b in body["content"]):
            raise ValueError(f"{kind}.content has a block that is not an object")
    elif cls is Assistant:
        raise ValueError("assistant.content is not a list of blocks")
    if "usage" in body:
        Usage.from_json(body["usage"])
    try:
        return cls(seq=seq, at=at, extra={k: v for k, v in rest.items() if k not in known}, **body)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}") from error
