"""The base class of all tools, and the context that a tool receives.

A tool is a class with a name, a description for the model, pydantic `Params` (the source of its
JSON schema) and a coroutine `run`. It does not depend on the agent: a `Context` provides everything
it needs. The tool runner checks permissions, not the tool. `run` returns an `Output`, or raises
`ToolError` with a message for the model: the problem and the next step.

When the user interrupts, asyncio cancels `run`. A tool with a partial result raises `Interrupted`
with it in place of CancelledError. It leaves no child process running.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from ..agent.lazy import dataclass
from .offered import EVERY, Offered
from .system.capture import MAX_OUTPUT_BYTES, OutputFile
from .system.confinement import Confinement
from .system.kept_text import KeptText

# Else pydantic reads the entry points of all installed packages, which takes 16 ms. The public way
# is a variable, which commands would inherit. Without this module, the start is only slower.
with suppress(ImportError):
    from pydantic.plugin import _loader

    _loader._plugins = {}

Effect = Literal["none", "read", "edit", "run"]
OUTSIDE = "outside"  # in the details of a result: where text from outside of the project came from


class Params(BaseModel):
    """Base class of all tool parameters. Unknown names are rejected, so that typos are reported."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Brief:
    """The short description of a tool for a small model. The tool still accepts its other
    parameters.
    """

    description: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a call."""

    text: str  # for the model
    # for the user and programs: diff, exit code, paths
    details: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False
    blocks: list[dict[str, Any]] | None = None  # sent in place of `text` if a result has images
    whole: str = ""  # the full text of which `text` is a part; stored in a session file
    filed: "FiledOutput | None" = None  # the file that already has the full text
    original: bytes = b""  # the original image of `blocks`; stored in a session file


@dataclass(frozen=True, slots=True)
class FiledOutput:
    """A session file that received an output while it was produced."""

    file: OutputFile
    lines: int
    characters: int
    is_needed: bool  # the output's text is incomplete


class Interrupted(Exception):
    """The call was cancelled; `output` is the partial result."""

    def __init__(self, output: Output) -> None:
        super().__init__(output.text)
        self.output = output


@dataclass(slots=True)
class Seen:
    """The bytes of each file that the model has seen, as a map from path to SHA-256."""

    digests: dict[str, str] = field(default_factory=dict)

    def note(self, path: Path, data: bytes) -> dict[str, str]:
        """Record the bytes of a file. Return `details["seen"]`, which resumed sessions read."""
        digest = hashlib.sha256(data).hexdigest()
        self.digests[str(path)] = digest
        return {"path": str(path), "sha256": digest}

    def changed(self, path: Path, data: bytes) -> bool:
        """Return True if the model saw this file with different bytes."""
        known = self.digests.get(str(path))
        return known is not None and known != hashlib.sha256(data).hexdigest()

    def __contains__(self, path: Path) -> bool:
        return str(path) in self.digests


@dataclass(frozen=True, slots=True)
class Passage:
    """A search hit in the records of sessions."""

    ref: str  # the reference for Recall
    what: str  # the kind of text
    at: str
    excerpt: str
    offset: int = 0  # the start of the excerpt in its text, in characters
    results: Sequence[tuple[str, str]] = ()  # (ref, ends of the text), of a reply with calls


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a search of the records."""

    passages: Sequence[Passage] = ()
    # the searched scope and its size
    searched: str = "nothing: this session is not recorded"


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text that matches a query."""

    offset: int  # in characters
    text: str


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """Work for a subagent."""

    description: str  # a few words
    prompt: str  # the work in full
    type: str | None = None  # the subagent type
    model: str | None = None  # overrides the type's model
    resume: str | None = None  # ID of a finished subagent to continue, or of a running one
    background: bool = False  # return at once


@dataclass(slots=True)
class Context:
    """The state and services that a tool receives for a call."""

    cwd: Path  # the project directory
    session_dir: Path | None = None  # None when nothing is recorded
    env: Mapping[str, str] = field(default_factory=dict)  # for child processes; without secrets
    offered: Offered = EVERY  # the tools of the conversation; texts for the model name only these
    seen: Seen = field(default_factory=Seen)
    todos: list[dict[str, str]] = field(default_factory=list)
    jobs: dict[str, Any] = field(default_factory=dict)
    # For each command and subagent in the foreground, a function that moves it to the background.
    # Raises ToolError if that is impossible.
    foreground: set[Callable[[], None]] = field(default_factory=set)
    # Shows text to the user while a tool runs; set for each call.
    progress: Callable[[str], None] = lambda text: None
    max_output_bytes: int = MAX_OUTPUT_BYTES  # output limit per command
    # Creates the file for the output of a call. Raises OSError. None if nothing is recorded. Set
    # for each call.
    open_file: Callable[[], OutputFile] | None = None
    # Returns the full text of a ref (42, "#42", "SESSION#42", or a session file), or None.
    recall: Callable[[int | str], KeptText | None] = lambda ref: None
    # Returns the original bytes of the images of a ref.
    recall_images: Callable[[int | str], Sequence[bytes]] = lambda ref: ()
    # Searches the records of a scope: "session", "project" or a session's ID.
    search: Callable[[str, str], Findings] = lambda query, scope: Findings()
    # Finds the parts of a text that match a query best, in the order of the text.
    find_parts: Callable[[KeptText, str], Sequence[TextPart]] = lambda text, query: ()
    # Returns the tokens of the model's context window; 0 if unknown.
    window_tokens: Callable[[], int] = lambda: 0
    # Returns True if a rule names the host. Then the tool may connect to it even if it is private.
    reaches_private: Callable[[str, str], bool] = lambda tool, host: False
    # Running and queued subagents by ID; `stop` interrupts one, `work` is its task.
    agents: dict[str, Any] = field(default_factory=dict)
    sandbox: Confinement | None = None
    # The sandbox for read-only commands; None if there is none.
    read_only_sandbox: Confinement | None = None
    # Wraps an output sink in a filter for secrets.
    sieve: Callable[[Any], Any] = lambda sink: sink
    # Redacts an output.
    redact: Callable[[Output], Output] = lambda output: output
    # Returns a function that a thread calls before it starts a search. It limits reading to a
    # folder, despite links out of it. None if the system does not support that.
    search_bounds: Callable[[Path], Callable[[], None] | None] = lambda folder: None
    judged_path: str = ""  # the resolved path at the permission check; "" without a check
    # Returns True if a rule forbids reading an absolute path. Searches leave out such paths.
    is_denied: Callable[[str], bool] = lambda path: False

    def resolve(self, path: str) -> Path:
        """Return an absolute path for a path from the model, which may be relative or start with
        `~`.

        Links and `..` are not resolved.
        """
        expanded = Path(path).expanduser()
        return expanded if expanded.is_absolute() else self.cwd / expanded

    def shown(self, path: Path) -> str:
        """Return a path for display: relative inside `cwd`, else absolute, as commands see it."""
        try:
            return str(path.relative_to(self.cwd)) or "."
        except ValueError:
            return self.sandbox.named(str(path)) if self.sandbox else str(path)


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """One tool. Subclasses set the class variables and implement `run`."""

    name: ClassVar[str]
    description: ClassVar[str]
    # none: changes only the agent's own state. Calls with none or read may run in parallel.
    effect: ClassVar[Effect]
    # The token limit of a result; None for the default.
    max_result_tokens: ClassVar[int | None] = None
    Params: ClassVar[type[Params]]
    brief: ClassVar[Brief | None] = None  # None if small models do not get the tool
    is_brief = False  # the model gets `brief`

    @property
    def wire_name(self) -> str:
        """The tool's name in requests to the model."""
        return self.name

    @abstractmethod
    async def run(self, params: P, context: Context) -> Output: ...

    def resolve(self, params: P) -> "tuple[Tool[Any], Any]":
        """Return the tool and parameters under which a call is judged, shown and run. Raises
        ToolError for an invalid call.
        """
        return self, params

    def subject(self, params: P) -> str:
        """Return the text that a rule's parentheses match: a path, a shell command, or ""."""
        return ""

    def title(self, params: P) -> str:
        """Return a one-line summary of the call for the user."""
        return self.subject(params)

    async def preview(self, params: P, context: Context) -> dict[str, Any]:
        """Return the change that the call would make, for the approval prompt: `{"diff": …}` or {}.

        Changes nothing. Raises ToolError, as `run` would, for a call that must fail.
        """
        return {}

    def why_ask_anyway(self, params: P, context: Context) -> str:
        """Return the reason to ask even though a rule allows the call; "" for no reason."""
        return ""

    def schema(self) -> dict[str, Any]:
        """Return the tool for the Messages API: name, description, input_schema. `Offered.rendered`
        makes its texts name only offered tools.
        """
        schema, description = deepcopy(input_schema(self.Params)), self.description
        if self.is_brief and self.brief:
            description, known = self.brief.description, schema["properties"]
            schema["properties"] = {name: known[name] for name in self.brief.parameters}
        return {"name": self.name, "description": description, "input_schema": schema}


def unstated(schema: dict[str, Any]) -> None:
    """Leave the default and the maximum out of a parameter's schema (`json_schema_extra`): for a
    default that a model expects, or that results state, and a maximum that calls rarely come near.
    """
    for key in ("default", "maximum", "maxItems"):
        schema.pop(key, None)


@lru_cache
def input_schema(params: type[Params]) -> dict[str, Any]:
    """Return the schema of a tool's parameters, cached since pydantic takes a millisecond to build
    it.
    """
    given = without_titles(params.model_json_schema())
    schema: dict[str, Any] = _brief(given, given.pop("$defs", {}))
    schema.pop("description", None)
    return schema


# Schema keys that models do not need to see. They are still enforced, but a call rarely comes near
# these bounds.
_OMITTED_KEYS = (
    "additionalProperties", "minLength", "maxLength", "minItems", "minimum", "properties",
)  # fmt: skip


def without_titles(node: Any) -> Any:
    """Return pydantic's schema without its titles, which cost tokens and carry no information."""
    if isinstance(node, dict):
        named = node.get("properties")
        out = {k: without_titles(v) for k, v in node.items() if k != "title" and k != "properties"}
        if isinstance(named, dict):
            out["properties"] = {name: without_titles(value) for name, value in named.items()}
        return out
    if isinstance(node, list):
        return [without_titles(v) for v in node]
    return node


def _brief(node: Any, defined: Mapping[str, Any]) -> Any:
    """Shorten a part of a schema to save tokens: drop `_OMITTED_KEYS`, null types and false
    defaults, and inline the `defined` parts.
    """
    if isinstance(node, list):
        return [_brief(value, defined) for value in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _brief(defined[node["$ref"].rpartition("/")[2]], defined)
    out = {key: _brief(value, defined) for key, value in node.items() if key not in _OMITTED_KEYS}
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
