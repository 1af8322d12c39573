"""A recorded session in a form common to all formats: messages, replies with their calls and
results, and the points where the recording agent compacted its context.
"""

from typing import Any

from ..lazy import dataclass

UNANSWERED = "[no result was recorded]"  # the result text of a call without a recorded result


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call with its name in the recording, and its result."""

    id: str  # unique in the recording
    name: str
    input: dict[str, Any]
    text: str  # the result, or UNANSWERED
    is_error: bool = False
    answered: bool = True  # False if the file has no result
    at: float | None = None  # time of the result in seconds since 1970, if recorded
    ref: str = ""  # the name of the result in the recording, "" if it has none
    recalls: str = ""  # the ref of the result that the call reads again, "" for none
    files: tuple[str, ...] = ()  # that the subagent of this call read or changed, if recorded


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message to the model, from the user or from the recording agent on the user's behalf."""

    text: str  # with `[image]` for each image
    at: float | None = None
    mid_turn: bool = False  # sent during a turn, if the file records that
    by_client: bool = False  # instructions from the recording agent, not from the user
    is_summary: bool = False  # the summary of the preceding compaction


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """One response of the model, without its thinking."""

    text: str  # may be ""
    calls: tuple[RecordedCall, ...] = ()
    at: float | None = None  # time of completion in seconds since 1970
    prompt: int | None = None  # true tokens, if recorded
    output: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """A point where the recording agent compacted its context."""

    at: float | None = None
    kept: int = 0  # number of preceding steps that stayed in the context
    keeps_words: bool = False  # all messages of the user stayed in the context


RecordedStep = RecordedMessage | RecordedReply | RecordedCompaction


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded session."""

    name: str  # of the file
    format: str  # one of `formats.FORMATS`
    steps: tuple[RecordedStep, ...]
    model: str | None = None
    system: str = ""  # "" if not recorded
    cwd: str = ""  # working directory of the recorded agent, "" if unknown
    skipped: int = 0  # lines or items of the file that could not be read
    bad_line: int = 0  # number of the first unreadable line, 0 for none
    orphans: int = 0  # results without a call
    notes: tuple[str, ...] = ()

    @property
    def replies(self) -> int:
        return sum(isinstance(step, RecordedReply) for step in self.steps)

    @property
    def calls(self) -> int:
        """The number of tool calls."""
        return sum(len(step.calls) for step in self.steps if isinstance(step, RecordedReply))
