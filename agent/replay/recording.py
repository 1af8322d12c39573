"""A recorded session in the form that all formats have in common: words, replies with their calls
and results, and the places where the recording agent compacted its context."""

from typing import Any

from ..lazy import dataclass

UNANSWERED = "[no result was recorded]"  # the text of a call whose result is not in the file


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a tool, by the name it has in the recording, and its result."""

    id: str  # unique in the recording
    name: str
    input: dict[str, Any]
    text: str  # the result, or UNANSWERED
    is_error: bool = False
    answered: bool = True  # False where no result is in the file
    at: float | None = None  # when the result came, in seconds since 1970, where recorded
    ref: str = ""  # the name of the result in the recording, "" where it has none
    recalls: str = ""  # the ref of the result that it reads again, "" for none


@dataclass(frozen=True, slots=True)
class RecordedWords:
    """Words said to the model, by the user or by the recording agent in their place."""

    text: str  # pictures stand as `[image]`
    at: float | None = None
    mid_turn: bool = False  # said while a turn ran, where the file tells
    by_client: bool = False  # the recording agent's own instructions, not the user's words
    is_summary: bool = False  # of all before them, by the compaction in front of them


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """One response of the model, without its thinking."""

    text: str  # may be ""
    calls: tuple[RecordedCall, ...] = ()
    at: float | None = None  # when it was finished
    prompt: int | None = None  # true tokens, where the file has them
    output: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """A place where the recording agent compacted its context."""

    at: float | None = None
    kept: int = 0  # so many of the steps before it stayed in the context
    keeps_words: bool = False  # all messages of the user stayed in the context


RecordedStep = RecordedWords | RecordedReply | RecordedCompaction


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded session."""

    name: str  # of the file
    format: str  # one of `formats.FORMATS`
    steps: tuple[RecordedStep, ...]
    model: str | None = None
    system: str = ""  # "" where it was not recorded
    cwd: str = ""  # where the recorded agent worked, "" where the file does not tell
    skipped: int = 0  # lines or items of the file that could not be understood
    bad_line: int = 0  # the number of the first line among them, 0 for none
    orphans: int = 0  # results without a call
    notes: tuple[str, ...] = ()

    @property
    def replies(self) -> int:
        return sum(isinstance(step, RecordedReply) for step in self.steps)

    @property
    def calls(self) -> int:
        """The number of tool calls."""
        return sum(len(step.calls) for step in self.steps if isinstance(step, RecordedReply))
