"""The events that front ends receive. Events are shown and not stored.

A turn is  UserSaid · (CallStarted · (Accepted | ThinkingDelta | TextDelta | ToolDraft | Retrying)*
· CallFinished · (ToolStarted · ToolOutput* · ToolFinished)*)* · TurnFinished. Waiting, Notice and
Compacted may come anywhere. UserSaid also comes before a call if the user sends a message during
the turn. `Retrying` cancels the deltas of the failed attempt: a front end removes them.

A web search is ToolDraft · ToolStarted · ToolFinished among the deltas.

A call of Task is ToolStarted · (AgentStarted · AgentProgress* · AgentFinished)? · ToolFinished. Up
to four run in parallel; `id` names the subagent of each event. A background subagent starts and
ends at any time, also between turns. When the user sends a running subagent to the background,
AgentStarted is sent again. A subagent passes on only Notice, Compacted and Question, with its ID in
`agent`. AgentProgress sums up the rest, at most a few times per second.

Lasting facts are entries of the log, not events. The class names are the types in the `stream-json`
output.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Literal

from .lazy import dataclass


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A session is open. This is the first event."""

    session_id: str
    log: str
    model: str
    resumed: int = 0  # number of entries already in the log


@dataclass(frozen=True, slots=True)
class UserSaid:
    text: str
    mid_turn: bool = False  # sent while a turn runs; the turn continues with the message


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A request is sent to the model."""

    number: int
    tokens: int  # the expected size of the prompt


@dataclass(frozen=True, slots=True)
class Accepted:
    """The model accepted the request."""

    usage: Mapping[str, int]  # tokens charged for the prompt
    # How the request was sent, as in `Reply.sent`; empty if unknown.
    sent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The program waits at least a second for something other than the model or a tool.

    The wait ends with the next event of the turn, or with a Waiting whose `what` is empty.
    """

    what: str  # short description for the user


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """The model is writing a tool call."""

    name: str
    size: int  # characters of arguments so far


@dataclass(frozen=True, slots=True)
class Retrying:
    """An attempt to reach the model failed. The next one starts soon."""

    attempt: int  # counts from 1
    of: int | None  # maximum of attempts; None if only the time is limited
    seconds: float  # until the next attempt starts
    reason: str
    left: float | None = None  # seconds until giving up; None if only the attempts are limited

    def __str__(self) -> str:
        limit = "" if self.of is None else f" of {self.of}"
        ends = "" if self.left is None else f", giving up in {self.left:.0f} s"
        return f"retry {self.attempt}{limit} in {self.seconds:.0f} s{ends}: {self.reason}"


@dataclass(frozen=True, slots=True)
class CallFinished:
    usage: Mapping[str, int]
    cost_usd: float | None
    stop_reason: str | None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call starts to run."""

    id: str
    name: str
    title: str  # one line for the user, e.g. `pytest -q`
    input: Mapping[str, Any]  # the arguments


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """More output of a running tool, cleaned for a terminal."""

    id: str
    text: str  # cleaned for a terminal


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call has ended."""

    id: str
    name: str
    title: str
    is_error: bool
    text: str  # what the model reads
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)  # diff, exit code, counts, …
    ref: int = 0  # seq of the entry with the full result


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """A subagent starts or continues."""

    id: str  # the argument of `Task(resume=…)`, and the name of the subagent's folder
    type: str
    description: str  # short description by the model
    background: bool = False  # whether it runs in the background


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """The progress of a subagent in this run."""

    id: str
    calls: int  # model calls, in this run
    tools: int  # tool calls, in this run
    tokens: int  # size of the subagent's context
    level: str
    doing: str  # current activity, one line


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """A subagent has ended. Usage and cost are those of this run."""

    id: str
    status: Literal["done", "error", "interrupted", "limit"]
    seconds: float
    usage: Mapping[str, int]
    cost_usd: float | None  # None if the price is unknown
    background: bool = False  # whether it ran in the background
    reason: str = ""  # why it failed


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the user."""

    level: Literal["info", "warning", "error"]
    text: str
    agent: str = ""  # ID of the subagent that sent it


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction layer made the context smaller. Token counts are those of the whole context."""

    layer: str  # its name
    trigger: str
    tokens_before: int
    tokens_after: int
    seconds: float
    cost_usd: float | None
    refs: int  # number of entries replaced by a stub or the summary
    detail: str  # one line for the user
    agent: str = ""  # ID of the subagent whose context was compacted


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """A turn has ended, with any status."""

    status: Literal["ok", "error", "denied", "limit", "interrupted"]
    text: str  # the final answer
    error: Mapping[str, Any] | None = None  # as in the JSON result


# The events of a streaming reply. ToolStarted and ToolFinished are web searches by the server.
Delta = (
    Accepted
    | TextDelta
    | ThinkingDelta
    | ToolDraft
    | Retrying
    | ToolStarted
    | ToolFinished
    | Notice
)

Event = (
    SessionOpened
    | UserSaid
    | CallStarted
    | Waiting
    | Delta
    | CallFinished
    | ToolOutput
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
    """Emit the start and the end of a wait. An empty `what` emits nothing."""
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
class FormQuestion:
    """A question from the agent. The user picks choices or answers in free text."""

    text: str
    choices: Sequence[tuple[str, str]] = ()  # (choice, explanation or "")
    multiple: bool = False  # whether the user may pick several choices


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the user's permission or answer."""

    tool: str
    title: str
    input: Mapping[str, Any]
    rule: str  # the narrowest rule that would allow the call
    reason: str  # why permission is needed
    diff: str | None = None  # changes by an edit
    agent: str = ""  # ID of the subagent that makes the call
    call: str = ""  # ID of the call; "" if the question is not about a call
    # rules that the user may keep, narrowest first; empty if no rule would allow the call
    offers: Sequence[str] = ()
    may_be_sandboxed: bool = False  # whether the sandbox could confine it, without a question
    may_accept_edits: bool = False  # whether mode accept-edits would allow it
    # (part of the command, why it needs permission), dangerous parts first
    causes: Sequence[tuple[str, str]] = ()
    # what the command destroys or publishes, and whether /rewind restores it; also in the reasons
    effects: Sequence[str] = ()
    # the agent's own questions; the answers are in `Answer.words`
    form: Sequence[FormQuestion] = ()
    plan: str = ""  # a plan that needs approval, in Markdown
    modes: Sequence[str] = ()  # permission modes in which the plan may be carried out
    # Checks a rule, or the plan, as the user typed it. Returns a warning about it or "". Raises
    # UsageError if it is invalid or does not allow this call.
    check: Callable[[str], str] = _no_rule
    # Returns the answer if changed rules or a changed mode make the question unnecessary.
    settled: Callable[[], "Answer | None"] = _not_settled


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, from the user or from a rule."""

    allow: bool
    reason: str = ""  # why it was refused (for the model), or why it was allowed without asking
    sandboxed: bool = False  # stop asking about commands that the sandbox confines
    rule: str = ""  # the rule that allows the call
    where: str = ""  # where to keep the rule: a file path or "session"; "" to not keep it
    words: Sequence[str] = ()  # an answer to each question of a form
    plan: str = ""  # the plan as edited by the user; "" if unchanged
    mode: str = ""  # permission mode for the plan, one of `Question.modes`; "" for the current one


# Asks the user; returns None if the user is gone.
Ask = Callable[[Question], Awaitable[Answer | None]]
# Returns the prepared answer to a question of the agent, or None.
GivenAnswers = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class StatusPart:
    """A part of the status line, of ctxagent or of a feature."""

    text: str
    rank: float = 0  # in a narrow terminal, the parts with the lowest rank are left out first
    style: str = ""  # of the text, for prompt_toolkit, such as "class:level.red"
    rest: str = ""  # text after it, without the style
    short: str = ""  # in place of the text, if not everything fits
    joins: bool = False  # follows the part before it after a blank
