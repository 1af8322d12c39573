"""Whether the requests of one of our own sessions can be made again, to the byte.

With each reply the log keeps the digest of what was sent for it and how that was made from the
view. `check` folds the log once more and holds the digest of each request, made anew from the view
as it stood then, against it. So a request made early, while a summary was prepared in the
background, is made at its own place of the log, wherever its reply stands. A log is gone through
twice, and once more for each revert that requests follow, as the session itself did.

An examination of a summary was not made from a view: it is not made again, and counted apart. A
digest tells that something differs, never what.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from ..compaction.summarize import part_again
from ..context.view import Folding, View, folded
from ..context.wire import Request, behind, wire
from ..model.body import bodied, digest, encoded
from ..record.entries import Assistant, Entry, Session
from ..record.log import NAME, Entries
from ..record.sessions import AGENTS


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests: made again and equal, or different; not made from a view (`apart`), or without a
    digest in the log (`untold`), as in one that an older version wrote."""

    equal: int = 0
    different: int = 0
    apart: int = 0
    untold: int = 0

    @property
    def checked(self) -> int:
        return self.equal + self.different

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.equal + other.equal,
            self.different + other.different,
            self.apart + other.apart,
            self.untold + other.untold,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A request that is not what was sent: the log, the number of its reply and its purpose, and
    the version of the program that sent it, which may make requests in another way."""

    log: Path
    seq: int
    purpose: str
    version: str

    def __str__(self) -> str:
        return self.told()

    def told(self, *, named: bool = True) -> str:
        """For people; without the name of the log where others are to see it."""
        where = f"{self.log}: the" if named else "the"
        return (
            f"{where} request for #{self.seq} ({self.purpose}) is not the one that version "
            f"{self.version} sent; its digest does not tell in what"
        )


@dataclass(frozen=True, slots=True)
class Faithful:
    """What came of it: by purpose of the call; the first request that differs, in the order in
    which requests were made; a warning for each line that could not be read."""

    tallies: Mapping[str, Tally] = field(default_factory=dict)
    first: Difference | None = None
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> Tally:
        return sum(self.tallies.values(), Tally())

    @property
    def holds(self) -> bool:
        """Whether every request that was checked is equal, and there was one."""
        return self.total.checked > 0 and self.first is None

    def line(self) -> str:
        """The outcome in a line for people."""
        total = self.total
        parts = [f"{total.equal:,} of {total.checked:,} requests rebuilt to the byte"]
        if total.apart:
            parts.append(f"{total.apart:,} not made from the context")
        if total.untold:
            parts.append(f"{total.untold:,} without a digest")
        return " · ".join(parts)

    def __add__(self, other: "Faithful") -> "Faithful":
        purposes = dict.fromkeys([*self.tallies, *other.tallies])
        return Faithful(
            {p: self.tallies.get(p, Tally()) + other.tallies.get(p, Tally()) for p in purposes},
            self.first or other.first,
            self.warnings + other.warnings,
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request that was sent when `upto` was the newest entry, for the reply `seq`."""

    upto: int
    seq: int
    purpose: str
    version: str
    told: Mapping[str, Any]


def check(log: Path) -> Faithful:
    """One log. Raises SessionError when it cannot be read."""
    tallies: dict[str, Tally] = {}
    warnings: list[str] = []
    waiting: list[_Sent] = []
    for sent in _sent(log, warnings):
        if not sent.told.get("sha256"):
            found = Tally(untold=1)
        elif sent.upto:
            waiting.append(sent)
            continue
        else:
            found = Tally(apart=1)
        tallies[sent.purpose] = tallies.get(sent.purpose, Tally()) + found
    first: Difference | None = None
    for sent, view in _views(log, sorted(waiting, key=lambda sent: sent.upto)):
        equal = _made_again(view, sent.told) == sent.told["sha256"]
        found = Tally(equal=int(equal), different=int(not equal))
        tallies[sent.purpose] = tallies.get(sent.purpose, Tally()) + found
        if not equal and first is None:
            first = Difference(log, sent.seq, sent.purpose, sent.version)
    return Faithful(tallies, first, tuple(warnings))


def check_all(log: Path) -> Faithful:
    """A log and those of its subagents."""
    agents = sorted((log.parent / AGENTS).glob(f"*/{NAME}"))
    return sum(map(check, agents), check(log))


def _sent(log: Path, warnings: list[str]) -> Iterator[_Sent]:
    """What the log says of each request, in the order of the replies."""
    version = ""
    for entry in Entries(log, warnings):
        if isinstance(entry, Session):
            version = entry.version
        elif isinstance(entry, Assistant):
            upto = entry.request.get("upto")
            since = upto if isinstance(upto, int) else 0
            yield _Sent(since, entry.seq, entry.purpose, version, entry.request)


def _views(log: Path, waiting: list[_Sent]) -> Iterator[tuple[_Sent, View]]:
    """Each of them, by the entry that was the newest then, with the view as it stood. The view
    goes on being folded when the next is asked for."""
    left = iter(waiting)
    sent = next(left, None)
    standing = _Standing(log)
    entries = iter(Entries(log))
    entry: Entry | None = next(entries, None)
    while sent is not None:
        if entry is not None and entry.seq <= sent.upto:
            standing.add(entry)
            entry = next(entries, None)
            continue
        yield sent, standing.view()
        sent = next(left, None)


@dataclass(slots=True)
class _Standing:
    """The view of a log up to the newest entry that was added; folded again, after a revert, when
    it is asked for."""

    log: Path
    folding: Folding = field(default_factory=Folding)
    newest: float = -inf
    behind: bool = False

    def add(self, entry: Entry) -> None:
        self.newest = max(self.newest, entry.seq)
        self.behind = self.behind or not self.folding.add(entry)

    def view(self) -> View:
        if self.behind:
            self.folding, self.behind = folded(Entries(self.log, upto=self.newest)), False
        return self.folding.view


def _made_again(view: View, told: Mapping[str, Any]) -> str:
    """The digest of the request made from a view as the log says; "" when what it says makes no
    sense."""
    try:
        return digest(encoded(bodied(_request(view, told), told["parameters"])))
    except (LookupError, RecursionError, TypeError, ValueError):  # anything may stand in a file
        return ""


def _request(view: View, told: Mapping[str, Any]) -> Request:
    """The request, without what is among the parameters that were recorded."""
    asked = told.get("asked")
    if "span" in told:
        keep_from, keep, span = told["keep_from"], told["keep"], told["span"]
        messages = part_again(view, str(asked), keep_from=keep_from, keep=keep, span=span)
        return Request("", [], [], messages, 0)
    request = wire(view, model="", max_tokens=0, settled=told.get("settled"))
    return request if asked is None else behind(request, asked)
