"""The kinds of log entry as dataclasses.

A recorded entry never changes. The log assigns `seq` and `at` on append; before that they are 0 and
"". Unknown fields survive a round trip in `extra`, and a line of an unknown kind survives in
`Unknown`. `docs/internals/log-format.md` describes each kind.
"""

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields
from typing import Any, ClassVar, NamedTuple

from ..lazy import dataclass, regex

VERSION = 1
SHELL_OUTPUT_HEADING = "[What it said:]\n"  # before the output of a command that the user ran
ATTACHMENT = "attachment"  # source of content that the user adds to a message
SKILL = "skill"  # source of the text of a loaded skill
# Source of definitions of tools that were loaded late. Only older logs have these entries.
LOADED_TOOLS = "loaded tools"
# Purpose of a request that only kept the prompt in the server's cache. Only older logs have these
# entries.
WARMING = "warm"
SAMPLING = "sampling"  # purpose of a reply that an MCP server asked for
CHECK = "check"  # purpose of a tiny request after a refusal, to learn if the server answers at all
BOUND, FREE = "bound", "free"  # values of `Session.thinking`
PLAN = "plan"  # source of a plan: approved by the user, or made without a user present
SKILL_LIST = "skill list"  # source of the list of available skills
MEMORY = "memory"  # source of the index of the facts about a project
DROP = "drop"  # layer of the items that the user drops
HOOK = "hook"  # source of a hook's message to the model

_TOKEN_COUNTS = ("input", "cache_read", "cache_creation", "output")
_USAGE_COUNTS = (*_TOKEN_COUNTS, "web_searches")

Block = dict[str, Any]
Content = str | list[Block]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call, or the sum over several calls, as the API counts them, and the
    number of web searches by the server.
    """

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
        """Tokens of the prompt, cached or not."""
        return self.input + self.cache_read + self.cache_creation

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def to_json(self) -> dict[str, int]:
        """Return the counts by name. Omit the number of searches if it is 0."""
        counts = asdict(self)
        return counts if self.web_searches else {k: counts[k] for k in _TOKEN_COUNTS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Usage":
        """Parse a usage. Raises ValueError for counts that are not whole numbers."""
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
    """The opening of the session by a process. The system prompt and the tools are recorded because
    every request begins with them. Small fields come first, so that a list of sessions can read
    them cheaply.
    """

    kind: ClassVar[str] = "session"
    id: str
    cwd: str
    branch: str = ""  # git branch at `cwd`, "" for none
    version: str
    model: str
    # BOUND if the model's thinking is valid only after exactly the same context, else FREE. "" in
    # older logs: there, a change of the model, prompt or tools drops all earlier thinking.
    thinking: str = ""
    # Only in a session of the proxy: `protocol` and `upstream` of the client's requests, the
    # client's name as `agent`, and the digest of its `first` message.
    client: dict[str, Any] = field(default_factory=dict)
    system: str | None = None  # None if unchanged
    own_prompt: str | None = None  # the part of `system` that the user wrote to replace ours
    tools: list[dict[str, Any]] | None = None  # None if unchanged
    parent: dict[str, Any] | None = None  # {"id", "seq"} of the session this was forked from


@dataclass(frozen=True, slots=True, kw_only=True)
class User(Entry):
    """A message to the model. `source` is its origin: person, environment, instructions, notice,
    note (a pin in the user's own words), skill, skill list, loaded tools, plan, hook, shell or
    attachment.

    A `shell` entry is a command that the user ran. It has `details` and `offloaded` as in a Bash
    result; its output is the last block. An `attachment` is a file, a directory or piped input that
    belongs to the message before it. It has `details` and `offloaded` as in the result of the
    `call` that its details name.

    Details by source:

    - instructions: `instructions` with the path and sha256 of the text. Optional: the `folder` that
      it applies to, the file that it is imported `by`, and the number of tokens `left_out`.
    - skill: `skill` with the name, path and digest of the text. When repeated after a summary, also
      the `ref` of the entry with the whole text, and `is_part` if the text is shortened.
    - plan: `plan` with `agreed`, or after a summary the `ref` of the entry that it repeats; and
      `todos`, the steps of the plan.
    - skill list: `skills`, a mark of each announced skill by name (None for a removed skill), and
      `whole` if the list is complete.
    - hook: `hook` with the event, the owner (`of`), the `source` of a session start and the
      `sha256` of the whole text.
    - loaded tools (older logs only): blocks in the API's form that add tools from here on.
    """

    kind: ClassVar[str] = "user"
    content: Content
    source: str = "person"
    mid_turn: bool = False  # sent during a turn, which continued with it
    details: dict[str, Any] = field(default_factory=dict)
    offloaded: str | None = None

    @property
    def begins_turn(self) -> bool:
        """Whether this message starts a turn."""
        return self.source == "person" and not self.mid_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant(Entry):
    """A reply, with its blocks as the API returned them."""

    kind: ClassVar[str] = "assistant"
    content: list[Block]
    usage: dict[str, int]
    stop_reason: str | None
    model: str
    # turn, summary, verify, attempt, SAMPLING or WARMING; only turns are in the view
    purpose: str = "turn"
    message_id: str | None = None
    cost_usd: float | None = None  # None if the model's price is not known
    # Raw arguments, by tool_use id, of calls whose JSON did not parse. Such a call runs only if its
    # JSON is in a code fence; otherwise its result is an error.
    broken: dict[str, str] = field(default_factory=dict)
    # What the reply had in another form than the API's: `form` and `text` of calls that it wrote as
    # text, and by tool_use ID the `names` of tools that it wrote in another way.
    dialect: dict[str, Any] = field(default_factory=dict)
    # The request: `sha256` of its bytes, its `parameters`, and the `origin` as defined by `Request`
    # in agent/context/request.py; {} if unknown.
    request: dict[str, Any] = field(default_factory=dict)
    # Of a reply of a local server: the prompt tokens `cached` and `read`, the tokens `written`, the
    # seconds `read_s` and `written_s`, and `by`: "server", or "clock" if they were measured here.
    timings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Entry):
    """The result of one tool call."""

    kind: ClassVar[str] = "tool_result"
    tool_use_id: str
    content: Content
    is_error: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    offloaded: str | None = None  # file in the session folder; `content` is its preview


def altered_thinking(text: str) -> Block:
    """Return a thinking block from which a secret was removed. It cannot be sent to the API
    again.
    """
    return {"type": "thinking", "thinking": text, "signature": "", "altered": True}


def shell_result(entry: User) -> ToolResult:
    """Return the outcome of a command that the user ran, in the form of a tool result."""
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
    """Return an attachment in the form of the tool result that it corresponds to."""
    return ToolResult(
        seq=entry.seq,
        at=entry.at,
        tool_use_id="",
        content=entry.content,
        details=entry.details,
        offloaded=entry.offloaded,
    )


def attachment_call(entry: User) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of the call that an attachment corresponds to."""
    call = entry.details.get("call")
    name, given = (call.get("name"), call.get("input")) if isinstance(call, dict) else ("", {})
    return str(name or "Read"), given if isinstance(given, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(Entry):
    """One pass of a compaction layer that replaces results or inputs with stubs."""

    kind: ClassVar[str] = "mask"
    layer: str
    # {"seq", "tool_use_id", "stub"} for a result, {"seq", "tool_use_id", "input"} for the input of
    # a call, {"seq", "tool_use_id", "reply", "outline"} for a result and the reply with its call,
    # {"seq", "thinking": False} for a reply whose thinking is removed. Edits of the user:
    # {"seq", "text", "at"} for an item that the text replaces, or "" if the item `at` has the text;
    # {"seq", "whole": True} for an item that is shown whole again.
    targets: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    trigger: str
    state: str = ""  # the state block to show behind the newest outline; "" leaves it as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Entry):
    """A summary that replaces the entries `covers[0]..covers[1]`. In the view it becomes a user
    message with `text`, followed by the items whose seq is in `keep`, and by everything from
    `keep_from` on. With a `block`, the block comes first and `text` last.
    """

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
    # Statements about earlier failures: the author (`by`), `why`, and the resolved `refs` or the
    # refs that are `reopened`.
    resolved: list[dict[str, Any]] = field(default_factory=list)
    # True if every earlier summary is dropped, whatever its seq. In older logs (False), an earlier
    # summary may have stayed in the view because its seq is larger than `keep_from`.
    replaces_earlier: bool = False
    # Entries of the previous summary that no longer apply, and every rule known to be lifted.
    superseded: list[dict[str, Any]] = field(default_factory=list)
    # The API's compaction block, unchanged. It is then the first message, and `text` follows all
    # kept items. With `keeps_thinking`, the thinking in these items is kept too.
    block: dict[str, Any] | None = None
    keeps_thinking: bool = False

    @property
    def whole_text(self) -> str:
        """The whole text of the summary in the view."""
        said = summarized_text(self.block or {})
        return f"{said}\n\n{self.text}" if said else self.text

    @property
    def span(self) -> str:
        """The range of entries that this summary is the first to replace, for display. In logs
        without `replaces_earlier`, the first one may be an earlier summary with a larger seq.
        """
        first, last = self.covers
        return f"#{first} to #{last}" if first <= last else f"all up to #{last}"


class LayerName(NamedTuple):
    """The names of a layer of the product. Logs and JSON keep the names of earlier versions."""

    word: str  # in code, settings, reports and pages
    logged: str  # in the log
    counted: str  # in the counts of JSON results


MOVE = LayerName("move", "demote", "demoted")
CLEAR = LayerName("clear", "microcompact", "microcompacted")
TRUNCATE = LayerName("truncate", "truncate", "truncated")
OUTLINE = LayerName("outline", "outline", "outlined")
SUMMARY = LayerName("summary", Summary.kind, "summaries")
LAYER_NAMES = (MOVE, CLEAR, TRUNCATE, OUTLINE, SUMMARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert(Entry):
    """A revert of the mask or summary at `target`: the view is computed without it."""

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
    repository: str = ""  # name of the record of the git repository, "" for none


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
    """Recorded information that the model does not see."""

    kind: ClassVar[str] = "note"
    # intent, decision, drift, phase, permission, quality, recovery, rewind, agent, killed, task,
    # title, renamed, loop, request, proxy, hook, recording, window, warning
    topic: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRun(Entry):
    """The state of a subagent, recorded at its start and at its end. The newest entry of an `id`
    counts.

    Usage, cost, calls, tool calls and compaction are sums over the subagent's whole log, including
    earlier runs. The session's log alone is therefore enough to compute the session's totals.
    """

    kind: ClassVar[str] = "agent"
    id: str
    type: str
    prompt: str
    log: str  # path below the session's folder
    status: str = "running"  # later done, error, interrupted or limit
    answer: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    description: str = ""
    calls: int = 0
    tool_calls: int = 0
    compaction: dict[str, int] = field(default_factory=dict)
    told: int = 0  # last entry of its log whose file changes are recorded in the session's log
    # Files that it read or changed, newest last, named as in its log; empty in older logs.
    files: list[str] = field(default_factory=list)
    lost: bool = False  # interrupted because its process was killed
    outside: str = ""  # the newest text from outside of the project that it read, "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Entry):
    """The end of a turn."""

    kind: ClassVar[str] = "end"
    status: str  # same values as in the JSON result
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Entry):
    """A line of a kind that this version does not know; `extra` contains its fields."""

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
    """Return the seqs of all reverted entries. A revert may itself be reverted later."""
    gone: set[int] = set()
    for revert in reversed([entry for entry in entries if isinstance(entry, Revert)]):
        if revert.seq not in gone:
            gone.add(revert.target)
    return gone


_COMMON = ("kind", "seq", "at", "extra")
_COMMON_FIELDS = ("v", "seq", "at", "kind")  # fields of every line
_OWN_FIELDS = {cls: frozenset(f.name for f in fields(cls)) - {*_COMMON} for cls in KINDS.values()}
_TEXT, _NUMBER, _NONE = (str,), (int,), type(None)
_NUMBERS = (int, float)  # types with a range check; bool has none
_SHAPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("id", "cwd", "version", "model", "source", "purpose", "tool_use_id", "layer", "trigger",
         "text", "reason", "path", "topic", "type", "prompt", "log", "status", "answer",
         "description", "branch", "repository", "thinking", "state", "outside"),
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
        ("usage", "broken", "dialect", "client", "details", "document", "probes", "data",
         "compaction", "request", "timings"),
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
_ITEMS: dict[str, tuple[type, ...]] = {  # types of the items in list fields
    **dict.fromkeys(("content", "tools", "targets", "resolved", "superseded"), (dict,)),
    **dict.fromkeys(("covers", "keep"), _NUMBER),
    "files": _TEXT,
}
_MAX_NUMBER = 2**53  # larger integers are not exact as floats


def _has_type(value: Any, shapes: tuple[type, ...]) -> bool:
    """Return True if a value has one of these types. Numbers must be non-negative; bool is not an
    int.
    """
    kind = type(value)
    return kind in shapes and (kind not in _NUMBERS or 0 <= value < _MAX_NUMBER)


def _usage_counts(data: Mapping[str, Any]) -> list[int]:
    """Return the counts of a usage in order. Raises ValueError for a count that is not a whole
    number.
    """
    counts = []
    for key in _USAGE_COUNTS:
        count = data.get(key, 0)
        if type(count) is not int or not 0 <= count < _MAX_NUMBER:
            raise ValueError(f"usage.{key} is not a count")
        counts.append(count)
    return counts


def summarized_text(block: Mapping[str, Any]) -> str:
    """Return the text of the API's compaction block, or "" for any other block."""
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
_MISSING_FILE = "offloaded/a file outside of the session"  # never exists
_CHECKPOINT_PATH = regex(r"checkpoints/\d{1,18}\.json|")


def _within_session(cls: type[Entry], body: dict[str, Any]) -> None:
    """Restrict the paths in an entry to the session's folder, whatever the log contains. Paths
    outside count as missing files, and a subagent's log path falls back to the one for its ID.
    Raises ValueError for an invalid ID.
    """
    if body.get("offloaded") is not None and not _OFFLOADED.fullmatch(body["offloaded"]):
        body["offloaded"] = _MISSING_FILE
    if cls is Checkpoint and not _CHECKPOINT_PATH.fullmatch(body.get("path", "")):
        body["path"] = ""
    if cls is SubagentRun:
        if not _PLAIN_ID.fullmatch(body.get("id", "")):
            raise ValueError("agent.id is not a plain name")
        if not _SUBAGENT_LOG.fullmatch(body.get("log", "")):
            body["log"] = f"agents/{body['id']}/log.jsonl"


def decode(line: Mapping[str, Any]) -> Entry:
    """Return the entry for a line of the log. Raises ValueError with the field name for a line that
    is not an entry or has fields of the wrong type. Readers skip such lines with a warning.
    """
    seq, at, kind = line.get("seq"), line.get("at", ""), line.get("kind")
    if not isinstance(seq, int) or not _has_type(seq, _NUMBER) or seq < 1:
        raise ValueError("seq is not a number from 1")
    if not isinstance(kind, str) or not isinstance(at, str):
        raise ValueError("no kind")
    cls = KINDS.get(kind)
    if cls is None:
        rest = {k: v for k, v in line.items() if k not in _COMMON_FIELDS}
        return Unknown(seq=seq, at=at, name=kind, extra=rest)
    known, body, extra = _OWN_FIELDS[cls], dict[str, Any](), dict[str, Any]()
    for name, value in line.items():
        if name not in known:
            if name not in _COMMON_FIELDS:
                extra[name] = value
            continue
        shape = type(value)
        if shape not in _SHAPES[name] or (shape in _NUMBERS and not 0 <= value < _MAX_NUMBER):
            if name != "request":
                raise ValueError(f"{kind}.{name} has the wrong type {shape.__name__}")
            value = {}  # only informative: do not lose the reply because of it
        elif shape is list and not all(_has_type(item, _ITEMS[name]) for item in value):
            raise ValueError(f"{kind}.{name} has an item of the wrong type")
        body[name] = value
    if cls is Assistant and not isinstance(body.get("content"), list):
        raise ValueError("assistant.content is not a list of blocks")
    if len(body.get("covers", (1, 1))) != 2:
        raise ValueError(f"{kind}.covers is not a pair")
    _within_session(cls, body)
    if "usage" in body:
        _usage_counts(body["usage"])
    try:
        return cls(seq=seq, at=at, extra=extra, **body)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}") from error
