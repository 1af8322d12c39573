"""The kinds of entry: what a line of the log can be, as values.

An entry is durable and never changes. `seq` and `at` are given by the log when it is appended;
until then they are 0 and "". Fields this version does not know survive a round trip in `extra`,
and a line of an unknown kind in `Unknown`. `docs/internals/log-format.md` describes each kind.
"""

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields
from typing import Any, ClassVar

from ..lazy import dataclass, regex

VERSION = 1
SHELL_OUTPUT_HEADING = "[What it said:]\n"  # before the output of a command that the person ran
ATTACHMENT = "attachment"  # source of what the person brings in beside their words
SKILL = "skill"  # source of the text of a skill that was loaded
# Source of definitions of tools that were loaded late. Only older logs have such entries: none is
# written any more.
LOADED_TOOLS = "loaded tools"
# Purpose of a request that asked for no answer and kept the prompt in the cache. Only older logs
# have such entries: none is written any more.
WARMING = "warm"
BOUND, FREE = "bound", "free"  # what `Session.thinking` can be
PLAN = "plan"  # source of a plan that was agreed to, or proposed where nobody could agree
SKILL_LIST = "skill list"  # source of what there is of skills
HOOK = "hook"  # source of what a hook says to the model

_TOKEN_COUNTS = ("input", "cache_read", "cache_creation", "output")
_USAGE_COUNTS = (*_TOKEN_COUNTS, "web_searches")

Block = dict[str, Any]
Content = str | list[Block]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or the sum over several, as the API counts them, and how often the server
    searched the web for it."""

    input: int = 0
    cache_read: int = 0
    cache_creation: int = 0
    output: int = 0
    web_searches: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(operator.add, self._counts(), other._counts()))

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(*map(operator.sub, self._counts(), other._counts()))

    def _counts(self) -> tuple[int, int, int, int, int]:
        return self.input, self.cache_read, self.cache_creation, self.output, self.web_searches

    @property
    def prompt(self) -> int:
        """Tokens of the prompt, however they were priced."""
        return self.input + self.cache_read + self.cache_creation

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def to_json(self) -> dict[str, int]:
        """Return the counts by name; that of searches only where there are any."""
        counts = asdict(self)
        return counts if self.web_searches else {k: counts[k] for k in _TOKEN_COUNTS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Usage":
        """Read a usage. Raises ValueError for counts that are not whole numbers."""
        return cls(*_usage_counts(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log."""

    kind: ClassVar[str] = ""
    seq: int = 0
    at: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Entry):
    """A process opened the session. The system prompt and the tools are recorded because they are
    part of the prefix of every request. What is small comes first, so that a list of sessions finds
    it cheaply."""

    kind: ClassVar[str] = "session"
    id: str
    cwd: str
    branch: str = ""  # of git at `cwd`, "" for none
    version: str
    model: str
    # Whether the model's thinking is BOUND to all that comes before it, or FREE. "" in older logs,
    # where another model, prompt or list of tools left out all earlier thinking for ever.
    thinking: str = ""
    # Of a session of the proxy: `protocol` and `upstream` of the client's requests, its name as
    # `agent`, and the digest of its `first` message. {} for all others.
    client: dict[str, Any] = field(default_factory=dict)
    system: str | None = None  # None where it is as before
    own_prompt: str | None = None  # the part of it that the person wrote in place of ours
    tools: list[dict[str, Any]] | None = None  # None where they are as before
    parent: dict[str, Any] | None = None  # {"id", "seq"} of the session this was forked from


@dataclass(frozen=True, slots=True, kw_only=True)
class User(Entry):
    """Words that go to the model. `source` says whose: person, environment, instructions, notice,
    note (a pin in the user's own words), skill, skill list, loaded tools, plan, hook, shell or
    attachment. Shell is a command that the user ran, with `details` and `offloaded` as in the
    result of Bash; its output is the last block. An attachment is a file, a directory or piped
    input next to the words before it, with `details` and `offloaded` as in the result of the `call`
    that its details name.

    The details of an instruction file's text have its `instructions`: path and sha256 of the text,
    and where they are so the `folder` that it is for, the file that it is imported `by`, and how
    many tokens of it are `left_out`.
    The details of a skill's text have its `skill`: name, path and digest of the text, and where it
    is said again after a summary the `ref` of the entry with all of it, and whether it `is_part`.
    Those of a plan have its `plan`: whether it is `agreed`, or the `ref` of the entry that it says
    again after a summary; and the `todos` that its steps are. Those of a list have its `skills`, by
    name a mark of what was told and None for one that is gone, and whether that is the `whole`
    list. Those of a hook's words have its `hook`: the event, whose it is (`of`), the `source` of a
    session's start and the `sha256` of the whole text. Loaded tools, in older logs, are blocks that
    add tools from here on, as the API has them."""

    kind: ClassVar[str] = "user"
    content: Content
    source: str = "person"
    mid_turn: bool = False  # said while a turn ran, which went on with them
    details: dict[str, Any] = field(default_factory=dict)
    offloaded: str | None = None

    @property
    def begins_turn(self) -> bool:
        """Whether a turn begins with these words."""
        return self.source == "person" and not self.mid_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant(Entry):
    """A reply, its blocks as the API gave them."""

    kind: ClassVar[str] = "assistant"
    content: list[Block]
    usage: dict[str, int]
    stop_reason: str | None
    model: str
    purpose: str = "turn"  # turn, summary, verify, attempt or WARMING; only turns stand in the view
    message_id: str | None = None
    cost_usd: float | None = None  # None where the model's price is not known
    # Raw arguments, by tool_use id, of calls whose JSON did not parse: they run only if the JSON is
    # fenced, and are answered with an error otherwise.
    broken: dict[str, str] = field(default_factory=dict)
    # What was sent for it: `sha256` of the bytes, their `parameters`, and the `origin` as
    # `Request` in agent/context/request.py has it; {} where that is not known.
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Entry):
    """The result of one tool call."""

    kind: ClassVar[str] = "tool_result"
    tool_use_id: str
    content: Content
    is_error: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    offloaded: str | None = None  # file in the session's folder with all that `content` previews


def altered_thinking(text: str) -> Block:
    """Return a block of thinking that a secret was taken out of: it cannot be sent any more."""
    return {"type": "thinking", "thinking": text, "signature": "", "altered": True}


def shell_result(entry: User) -> ToolResult:
    """Return the outcome of a command that the user ran, as the result of a call."""
    said = entry.content[-1:] if isinstance(entry.content, list) else entry.content
    if isinstance(said, list) and said and said[0].get("type") == "text":
        said = str(said[0].get("text", "")).removeprefix(SHELL_OUTPUT_HEADING)
    return ToolResult(
        seq=entry.seq,
        at=entry.at,
        tool_use_id="",
        content=said,
        is_error=entry.details.get("exit_code") != 0 and not entry.details.get("backgrounded"),
        details=entry.details,
        offloaded=entry.offloaded,
    )


def attachment_result(entry: User) -> ToolResult:
    """Return an attachment as the result of the call that it is like."""
    return ToolResult(
        seq=entry.seq,
        at=entry.at,
        tool_use_id="",
        content=entry.content,
        details=entry.details,
        offloaded=entry.offloaded,
    )


def attachment_call(entry: User) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of the call that an attachment is like."""
    call = entry.details.get("call")
    name, given = (call.get("name"), call.get("input")) if isinstance(call, dict) else ("", {})
    return str(name or "Read"), given if isinstance(given, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(Entry):
    """Stubs take the place of results or inputs, one entry for each pass of a layer."""

    kind: ClassVar[str] = "mask"
    layer: str
    # {"seq", "tool_use_id", "stub"} for a result, {"seq", "tool_use_id", "input"} for the input of
    # a call, {"seq", "tool_use_id", "reply", "outline"} for a result and the
    # reply that made the call.
    targets: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Entry):
    """A summary is the first to stand for the entries `covers[0]..covers[1]`. In the view it is a
    user message with `text`, then the items whose seq is in `keep`, then everything from
    `keep_from` on; with a `block` that comes first, and `text` last."""

    kind: ClassVar[str] = "summary"
    document: dict[str, Any]  # the summary by section
    text: str
    covers: list[int]
    keep_from: int
    keep: list[int] = field(default_factory=list)
    tokens_before: int = 0
    tokens_after: int = 0
    trigger: str = ""
    probes: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    # What it says of earlier failures: who says so (`by`), `why`, and the `refs` that are resolved
    # or the refs that are `reopened`.
    resolved: list[dict[str, Any]] = field(default_factory=list)
    # No earlier summary stays, whatever its seq. In logs where this is not said one may have
    # stayed, and been sent, because its seq is larger than that of the items behind it.
    replaces_earlier: bool = False
    # Entries of the summary before that no longer hold, and every rule known to be lifted.
    superseded: list[dict[str, Any]] = field(default_factory=list)
    # The API's own compaction block, exactly as it came. It is the first message then, and `text`
    # stands behind all that stays; what was thought there stays too if `keeps_thinking`.
    block: dict[str, Any] | None = None
    keeps_thinking: bool = False

    @property
    def whole_text(self) -> str:
        """All that it says in the view."""
        said = summarized_text(self.block or {})
        return f"{said}\n\n{self.text}" if said else self.text

    @property
    def span(self) -> str:
        """The entries that it is the first to stand for, for people. In logs where
        `replaces_earlier` is not said the first may be an earlier summary, of a larger seq."""
        first, last = self.covers
        return f"#{first} to #{last}" if first <= last else f"all up to #{last}"


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
    repository: str = ""  # the record of the git repository, "" for none


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
    """Something worth keeping that the model does not see."""

    kind: ClassVar[str] = "note"
    # intent, decision, drift, phase, permission, quality, recovery, rewind, agent, killed, task,
    # title, loop, request, proxy, hook, recording, warning
    topic: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRun(Entry):
    """A subagent, when it starts and when it ends; the newest entry of an `id` counts. Usage, cost,
    calls, tool calls and compaction are the sums over all of its own log, earlier runs included, so
    that this log alone gives the session's."""

    kind: ClassVar[str] = "agent"
    id: str
    type: str
    prompt: str
    log: str  # path below the session's folder
    status: str = "running"  # then done, error, interrupted or limit
    answer: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    description: str = ""
    calls: int = 0
    tool_calls: int = 0
    compaction: dict[str, int] = field(default_factory=dict)
    told: int = 0  # last entry of its log whose changes of files are recorded in this one
    # Files that it read or changed, newest last, as its log names them; empty in older logs.
    files: list[str] = field(default_factory=list)
    lost: bool = False  # interrupted since its process was killed


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Entry):
    """A turn ended."""

    kind: ClassVar[str] = "end"
    status: str  # as in the JSON result
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
        SubagentRun, End,
    )
}  # fmt: skip


def reverted_seqs(entries: Iterable[Entry]) -> set[int]:
    """Return the seqs that are taken back in the end: a revert may itself be taken back later."""
    gone: set[int] = set()
    for revert in reversed([entry for entry in entries if isinstance(entry, Revert)]):
        if revert.seq not in gone:
            gone.add(revert.target)
    return gone


_COMMON = ("kind", "seq", "at", "extra")
_HEAD = ("v", "seq", "at", "kind")  # that every line has
_OWN_FIELDS = {cls: frozenset(f.name for f in fields(cls)) - {*_COMMON} for cls in KINDS.values()}
_TEXT, _NUMBER, _NONE = (str,), (int,), type(None)
_NUMBERS = (int, float)  # types whose values have a range; a bool has none
_SHAPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("id", "cwd", "version", "model", "source", "purpose", "tool_use_id", "layer", "trigger",
         "text", "reason", "path", "topic", "type", "prompt", "log", "status", "answer",
         "description", "branch", "repository", "thinking"),
        _TEXT,
    ),
    **dict.fromkeys(
        ("system", "own_prompt", "stop_reason", "message_id", "offloaded", "snapshot"),
        (str, _NONE),
    ),
    **dict.fromkeys(
        ("tokens_before", "tokens_after", "keep_from", "target", "number", "calls", "tool_calls",
         "told"),
        _NUMBER,
    ),
    **dict.fromkeys(
        ("usage", "broken", "client", "details", "document", "probes", "data", "compaction",
         "request"),
        (dict,),
    ),
    **dict.fromkeys(("targets", "covers", "keep", "files", "resolved", "superseded"), (list,)),
    "content": (str, list),
    "tools": (list, _NONE),
    **dict.fromkeys(("parent", "block"), (dict, _NONE)),
    "ref": (int, _NONE),
    "cost_usd": (int, float, _NONE),
    **dict.fromkeys(
        ("is_error", "mid_turn", "replaces_earlier", "keeps_thinking", "lost"),
        (bool,),
    ),
}  # fmt: skip
_ITEMS: dict[str, tuple[type, ...]] = {  # of the fields that are lists
    **dict.fromkeys(("content", "tools", "targets", "resolved", "superseded"), (dict,)),
    **dict.fromkeys(("covers", "keep"), _NUMBER),
    "files": _TEXT,
}
_MAX_NUMBER = 2**53  # numbers from here on are no counts: no float holds them


def _fits(value: Any, shapes: tuple[type, ...]) -> bool:
    """Return whether a value is of one of these types, and a number neither a flag nor negative."""
    kind = type(value)
    return kind in shapes and (kind not in _NUMBERS or 0 <= value < _MAX_NUMBER)


def _usage_counts(data: Mapping[str, Any]) -> list[int]:
    """Return the counts of a usage in order. Raises ValueError for one that is no whole number."""
    counts = [data.get(key, 0) for key in _USAGE_COUNTS]
    for key, count in zip(_USAGE_COUNTS, counts, strict=True):
        if type(count) is not int or not 0 <= count < _MAX_NUMBER:
            raise ValueError(f"usage.{key} is not a count")
    return counts


def summarized_text(block: Mapping[str, Any]) -> str:
    """Return what a compaction block of the API's says; "" for any other block."""
    text = block.get("content") if block.get("type") == "compaction" else ""
    return text if isinstance(text, str) else ""


def encode(entry: Entry) -> dict[str, Any]:
    """Return the JSON object of an entry's line."""
    head = {"v": VERSION, "seq": entry.seq, "at": entry.at}
    if isinstance(entry, Unknown):
        return {**head, "kind": entry.name, **entry.extra}
    body = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in _COMMON}
    return {**head, "kind": entry.kind, **body, **entry.extra}


_PLAIN_ID = regex(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_SUBAGENT_LOG = regex(r"agents/[A-Za-z0-9][\w.-]{0,99}/log\.jsonl", re.ASCII)
_OFFLOADED = regex(r"offloaded/[^/\0]{1,255}")
_ELSEWHERE = "offloaded/a file outside of the session"  # which is never there
_CHECKPOINT_PATH = regex(r"checkpoints/\d{1,18}\.json|")


def _within_session(cls: type[Entry], body: dict[str, Any]) -> None:
    """See to it that what an entry names of its session lies in the session's folder, whatever
    the log says: other files count as gone, and a subagent's log is where its id says. Raises
    ValueError for an id that is none."""
    if body.get("offloaded") is not None and not _OFFLOADED.fullmatch(body["offloaded"]):
        body["offloaded"] = _ELSEWHERE
    if cls is Checkpoint and not _CHECKPOINT_PATH.fullmatch(body.get("path", "")):
        body["path"] = ""
    if cls is SubagentRun:
        if not _PLAIN_ID.fullmatch(body.get("id", "")):
            raise ValueError("agent.id is no plain name")
        if not _SUBAGENT_LOG.fullmatch(body.get("log", "")):
            body["log"] = f"agents/{body['id']}/log.jsonl"


def decode(line: Mapping[str, Any]) -> Entry:
    """Return the entry that a line of the log stands for. Raises ValueError, naming the field, for
    a line that is no entry or whose fields have the wrong shape: a reader skips such a line with a
    warning."""
    seq, at, kind = line.get("seq"), line.get("at", ""), line.get("kind")
    if not isinstance(seq, int) or not _fits(seq, _NUMBER) or seq < 1:
        raise ValueError("seq is not a number from 1")
    if not isinstance(kind, str) or not isinstance(at, str):
        raise ValueError("no kind")
    cls = KINDS.get(kind)
    if cls is None:
        rest = {k: v for k, v in line.items() if k not in _HEAD}
        return Unknown(seq=seq, at=at, name=kind, extra=rest)
    known, body, extra = _OWN_FIELDS[cls], dict[str, Any](), dict[str, Any]()
    for name, value in line.items():
        if name not in known:
            if name not in _HEAD:
                extra[name] = value
            continue
        shape = type(value)
        if shape not in _SHAPES[name] or (shape in _NUMBERS and not 0 <= value < _MAX_NUMBER):
            if name != "request":
                raise ValueError(f"{kind}.{name} is a {shape.__name__} that cannot stand there")
            value = {}  # it only says how a reply came about, and no reply is lost for it
        elif shape is list and not all(_fits(item, _ITEMS[name]) for item in value):
            raise ValueError(f"{kind}.{name} has an item that cannot stand there")
        body[name] = value
    if cls is Assistant and not isinstance(body.get("content"), list):
        raise ValueError("assistant.content is not a list of blocks")
    if len(body.get("covers", (1, 1))) != 2:
        raise ValueError(f"{kind}.covers is not a first and a last")
    _within_session(cls, body)
    if "usage" in body:
        _usage_counts(body["usage"])
    try:
        return cls(seq=seq, at=at, extra=extra, **body)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}") from error
