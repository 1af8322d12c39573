"""The base of all tools, and the context that a tool is handed.

A tool is a class with a name, a description for the model, pydantic `Params` (which give its JSON
schema) and a coroutine `run`. It knows nothing of the agent: everything it needs comes in a
`Context`. It never asks for permission: the tool runner has done that. It returns an `Output`, or
raises `ToolError` with a message the model can act on: what is wrong, and the next move.

Cancellation is asyncio's: `run` is cancelled when the user interrupts. A tool that had something
by then raises `Interrupted` with it (instead of CancelledError), and leaves no child behind.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from ..agent.lazy import dataclass
from .system.kept_text import KeptText
from .system.output_file import MAX_OUTPUT_BYTES, OutputFile
from .system.spawn import Enclosed

Effect = Literal["none", "read", "edit", "run"]


class Params(BaseModel):
    """Base of every tool's parameters: unknown names are refused, so typing errors surface."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Brief:
    """What a small model is told about a tool. The tool takes its other parameters all the same."""

    description: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a call."""

    text: str  # goes to the model
    # for people and programs: diff, exit code, paths
    details: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False
    blocks: list[dict[str, Any]] | None = None  # sent instead of `text` where a result has images
    whole: str = ""  # that `text` is a part of; kept in a file of the session
    filed: "FiledOutput | None" = None  # `text`, or what it is a part of, in a file already
    original: bytes = b""  # of the image that `blocks` show; kept in a file of the session


@dataclass(frozen=True, slots=True)
class FiledOutput:
    """A file of the session that took an output while it came."""

    file: OutputFile
    lines: int
    characters: int
    is_needed: bool  # the output's text lacks a part of it


class Interrupted(Exception):
    """The call was cancelled; `output` is what it had by then."""

    def __init__(self, output: Output) -> None:
        super().__init__(output.text)
        self.output = output


@dataclass(slots=True)
class Seen:
    """Which bytes of each file the model has seen: path to sha256 when read or written."""

    digests: dict[str, str] = field(default_factory=dict)

    def note(self, path: Path, data: bytes) -> dict[str, str]:
        """Remember the bytes; return what goes into `details["seen"]`, for resumed sessions."""
        digest = hashlib.sha256(data).hexdigest()
        self.digests[str(path)] = digest
        return {"path": str(path), "sha256": digest}

    def changed(self, path: Path, data: bytes) -> bool:
        """Return True if the model saw this file with other bytes than these."""
        known = self.digests.get(str(path))
        return known is not None and known != hashlib.sha256(data).hexdigest()

    def __contains__(self, path: Path) -> bool:
        return str(path) in self.digests


@dataclass(frozen=True, slots=True)
class Passage:
    """A place in what was recorded."""

    ref: str  # what Recall takes
    what: str  # what stands there
    at: str
    excerpt: str
    offset: int = 0  # where the excerpt begins in its text, in characters


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search of the records found."""

    passages: Sequence[Passage] = ()
    # where it was looked, and how much of it
    searched: str = "nothing: this session is not recorded"


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """Work for a subagent."""

    description: str  # a few words
    prompt: str  # the work in full
    type: str | None = None  # which kind of subagent
    model: str | None = None  # where it is not that of the type
    resume: str | None = None  # id of an earlier subagent that goes on, or of one at work
    background: bool = False  # whether the call answers at once


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What one command may do in the sandbox. Paths are absolute."""

    unasked: bool = False  # nobody was asked: without the network, except by name
    # It only looks: it writes nothing, has no network, and reads only the project, its repository,
    # the session's readable folders and the system's.
    looks: bool = False
    offline: bool = False  # it reaches no host, not even by name
    writes_repository: bool = True  # else the project's repository (.git) is read-only
    hide: Sequence[str] = ()  # not seen
    keep: Sequence[str] = ()  # read-only
    opens: Sequence[str] = ()  # read in addition to what the sandbox shows


class Confinement(Protocol):
    """A sandbox that keeps commands from what is not theirs.

    `absent` says why there is none, "" where it works, `partial` why it holds less than it should;
    with `required` no command may run outside of it. Where the network is there `by_name`, commands
    reach some hosts, and others once the user allows it. `for_command` gives the sandbox of a
    single command. `moved` tells where that lies which commands find at a path, `named` is the
    other way round.
    """

    required: bool
    network: bool
    network_if_asked: bool  # whether the network that is off is there once the person allows it
    limits: CommandLimits

    @property
    def absent(self) -> str: ...

    @property
    def partial(self) -> str: ...

    @property
    def by_name(self) -> bool: ...

    @property
    def unasked_absent(self) -> str: ...

    @property
    def holds_looking(self) -> bool: ...

    @property
    def keeps_repository(self) -> bool: ...

    def for_command(self, limits: CommandLimits) -> "Confinement": ...

    def moved(self, path: str) -> str: ...

    def named(self, path: str) -> str: ...

    def can_read(self, path: str) -> bool: ...

    def can_write(self, path: str) -> bool: ...

    def bounds(self) -> str: ...

    def describe(self) -> str: ...

    def enclose(
        self, command: Sequence[str], *, lasting: bool = False, own: Iterable[int] = ()
    ) -> Enclosed: ...

    def environment(self, env: Mapping[str, str]) -> dict[str, str]: ...

    def set_aside(self) -> list[str]: ...

    def remove_empty(self) -> None: ...


@dataclass(slots=True)
class Context:
    """What a tool is handed."""

    cwd: Path  # the project directory
    session_dir: Path | None = None  # None when nothing is recorded
    env: Mapping[str, str] = field(default_factory=dict)  # for children; without keys and tokens
    seen: Seen = field(default_factory=Seen)
    todos: list[dict[str, str]] = field(default_factory=list)
    jobs: dict[str, Any] = field(default_factory=dict)
    # commands and subagents that are waited for, each with a way to let it go on in the
    # background; raises ToolError when that cannot be done
    foreground: set[Callable[[], None]] = field(default_factory=set)
    # takes text for people while a tool runs; set for each call
    progress: Callable[[str], None] = lambda text: None
    max_output_bytes: int = MAX_OUTPUT_BYTES  # of one command that are kept
    # makes the file for the output of a call; raises OSError. None where nothing is recorded; set
    # for each call
    open_file: Callable[[], OutputFile] | None = None
    # The whole text of a ref (42, "#42", "SESSION#42", or a file of the session's folder), or
    # None.
    recall: Callable[[int | str], KeptText | None] = lambda ref: None
    # The bytes of the images that a ref names, as they were before anything was made of them.
    recall_images: Callable[[int | str], Sequence[bytes]] = lambda ref: ()
    # Finds words in what a scope recorded: "session", "project" or a session's id.
    search: Callable[[str, str], Findings] = lambda query, scope: Findings()
    # Tells whether a rule names a host, so that a tool may reach it where it is not public.
    reaches_private: Callable[[str, str], bool] = lambda tool, host: False
    # subagents by id that work or wait for a place; `stop` interrupts one, `work` is its task
    agents: dict[str, Any] = field(default_factory=dict)
    sandbox: Confinement | None = None
    # for commands that only look; None where nothing confines them
    looking: Confinement | None = None
    # puts a filter for secrets before a sink of output
    sieve: Callable[[Any], Any] = lambda sink: sink
    # takes out of an output what must not be kept
    redact: Callable[[Output], Output] = lambda output: output
    # Returns what a thread gives up before it starts a search, so that this reads nothing but what
    # lies in a folder, wherever links in it lead; None where the system cannot hold it.
    search_bounds: Callable[[Path], Callable[[], None] | None] = lambda folder: None
    judged: str = ""  # where the path of this call led when it was judged; "" where it was not
    # Tells of an absolute path whether a rule keeps it from being read: searches leave it out.
    is_denied: Callable[[str], bool] = lambda path: False

    def resolve(self, path: str) -> Path:
        """Return an absolute path for what the model wrote: `~` and relative paths are allowed.

        Symlinks and `..` are left as they stand.
        """
        expanded = Path(path).expanduser()
        return expanded if expanded.is_absolute() else self.cwd / expanded

    def shown(self, path: Path) -> str:
        """Return a path as a person would write it here: relative inside `cwd`, else absolute, and
        by the name that commands know it by."""
        try:
            return str(path.relative_to(self.cwd)) or "."
        except ValueError:
            return self.sandbox.named(str(path)) if self.sandbox else str(path)


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """One tool. Subclasses set the class variables and write `run`."""

    name: ClassVar[str]
    description: ClassVar[str]
    # none: only the agent's own state; calls with none or read may run side by side
    effect: ClassVar[Effect]
    # tokens of a result that the model gets at most; None for the usual
    max_result_tokens: ClassVar[int | None] = None
    Params: ClassVar[type[Params]]
    brief: ClassVar[Brief | None] = None  # None for a tool that small models do not get
    is_brief = False  # whether the model is told `brief`

    @property
    def wire_name(self) -> str:
        """The name by which the model calls the tool."""
        return self.name

    @abstractmethod
    async def run(self, params: P, context: Context) -> Output: ...

    def resolve(self, params: P) -> "tuple[Tool[Any], Any]":
        """Return the tool that a call is judged, shown and run as, with its parameters. Raises
        ToolError for a call that is none."""
        return self, params

    def subject(self, params: P) -> str:
        """Return what a permission rule's parentheses match: a path, a shell command, or ""."""
        return ""

    def title(self, params: P) -> str:
        """Return one line for people: what this call is about."""
        return self.subject(params)

    async def preview(self, params: P, context: Context) -> dict[str, Any]:
        """Return what the call would change, for the permission prompt: `{"diff": …}` or nothing.

        Changes nothing. Raises ToolError, as `run` would, for a call that must fail.
        """
        return {}

    def why_ask_anyway(self, params: P, context: Context) -> str:
        """Return why the call is asked about although the rules allow it; "" for no reason."""
        return ""

    def schema(self) -> dict[str, Any]:
        """Return the tool as the Messages API takes it: name, description, input_schema."""
        schema, description = deepcopy(input_schema(self.Params)), self.description
        if self.is_brief and self.brief:
            description, known = self.brief.description, schema["properties"]
            schema["properties"] = {name: known[name] for name in self.brief.parameters}
        return {"name": self.name, "description": description, "input_schema": schema}


@lru_cache
def input_schema(params: type[Params]) -> dict[str, Any]:
    """Return the schema of a tool's parameters, which pydantic takes a millisecond to make."""
    given = untitled(params.model_json_schema())
    schema: dict[str, Any] = _brief(given, given.pop("$defs", {}))
    schema.pop("description", None)
    return schema


# What is held against a call all the same and that no model needs to be told before: its names are
# those that are listed, and of these bounds none is one that a call comes near.
_UNTOLD = (
    "additionalProperties", "minLength", "maxLength", "minItems", "minimum", "properties",
)  # fmt: skip


def untitled(node: Any) -> Any:
    """Return pydantic's schema without its titles, which cost tokens and say nothing."""
    if isinstance(node, dict):
        named = node.get("properties")
        out = {k: untitled(v) for k, v in node.items() if k != "title" and k != "properties"}
        if isinstance(named, dict):
            out["properties"] = {name: untitled(value) for name, value in named.items()}
        return out
    if isinstance(node, list):
        return [untitled(v) for v in node]
    return node


def _brief(node: Any, defined: Mapping[str, Any]) -> Any:
    """Return a part of a schema without what each request would pay for and a model can do without:
    what is `_UNTOLD`, null for what may be left out, and the names of `defined` parts."""
    if isinstance(node, list):
        return [_brief(value, defined) for value in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _brief(defined[node["$ref"].rpartition("/")[2]], defined)
    out = {key: _brief(value, defined) for key, value in node.items() if key not in _UNTOLD}
    if not out.get("default", True):
        del out["default"]
    match [kind for kind in out.pop("anyOf", ()) if kind != {"type": "null"}]:
        case [kind]:
            out = {**kind, **out}
        case [*kinds] if kinds:
            out["anyOf"] = kinds
    if named := node.get("properties"):
        out["properties"] = {name: _brief(value, defined) for name, value in named.items()}
    return out
