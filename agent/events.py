"""What happens now: the grammar that every front end reads. Events are ephemeral.

A turn is  UserSaid · (CallStarted · (Waiting | ThinkingDelta | TextDelta | ToolDraft | Retrying)* ·
CallFinished · (ToolStarted · ToolOutput* · ToolFinished)*)* · TurnFinished, with Notice and
Compacted anywhere.
After `Retrying` the deltas of the broken attempt are void: a front end takes them back.
What must outlive the moment is an entry of the log, not an event.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """First of all events. `resumed` counts the entries that were already in the log."""

    session_id: str
    log: str
    model: str
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class UserSaid:
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A request goes to the model. `tokens` is the expected size of its prompt."""

    number: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The model has taken the request; `usage` is what it has charged for the prompt."""

    usage: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """The model is writing a tool call: `name`, and `size` characters of arguments so far."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Retrying:
    """The attempt failed; the next starts in `seconds`. `attempt` counts from 1."""

    attempt: int
    of: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    usage: Mapping[str, int]
    cost_usd: float | None
    stop_reason: str | None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """`title` is one line for people, e.g. `pytest -q`; `input` is what the model sent."""

    id: str
    name: str
    title: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """More output of a running tool, cleaned for a terminal."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """`text` is what the model reads; `details` is for people (diff, exit code, counts)."""

    id: str
    name: str
    title: str
    is_error: bool
    text: str
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that a person should see."""

    level: Literal["info", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """A layer made the context smaller. Tokens are those of the whole context; `refs` counts the
    entries that a stub or the summary now stands for; `detail` is one line for people."""

    layer: Literal["demote", "microcompact", "truncate", "summary"]
    trigger: str
    tokens_before: int
    tokens_after: int
    seconds: float
    cost_usd: float | None
    refs: int
    detail: str


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """`status` and `error` as in the JSON result; `text` is the final answer."""

    status: Literal["ok", "error", "denied", "limit", "interrupted"]
    text: str
    error: Mapping[str, str] | None = None


Delta = Accepted | TextDelta | ThinkingDelta | ToolDraft | Retrying

Event = (
    SessionOpened
    | UserSaid
    | CallStarted
    | Delta
    | CallFinished
    | ToolStarted
    | ToolOutput
    | ToolFinished
    | Notice
    | Compacted
    | TurnFinished
)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Question:
    """A call waits for a person's permission. `rule` is the narrowest rule that would allow it;
    `diff` is what an edit would change; `reason` says why it is asked."""

    tool: str
    title: str
    input: Mapping[str, Any]
    rule: str
    reason: str
    diff: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """`remember` allows `Question.rule` for the rest of the session. `reason` goes to the model
    with a refusal."""

    allow: bool
    remember: bool = False
    reason: str = ""


Ask = Callable[[Question], Awaitable[Answer]]
