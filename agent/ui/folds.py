"""What was shown folded and can be seen in full: results of tools, diffs, thinking. Asked for again
and again it goes back in time. Large texts are not held but found in the log by their ref."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Literal

KEPT = 50  # things that can be unfolded
HELD = 20_000  # characters from which on a text that the log has is not held
WHOLE = 2_000  # lines up to which all of a text is shown
ENDS = 400  # lines of each end that are shown of a longer one


@dataclass(frozen=True, slots=True)
class Fold:
    """`title` says what it is in one line; `text` is all of it, or "" where entry `ref` of the log
    has it. `kind` says how it looks."""

    title: str
    text: str
    kind: Literal["output", "thought", "diff"]
    ref: int = 0


class Folds:
    """The newest things that were folded."""

    def __init__(self) -> None:
        self._kept: deque[Fold] = deque(maxlen=KEPT)
        self._shown = 0  # how far back it has gone

    def add(self, fold: Fold) -> None:
        if fold.ref and len(fold.text) > HELD and fold.kind != "diff":
            fold = replace(fold, text="")
        self._kept.append(fold)
        self._shown = 0

    def next(self) -> Fold | None:
        """The newest that was not asked for yet; None once all were, and from then on anew."""
        if self._shown >= len(self._kept):
            self._shown = 0
            return None
        self._shown += 1
        return self._kept[-self._shown]

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        self._kept.clear()
        self._shown = 0


def ends(text: str, where: str) -> list[str]:
    """The lines of a text; of a very long one its two ends, with where the whole is."""
    lines = text.strip("\n").split("\n")
    if len(lines) <= WHOLE:
        return lines
    left = len(lines) - 2 * ENDS
    return [*lines[:ENDS], f"… {left:,} lines are left out here: {where}", *lines[-ENDS:]]
