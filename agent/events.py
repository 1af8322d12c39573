"""The events that front ends are told: what happens now, shown and then gone.

A turn is  UserSaid · (CallStarted · (Accepted | ThinkingDelta | TextDelta | ToolDraft | Retrying)*
· CallFinished · (ToolStarted · ToolOutput* · ToolFinished)*)* · TurnFinished, with Waiting, Notice
and Compacted anywhere, and with UserSaid before any call for words that come mid-turn. After
`Retrying` the deltas of the broken attempt are void: a front end takes them back.

A search of the web is ToolDraft · ToolStarted · ToolFinished among the deltas.

A call of Task is ToolStarted · (AgentStarted · AgentProgress* · AgentFinished)? · ToolFinished. Up
to four run side by side; `id` names the subagent that an event between belongs to. One in the
background begins and ends at any time, also between turns; one that the user sends there is
told about by another AgentStarted. From inside a subagent only Notice, Compacted and Question come
through, with its id in `agent`; AgentProgress sums up the rest, at most a few times a second.

What must outlive the moment is an entry of the log, not an event. The names of the classes are the
types in the `stream-json` output.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Literal

from .lazy import dataclass


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A session is open: the first of all events."""

    session_id: str
    log: str
    model: str
    resumed: int = 0  # entries that were already in the log


@dataclass(frozen=True, slots=True)
class UserSaid:
    text: str
    mid_turn: bool = False  # while a turn runs, which goes on with them


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A request goes to the model."""

    number: int
    tokens: int  # the expected size of the prompt


@dataclass(frozen=True, slots=True)
class Accepted:
    """The model has taken the request."""

    usage: Mapping[str, int]  # what the model has charged for the prompt
    # How the request was sent, as `Reply.sent`; empty where the model does not say.
    sent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The program waits for something other than the model or a tool, a second or more.

    The wait is over with the next event that says what goes on, or with an empty `what`.
    """

    what: str  # a few words for people


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
    """An attempt to reach the model failed; the next one starts soon."""

    attempt: int  # counts from 1
    of: int | None  # None where not the attempts but the time is limited
    seconds: float  # until the next attempt starts
    reason: str
    left: float | None = None  # seconds after which no more attempts are made

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
    """A tool call begins to run."""

    id: str
    name: str
    title: str  # one line for people, e.g. `pytest -q`
    input: Mapping[str, Any]  # the arguments that it runs with


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
    details: Mapping[str, Any] = field(default_factory=dict)  # for people: diff, exit code, counts
    ref: int = 0  # seq of the entry with the whole result


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """A subagent begins, or goes on where it was left."""

    id: str  # what `Task(resume=…)` takes, and the name of its folder
    type: str
    description: str  # a few words of the model's
    background: bool = False  # whether the conversation goes on meanwhile


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """How far a subagent is in this run."""

    id: str
    calls: int  # of the model, in this run
    tools: int  # tool calls, in this run
    tokens: int  # size of its own context
    level: str
    doing: str  # one line


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """A subagent has ended; usage and cost are those of this run."""

    id: str
    status: Literal["done", "error", "interrupted", "limit"]
    seconds: float
    usage: Mapping[str, int]
    cost_usd: float | None  # None where no price is known
    background: bool = False  # whether the conversation went on meanwhile
    reason: str = ""  # why it failed


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that a person should see."""

    level: Literal["info", "warning", "error"]
    text: str
    agent: str = ""  # id of the subagent it comes from


@dataclass(frozen=True, slots=True)
class Compacted:
    """A layer of compaction made the context smaller; tokens are those of the whole context."""

    layer: str  # "demote", "microcompact", "truncate", "summary" or one of an extension
    trigger: str
    tokens_before: int
    tokens_after: int
    seconds: float
    cost_usd: float | None
    refs: int  # entries that a stub or the summary now stands for
    detail: str  # one line for people
    agent: str = ""  # id of the subagent whose context it is


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """A turn has ended, however it did."""

    status: Literal["ok", "error", "denied", "limit", "interrupted"]
    text: str  # the final answer
    error: Mapping[str, str] | None = None  # type and message, as in the JSON result


# The last two are searches of the web, which the server makes while it answers.
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
    """Emit that something is waited for, and that the wait is over; "" emits nothing."""
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
    """A question of the agent's own, which the user may also answer in other words."""

    text: str
    choices: Sequence[tuple[str, str]] = ()  # each with what it means, "" for nothing
    multiple: bool = False  # whether several may be taken


@dataclass(frozen=True, slots=True)
class Question:
    """A call waits for a person's permission."""

    tool: str
    title: str
    input: Mapping[str, Any]
    rule: str  # the narrowest rule that would allow the call
    reason: str  # why it is asked
    diff: str | None = None  # what an edit would change
    agent: str = ""  # id of the subagent that makes the call
    call: str = ""  # the id of the call; "" where what is asked about is none
    # rules that may be kept, narrowest first; none where no rule would help
    offers: Sequence[str] = ()
    may_be_sandboxed: bool = False  # whether the sandbox would confine it, so that none need ask
    may_accept_edits: bool = False  # whether the mode accept-edits would allow it
    # of a command: the parts that are asked about and why, the dangerous ones first
    causes: Sequence[tuple[str, str]] = ()
    # what the agent asks, where it does not ask for permission; the answer has `words`
    form: Sequence[FormQuestion] = ()
    plan: str = ""  # that the agent proposes instead, in Markdown
    modes: Sequence[str] = ()  # permission modes in which the plan may be carried out
    # Takes a rule, or the plan, as the person wrote it. Raises UsageError when it is none or does
    # not allow this call; returns what speaks against keeping it, "" for nothing.
    check: Callable[[str], str] = _no_rule
    # The answer, once rules or the mode have changed so that nobody need be asked.
    settled: Callable[[], "Answer | None"] = _not_settled


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person, or a rule, answers to a question."""

    allow: bool
    reason: str = ""  # goes to the model with a refusal; with a permission, why nobody was asked
    sandboxed: bool = False  # from now on nobody is asked about what the sandbox confines
    rule: str = ""  # allows the call
    where: str = ""  # the rule is kept: a file's path, or "session"; "" for not kept
    words: Sequence[str] = ()  # an answer to each question of a form
    plan: str = ""  # as the person left it; "" for as it was proposed
    mode: str = ""  # one of the question's, to carry out the plan in; "" for that of now


# Puts a question to the person; None where nobody is there any more.
Ask = Callable[[Question], Awaitable[Answer | None]]
# Answers to questions of the agent's own that were given beforehand; None where there is none.
GivenAnswers = Callable[[str], str | None]
