"""What happens now: the grammar that every front end reads. Events are ephemeral.

A turn is  UserSaid · (CallStarted · (Accepted | ThinkingDelta | TextDelta | ToolDraft |
Retrying)* · CallFinished · (ToolStarted · ToolOutput* · ToolFinished)*)* · TurnFinished, with
Waiting, Notice and Compacted anywhere.
After `Retrying` the deltas of the broken attempt are void: a front end takes them back.

A call of Task is ToolStarted · (AgentStarted · AgentProgress* · AgentFinished)? · ToolFinished; up
to four run side by side, so what is between belongs to the subagent that `id` names. Of what
happens inside one, Notice, Compacted and a Question alone come through, and their `agent` names
it; the rest is summed up in AgentProgress, at most a few times a second.
What must outlive the moment is an entry of the log, not an event.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """The model has taken the request; `usage` is what it has charged for the prompt. `sent` is the
    sha256 of the bytes that went out, "" where the model does not tell."""

    usage: Mapping[str, int]
    sent: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something other than the model or a tool is waited for, where that may take a second or more:
    `what` in a few words for people. It is over with the next event that says what goes on, or with
    one whose `what` is empty."""

    what: str


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
    """`text` is what the model reads; `details` is for people (diff, exit code, counts). `ref` is
    the seq of the entry that has the whole result."""

    id: str
    name: str
    title: str
    is_error: bool
    text: str
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)
    ref: int = 0


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """A subagent begins, or goes on where it was left. `id` is what `Task(resume=…)` takes and the
    name of its folder; `type` and `description` (a few words) are what the model asked for."""

    id: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """How far a subagent is: model calls and tool calls in this run of it, the size of its own
    context in tokens and its level, and what it does now, in one line."""

    id: str
    calls: int
    tools: int
    tokens: int
    level: str
    doing: str


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """A subagent has ended; usage and cost are those of this run of it. `cost_usd` is None where
    no price is known."""

    id: str
    status: Literal["done", "error", "interrupted", "limit"]
    seconds: float
    usage: Mapping[str, int]
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that a person should see. `agent` is the subagent it comes from, by id."""

    level: Literal["info", "warning", "error"]
    text: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A layer made the context smaller. Tokens are those of the whole context; `refs` counts the
    entries that a stub or the summary now stands for; `detail` is one line for people. `agent` is
    the subagent whose context it is, by id."""

    layer: Literal["demote", "microcompact", "truncate", "summary"]
    trigger: str
    tokens_before: int
    tokens_after: int
    seconds: float
    cost_usd: float | None
    refs: int
    detail: str
    agent: str = ""


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
    | Waiting
    | Delta
    | CallFinished
    | ToolStarted
    | ToolOutput
    | ToolFinished
    | AgentStarted
    | AgentProgress
    | AgentFinished
    | Notice
    | Compacted
    | TurnFinished
)

Emit = Callable[[Event], None]


@contextmanager
def waiting(emit: Emit, what: str) -> Iterator[None]:
    """Tell what is waited for, and that it is over; with "" nothing is told."""
    if what:
        emit(Waiting(what))
    try:
        yield
    finally:
        if what:
            emit(Waiting(""))


def _no_rule(rule: str) -> str:
    return ""


def _not_settled() -> "Answer | None":
    return None


@dataclass(frozen=True, slots=True)
class Question:
    """A call waits for a person's permission. `rule` is the narrowest rule that would allow it;
    `diff` is what an edit would change; `reason` says why it is asked; `agent` is the subagent
    that wants it, by id.

    `offers` are rules that may be kept so that it is not asked again, from the narrowest on; where
    there are none, no rule helps. `check` takes one as the person wrote it: UsageError says why it
    is none or does not allow this call, and what it returns speaks against keeping it, "" for
    nothing. `settled` gives the answer once rules or the mode have changed so that none is needed.
    """

    tool: str
    title: str
    input: Mapping[str, Any]
    rule: str
    reason: str
    diff: str | None = None
    agent: str = ""
    offers: Sequence[str] = ()
    check: Callable[[str], str] = _no_rule
    settled: Callable[[], "Answer | None"] = _not_settled


@dataclass(frozen=True, slots=True)
class Answer:
    """`reason` goes to the model with a refusal; with a permission it says why nobody had to be
    asked. `rule` is one that allows the call; it is to be kept where `where` is not "": the file
    that it was written to, or "session"."""

    allow: bool
    reason: str = ""
    rule: str = ""
    where: str = ""


Ask = Callable[[Question], Awaitable[Answer]]
