"""A check that the requests of our own sessions can be rebuilt from their logs, to the byte.

With each reply the log keeps the digest of the request that was sent, and how it was built from
the view. `check_log` folds the log again, rebuilds each request from the view as it was then, and
compares the digests. A request that was built early, while a summary was prepared in the
background, is rebuilt at its own place in the log, wherever its reply stands. A log is read twice,
and once more for each revert that requests follow, as in the session itself.

The request for the verification of a summary was not built from a view; it is counted apart. A
digest shows that something differs, never what.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, field
from math import inf
from operator import add
from pathlib import Path
from typing import Any

from ..compaction.summary.block import rebuild_block_request
from ..compaction.summary.request import rebuild_chunk_messages
from ..context.compaction_block import COMPACTION
from ..context.request import Request, build_request, with_question
from ..context.view import Folding, View, start_folding
from ..lazy import dataclass
from ..models.factory import PROTOCOLS
from ..models.providers import MESSAGES
from ..session.entries import Assistant, Entry, Session
from ..session.log import LOG_NAME, Entries
from ..session.store import AGENTS


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests, counted by the outcome of the check."""

    equal: int = 0
    different: int = 0
    apart: int = 0  # not built from a view
    untold: int = 0  # without a digest, in a log of an older version
    foreign: int = 0  # sent by a protocol that this program does not have

    @property
    def checked(self) -> int:
        return self.equal + self.different

    def __add__(self, other: "RequestCounts") -> "RequestCounts":
        return RequestCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class RequestDifference:
    """A request whose rebuilt bytes are not those that were sent."""

    log: Path
    seq: int  # of its reply
    purpose: str
    version: str  # of the program that sent it, which may build requests in another way

    def __str__(self) -> str:
        return self.text()

    def text(self, *, named: bool = True) -> str:
        """Describe the difference for people; `named` says whether to name the log."""
        where = f"{self.log}: the" if named else "the"
        return (
            f"{where} request for #{self.seq} ({self.purpose}) differs from the one that version "
            f"{self.version} sent; the log has only its digest, so it cannot be said where"
        )


@dataclass(frozen=True, slots=True)
class RequestCheck:
    """The outcome of the check."""

    counts: Mapping[str, RequestCounts] = field(default_factory=dict)  # by purpose of the call
    first: RequestDifference | None = None  # in the order in which the requests were built
    warnings: tuple[str, ...] = ()  # one for each line that could not be read

    @property
    def total(self) -> RequestCounts:
        return sum(self.counts.values(), RequestCounts())

    @property
    def holds(self) -> bool:
        """Whether every checked request is equal, and there was one."""
        return self.total.checked > 0 and self.first is None

    def line(self) -> str:
        """Return the outcome in one line, for people."""
        total = self.total
        parts = [f"{total.equal:,} of {total.checked:,} requests rebuilt to the byte"]
        if total.apart:
            parts.append(f"{total.apart:,} not made from the context")
        if total.untold:
            parts.append(f"{total.untold:,} without a digest")
        if total.foreign:
            parts.append(f"{total.foreign:,} by a protocol that is unknown here")
        return " · ".join(parts)

    def __add__(self, other: "RequestCheck") -> "RequestCheck":
        counts = dict(self.counts)
        for purpose, count in other.counts.items():
            counts[purpose] = counts.get(purpose, RequestCounts()) + count
        return RequestCheck(counts, self.first or other.first, self.warnings + other.warnings)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request that was sent."""

    upto: int  # the newest entry when it was built; 0 where it was not built from a view
    seq: int  # of its reply
    purpose: str
    version: str  # of the program that sent it
    recipe: Mapping[str, Any]  # its digest and how it was built, as the log has them

    @property
    def protocol(self) -> str:
        """The wire protocol, which older logs do not name."""
        return str(self.recipe.get("protocol", MESSAGES))


def check_log(log: Path) -> RequestCheck:
    """Check the requests of one log. Raises SessionError if it cannot be read."""
    counts: dict[str, RequestCounts] = defaultdict(RequestCounts)
    warnings: list[str] = []
    waiting: list[_Sent] = []
    for sent in _sent(log, warnings):
        if not sent.recipe.get("sha256"):
            counts[sent.purpose] += RequestCounts(untold=1)
        elif sent.protocol not in PROTOCOLS:
            counts[sent.purpose] += RequestCounts(foreign=1)
        elif sent.upto:
            waiting.append(sent)
        else:
            counts[sent.purpose] += RequestCounts(apart=1)
    first: RequestDifference | None = None
    for sent, view in _views(log, sorted(waiting, key=lambda sent: sent.upto)):
        equal = _rebuilt_digest(view, sent) == sent.recipe["sha256"]
        counts[sent.purpose] += RequestCounts(equal=int(equal), different=int(not equal))
        if not equal and first is None:
            first = RequestDifference(log, sent.seq, sent.purpose, sent.version)
    return RequestCheck(counts, first, tuple(warnings))


def check_with_subagents(log: Path) -> RequestCheck:
    """Check the requests of a log and of the logs of its subagents."""
    agents = sorted((log.parent / AGENTS).glob(f"*/{LOG_NAME}"))
    return sum(map(check_log, agents), check_log(log))


def _sent(log: Path, warnings: list[str]) -> Iterator[_Sent]:
    """Yield each request that the log knows of, in the order of the replies."""
    version = ""
    for entry in Entries(log, warnings):
        if isinstance(entry, Session):
            version = entry.version
        elif isinstance(entry, Assistant):
            upto = entry.request.get("upto")
            since = upto if isinstance(upto, int) else 0
            yield _Sent(since, entry.seq, entry.purpose, version, entry.request)


def _views(log: Path, waiting: list[_Sent]) -> Iterator[tuple[_Sent, View]]:
    """Yield each request with the view as it was when the request was built. `waiting` is in the
    order of `upto`. The same view is folded further for the next request."""
    view_at = _ViewAt(log)
    entries = iter(Entries(log))
    entry: Entry | None = next(entries, None)
    for sent in waiting:
        while entry is not None and entry.seq <= sent.upto:
            view_at.add(entry)
            entry = next(entries, None)
        yield sent, view_at.view()


@dataclass(slots=True)
class _ViewAt:
    """The view of a log up to the newest entry that was added. After a revert it is folded again
    from the beginning, but only when it is asked for."""

    log: Path
    folding: Folding = field(default_factory=Folding)
    newest: float = -inf  # entry
    outdated: bool = False  # a revert was added since it was folded

    def add(self, entry: Entry) -> None:
        self.newest = max(self.newest, entry.seq)
        self.outdated = self.outdated or not self.folding.add(entry)

    def view(self) -> View:
        if self.outdated:
            self.folding, self.outdated = start_folding(Entries(self.log, upto=self.newest)), False
        return self.folding.view


def _rebuilt_digest(view: View, sent: _Sent) -> str:
    """Return the digest of the request rebuilt from a view; "" if the recipe makes no sense."""
    try:
        rebuilt = PROTOCOLS[sent.protocol]().rebuild(_request(view, sent.recipe), sent.recipe)
        return hashlib.sha256(rebuilt).hexdigest()
    except (LookupError, RecursionError, TypeError, ValueError):  # anything may stand in a file
        return ""


def _request(view: View, recipe: Mapping[str, Any]) -> Request:
    """Rebuild a request, but for the parameters that the log has."""
    asked = recipe.get("asked")
    if COMPACTION in recipe.get("parameters", ()):
        return rebuild_block_request(view, recipe["keep_from"])
    if "span" in recipe:
        keep_from, keep, span = recipe["keep_from"], recipe["keep"], recipe["span"]
        messages = rebuild_chunk_messages(
            view, str(asked), keep_from=keep_from, keep=keep, span=span
        )
        return Request("", [], [], messages, 0)
    request = build_request(
        view, model="", max_tokens=0, stable_before=_stable_before(view, recipe)
    )
    return request if asked is None else with_question(request, asked)


def _stable_before(view: View, recipe: Mapping[str, Any]) -> int | None:
    """Return the seq of the item before which a cache breakpoint stood. Older logs have a number
    under `settled`: the first item of that or a larger one, which after a summary is the summary.
    """
    settled = recipe.get("settled")
    if settled is None:
        return recipe.get("stable_before")
    return next((item.seq for item in view.items if item.seq >= settled), None)
