"""Denied tool calls of a conversation."""

from collections.abc import Iterator, Sequence
from dataclasses import field

from ..lazy import dataclass

ANSWER = "answer it with --answers FILE"


@dataclass(frozen=True, slots=True)
class Denial:
    """A denied call."""

    tool: str
    title: str
    rule: str
    reason: str
    asked: bool  # False if the user could not be asked
    remedy: str = ""  # what to do instead of a rule or a prepared answer


@dataclass(slots=True)
class Denials:
    """All denials of a conversation, oldest first."""

    _all: list[Denial] = field(default_factory=list)
    _reported: int = 0  # denials of earlier turns

    def __iter__(self) -> Iterator[Denial]:
        return iter(self._all)

    def add(self, *denials: Denial) -> None:
        """Add denials."""
        self._all += denials

    def of_turn(self) -> Sequence[Denial]:
        """Return the denials of this turn."""
        return self._all[self._reported :]

    def unasked(self) -> Sequence[Denial]:
        """Return the denials of this turn for which the user could not be asked."""
        return [denial for denial in self.of_turn() if not denial.asked]

    def end_turn(self) -> None:
        """Start the list of the next turn."""
        self._reported = len(self._all)


def denial_error(denials: Sequence[Denial]) -> dict[str, str] | None:
    """Return the error of a turn with these denials; None without denials."""
    if not denials:
        return None
    lines = [
        f"{d.tool} {d.title}: {d.reason}; "
        + (d.remedy or (f"allow it with --allow '{d.rule}'" if d.rule else ANSWER))
        for d in denials
    ]
    return {"type": "PermissionDenied", "message": "\n".join(dict.fromkeys(lines))}
