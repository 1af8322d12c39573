"""Remember the calls of a session, to detect repeated calls and reverted edits."""

import json
from collections.abc import Sequence
from dataclasses import field, replace

from ...lazy import dataclass
from ...session.entries import Block
from .calls import CHANGING, arguments_of, path_argument
from .decisions import brought_in

MAX_CALLS = 2_000  # remembered, the newest
MIN_LINE_CHARS = 8  # shorter lines, such as a brace, occur in many edits

_REMEMBERED = (*CHANGING, "Bash")


@dataclass(frozen=True, slots=True)
class _Call:
    ref: int  # of the newest fact before it
    identity: int  # hash of tool and arguments
    path: str
    removed: frozenset[int]  # hashes of lines
    added: frozenset[int]


@dataclass(slots=True)
class CallMemory:
    """The earlier calls that change files or run commands, as hashes."""

    _calls: list[_Call] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # that calls installed or imported
    asked_user: bool = False  # the newest calls asked the user questions

    def add(self, calls: Sequence[Block], ref: int) -> None:
        """Remember the calls of a reply. `ref` is the ref of the newest fact before them."""
        self._calls += [_summarized(call, ref) for call in calls if call.get("name") in _REMEMBERED]
        del self._calls[:-MAX_CALLS]
        for call in calls:
            self.names |= brought_in(call)
        self.asked_user = any(call.get("name") == "AskUser" for call in calls)

    def copy(self) -> "CallMemory":
        return replace(self, _calls=list(self._calls), names=set(self.names))

    def has(self, call: Block) -> bool:
        """Return True if exactly this call was made before."""
        identity = _identity(call)
        return any(before.identity == identity for before in self._calls)

    def find_reverted_edit(self, call: Block) -> int | None:
        """Return the `ref` of the newest edit that a call reverts exactly, else None. The call must
        write all lines that the edit removed, remove all lines that it added, and touch no other
        lines.
        """
        edit = _summarized(call, 0)
        undone = (edit.path, edit.added, edit.removed)
        refs = (c.ref for c in reversed(self._calls) if (c.path, c.removed, c.added) == undone)
        return next(refs, None) if edit.added else None


def _identity(call: Block) -> int:
    return hash((str(call.get("name")), json.dumps(call.get("input"), sort_keys=True, default=str)))


def _summarized(call: Block, ref: int) -> _Call:
    """Return the hashes of a call's edit. The lines that a Write removes are unknown and count as
    none.
    """
    arguments = arguments_of(call)
    old, new = (_lines(str(arguments.get(key, ""))) for key in ("old_string", "new_string"))
    return _Call(ref, _identity(call), path_argument(call), old - new, new - old)


def _lines(text: str) -> frozenset[int]:
    lines = (line.strip() for line in text.splitlines())
    return frozenset(hash(line) for line in lines if len(line) >= MIN_LINE_CHARS)
