"""A recorded session as what every format has in common: words, replies with their calls and
results, and where the agent that recorded it compacted. Names of tools are the recording's own.
"""

from dataclasses import dataclass, field
from typing import Any

UNANSWERED = "[no result was recorded]"  # the text of a call whose result is not in the file


@dataclass(frozen=True, slots=True)
class Call:
    """A call and what came of it. `id` is unique in the recording; `answered` is False where no
    result is in the file, and `text` then says so. `at` is when the result came, in seconds since
    1970; None where the file does not tell."""

    id: str
    name: str
    input: dict[str, Any]
    text: str
    is_error: bool = False
    answered: bool = True
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """What was said to the model: by the person, or by the recording agent in their place. Pictures
    stand as `[image]`."""

    text: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of the model: its text (may be "") and its calls. Thinking is left out. `at` is
    when it was finished; `prompt` and `output` are the true tokens of the call as the file has
    them, None where it does not."""

    text: str
    calls: tuple[Call, ...] = ()
    at: float | None = None
    prompt: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """Here the agent that recorded the session compacted its context."""

    at: float | None = None


Step = Words | Reply | Compacted


@dataclass(frozen=True, slots=True)
class Recording:
    """`name` is the file's, `format` one of `formats.FORMATS`. `system` is "" where it was not
    recorded. `skipped` counts lines or items of the file that could not be understood, `orphans`
    results without a call."""

    name: str
    format: str
    steps: tuple[Step, ...]
    model: str | None = None
    system: str = ""
    skipped: int = 0
    orphans: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def replies(self) -> int:
        return sum(isinstance(step, Reply) for step in self.steps)

    @property
    def calls(self) -> int:
        """Tool calls."""
        return sum(len(step.calls) for step in self.steps if isinstance(step, Reply))
