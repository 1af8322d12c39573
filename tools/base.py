"""What a tool is, and what it is given.

A tool is a class with a name, a description for the model, pydantic `Params` (which give its JSON
schema) and a coroutine `run`. It knows nothing of the agent: everything it needs is handed to it
in a `Context`. It never asks for permission, the loop has done that. It answers with an `Output`,
or raises `ToolError` with a message the model can act on: say what is wrong, and the next move.

Cancellation is asyncio's: `run` is cancelled when the person interrupts. A tool that had something
by then raises `Interrupted` with it (instead of CancelledError), and leaves no child behind.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

Effect = Literal["none", "read", "edit", "run"]

VANISHED = "The working directory does not exist any more: {cwd}. Nothing can be done in it. Tell \
the user, who can put it back or start where it is now."


class Params(BaseModel):
    """Base of every tool's parameters: unknown names are refused, so typing errors surface."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Output:
    """`text` goes to the model; `details` is for people and programs (diff, exit code, paths).

    `blocks` is for results that are more than text (images): when given, it is sent instead.
    """

    text: str
    details: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False
    blocks: list[dict[str, Any]] | None = None


class ToolError(Exception):
    """The call could not be done. The message goes to the model."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


class Interrupted(Exception):
    """The call was cancelled; `output` is what it had by then."""

    def __init__(self, output: Output) -> None:
        super().__init__(output.text)
        self.output = output


@dataclass(slots=True)
class Seen:
    """What the model has seen of each file: path to sha256 of its bytes when read or written."""

    digests: dict[str, str] = field(default_factory=dict)

    def note(self, path: Path, data: bytes) -> dict[str, str]:
        """Remember the bytes; the answer goes into `details["seen"]`, so that a resumed session
        knows it too."""
        digest = hashlib.sha256(data).hexdigest()
        self.digests[str(path)] = digest
        return {"path": str(path), "sha256": digest}

    def changed(self, path: Path, data: bytes) -> bool:
        """Whether the model saw this file with other bytes than these."""
        known = self.digests.get(str(path))
        return known is not None and known != hashlib.sha256(data).hexdigest()

    def __contains__(self, path: Path) -> bool:
        return str(path) in self.digests


@dataclass(frozen=True, slots=True)
class Passage:
    """A place in what was recorded. `ref` is what Recall takes, `what` says what stands there,
    `offset` is where the excerpt begins in its text, in characters."""

    ref: str
    what: str
    at: str
    excerpt: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """`searched` says where was looked, and how much of it."""

    passages: Sequence[Passage] = ()
    searched: str = "nothing: this session is not recorded"


@dataclass(frozen=True, slots=True)
class Errand:
    """Work for a subagent: `description` in a few words, `prompt` in full. `resume` is the id of
    an earlier one that goes on; else `type` says what kind of subagent, and `model` which model
    where it is not that of the type."""

    description: str
    prompt: str
    type: str | None = None
    model: str | None = None
    resume: str | None = None


class Confinement(Protocol):
    """How commands are kept from what is not theirs. `absent` says why they are not, "" where they
    are; with `required` none may run then, and none outside of it."""

    required: bool
    network: bool

    @property
    def absent(self) -> str: ...

    def bounds(self) -> str: ...

    def describe(self) -> str: ...

    def enclose(
        self, command: Sequence[str], *, lasting: bool = False, own: Iterable[int] = ()
    ) -> list[str]: ...

    def environment(self, env: Mapping[str, str]) -> dict[str, str]: ...

    def set_aside(self) -> list[str]: ...


async def _nobody(errand: Errand) -> Output:
    raise ToolError("Subagents cannot be started here. Do the work yourself.")


@dataclass(slots=True)
class Context:
    """What a tool is handed.

    `cwd` is the project directory, `session_dir` the session's own folder (None when nothing is
    recorded), `env` the environment for children, already without keys and tokens. `progress`
    takes text for people while the tool runs; the loop sets it for each call. `recall` gives the
    whole text that a ref names (42, "#42", "SESSION#42", or a file of the session's folder), or
    None. `search` finds words in what a scope recorded: "session", "project" or a session's id.
    `spawn` has an errand done by a subagent; `agents` are those that run, by id, each with a way
    to interrupt it alone. `sieve` puts something before a sink of output, and `redact` takes out of
    an outcome, what must not be kept. `kept` tells of an absolute path whether a rule keeps it from
    being read: what searches leaves it out.
    """

    cwd: Path
    session_dir: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    todos: list[dict[str, str]] = field(default_factory=list)
    jobs: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda text: None
    recall: Callable[[int | str], str | None] = lambda ref: None
    search: Callable[[str, str], Findings] = lambda query, scope: Findings()
    spawn: Callable[[Errand], Awaitable[Output]] = _nobody
    agents: dict[str, Callable[[], object]] = field(default_factory=dict)
    sandbox: Confinement | None = None
    sieve: Callable[[Any], Any] = lambda sink: sink
    redact: Callable[[Output], Output] = lambda output: output
    kept: Callable[[str], bool] = lambda path: False

    def resolve(self, path: str) -> Path:
        """An absolute path for what the model wrote: `~` and relative paths are allowed. Symlinks
        and `..` are left as they stand."""
        expanded = Path(path).expanduser()
        return expanded if expanded.is_absolute() else self.cwd / expanded

    def shown(self, path: Path) -> str:
        """A path as a person would write it here: relative inside `cwd`, else absolute."""
        try:
            return str(path.relative_to(self.cwd)) or "."
        except ValueError:
            return str(path)


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """One tool. Subclasses set the class variables and write `run`.

    `effect` is what a call does to the world: none (only the agent's own state), read, edit
    (files), run (anything). Calls with none or read may run side by side. `room` is how many
    tokens of a result the model gets at most, where that is less than of others.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    effect: ClassVar[Effect]
    room: ClassVar[int | None] = None
    Params: ClassVar[type[Params]]

    @abstractmethod
    async def run(self, params: P, context: Context) -> Output: ...

    def subject(self, params: P) -> str:
        """What a permission rule's parentheses match: a path, a shell command, or ""."""
        return ""

    def title(self, params: P) -> str:
        """One line for people: what this call is about."""
        return self.subject(params)

    async def preview(self, params: P, context: Context) -> dict[str, Any]:
        """What the call would change, for the permission prompt: `{"diff": …}` or nothing.

        Never changes anything. Raises ToolError, as `run` would, for a call that must fail.
        """
        return {}

    def exception(self, params: P, context: Context) -> str:
        """Why the call is asked about although the rules allow it; "" for nothing."""
        return ""

    def schema(self) -> dict[str, Any]:
        """The tool as the Messages API takes it: name, description, input_schema."""
        schema = _plain(self.Params.model_json_schema())
        schema.pop("description", None)
        return {"name": self.name, "description": self.description, "input_schema": schema}


def _plain(node: Any) -> Any:
    """Pydantic's schema without the titles it adds, which cost tokens and say nothing."""
    if isinstance(node, dict):
        named = node.get("properties")
        out = {k: _plain(v) for k, v in node.items() if k != "title" and k != "properties"}
        if isinstance(named, dict):
            out["properties"] = {name: _plain(value) for name, value in named.items()}
        return out
    if isinstance(node, list):
        return [_plain(v) for v in node]
    return node
