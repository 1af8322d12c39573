"""The account: when an edit of history pays, and how far back it should reach (DESIGN section 5).

What is due could be gone, and is read again with each call until it is. An edit saves that, and
costs one rewrite: all that stands after the first change is written to the cache anew. Nobody knows
how many calls are still to come, so what reading has cost since something is due is put on its
account, and an edit is made when the accounts of all that it takes have come to a share of its
price: then it is never far from the best that could have been done (as with renting or buying
skis). Of all places where it could begin, the one is taken that leaves the largest gain, so a small
result far back does not have a long context rewritten.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..context.view import View

PATIENCE = 0.5  # share of the price of a rewrite that must have been wasted before it pays


@dataclass(frozen=True, slots=True)
class Due:
    """A result or an input that may go: a mask's target, and the scaled tokens that it saves."""

    layer: Literal["microcompact", "truncate"]
    target: Mapping[str, Any]
    saved: int

    @property
    def id(self) -> str:
        return f"{self.layer} {self.target['tool_use_id']}"

    @property
    def seq(self) -> int:
        return int(self.target["seq"])


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of history: what it takes, oldest first, the scaled tokens that it saves and those
    that stand from its first change on afterwards, and its gain as the account has it, in tokens at
    the price of input. It pays when that is not negative."""

    due: tuple[Due, ...]
    saved: int
    rewrite: int
    gain: float

    @property
    def pays(self) -> bool:
        return self.gain >= 0


@dataclass(slots=True)
class Account:
    """One conversation's. `owed` is what reading each thing that is due has cost, by its id, in
    tokens at the price of input."""

    owed: dict[str, float] = field(default_factory=dict)

    def charge(self, due: Sequence[Due], read: float) -> None:
        """Before each call: one more reading of all that is due, at a price relative to that of
        input. What is due no more is forgotten."""
        self.owed = {each.id: self.owed.get(each.id, 0.0) + read * each.saved for each in due}

    def best(self, due: Sequence[Due], view: View, rewritten: float) -> Edit | None:
        """The edit with the largest gain; None when nothing is due. `rewritten` is the price of
        writing a token that would have been read, relative to that of input."""
        edits = self._edits(due, view, rewritten)
        return max(edits, key=lambda edit: (edit.gain, edit.saved), default=None)

    def _edits(self, due: Sequence[Due], view: View, rewritten: float) -> Iterator[Edit]:
        """The edits that could be made: each takes all that is due from some place on."""
        places = sorted(
            ((place, each) for each in due if (place := view.position(each.seq)) is not None),
            key=lambda pair: pair[0],
        )
        after, end, saved, owed = 0, len(view.items), 0, 0.0
        for number in range(len(places) - 1, -1, -1):
            place, each = places[number]
            after += sum(item.size for item in view.items[place:end])
            end, saved, owed = place, saved + each.saved, owed + self.owed.get(each.id, 0.0)
            if number and places[number - 1][0] == place:
                continue
            rewrite = max(0, round(after * view.ratio) - saved)
            gain = owed - PATIENCE * rewritten * rewrite
            yield Edit(tuple(due for _, due in places[number:]), saved, rewrite, gain)
