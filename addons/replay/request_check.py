"""Check that the requests of our own sessions can be rebuilt from their logs, byte for byte.

With each reply, the log keeps the digest of the request and how the request was built from the
view. `check_log` folds the log again, rebuilds each request from the view at that time, and
compares digests. A request built early, for a summary prepared in the background, is rebuilt at its
own position in the log, not at the position of its reply. The log is read twice, plus once for each
revert that is followed by requests, as in the session itself.

Requests that verify a summary are not built from a view and are counted separately. A digest shows
only that a request differs, not where.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, field
from math import inf
from operator import add
from pathlib import Path
from typing import Any

from ...api.base import dataclass
from ...api.context import (
    COMPACTION,
    Folding,
    Request,
    View,
    build_request,
    rebuild_block_request,
    rebuild_chunk_messages,
    start_folding,
    with_question,
)
from ...api.models import MESSAGES, PROTOCOLS
from ...api.record import AGENTS, LOG_NAME, Assistant, Entries, Entry, Session


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Numbers of requests, by outcome of the check."""

    equal: int = 0
    different: int = 0
    apart: int = 0  # not built from a view
    untold: int = 0  # without a digest, from an older version
    foreign: int = 0  # sent with a protocol unknown to this version

    @property
    def checked(self) -> int:
        return self.equal + self.different

    def __add__(self, other: "RequestCounts") -> "RequestCounts":
        return RequestCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class RequestDifference:
    """A request whose rebuilt bytes differ from the bytes that were sent."""

    log: Path
    seq: int  # of its reply
    purpose: str
    version: str  # version of the program that sent it; others may build requests differently

    def __str__(self) -> str:
        return self.text()

    def text(self, *, named: bool = True) -> str:
        """Describe the difference for the user; `named` includes the path of the log."""
        where = f"{self.log}: the" if named else "the"
        return (
            f"{where} request for #{self.seq} ({self.purpose}) differs from the one that version "
            f"{self.version} sent; the log has only the digest, so the position is unknown"
        )


@dataclass(frozen=True, slots=True)
class RequestCheck:
    """The outcome of the check."""

    counts: Mapping[str, RequestCounts] = field(default_factory=dict)  # by purpose of the call
    first: RequestDifference | None = None  # the first in the order the requests were built
    warnings: tuple[str, ...] = ()  # one per unreadable line

    @property
    def total(self) -> RequestCounts:
        return sum(self.counts.values(), RequestCounts())

    @property
    def holds(self) -> bool:
        """True if at least one request was checked and every checked request is equal."""
        return self.total.checked > 0 and self.first is None

    def line(self) -> str:
        """Return the outcome as one line for the user."""
        total = self.total
        parts = [f"{total.equal:,} of {total.checked:,} requests rebuilt byte for byte"]
        if total.apart:
            parts.append(f"{total.apart:,} not built from the context")
        if total.untold:
            parts.append(f"{total.untold:,} without a digest")
        if total.foreign:
            parts.append(f"{total.foreign:,} with an unknown protocol")
        return " · ".join(parts)

    def __add__(self, other: "RequestCheck") -> "RequestCheck":
        counts = dict(self.counts)
        for purpose, count in other.counts.items():
            counts[purpose] = counts.get(purpose, RequestCounts()) + count
        return RequestCheck(counts, self.first or other.first, self.warnings + other.warnings)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request that was sent."""

    upto: int  # seq of the newest entry when it was built; 0 if not built from a view
    seq: int  # of its reply
    purpose: str
    version: str  # version of the program that sent it
    recipe: Mapping[str, Any]  # digest and build parameters from the log

    @property
    def protocol(self) -> str:
        """The wire protocol; older logs do not name it and used MESSAGES."""
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
    """Yield each request recorded in the log, in the order of the replies."""
    version = ""
    for entry in Entries(log, warnings):
        if isinstance(entry, Session):
            version = entry.version
        elif isinstance(entry, Assistant):
            upto = entry.request.get("upto")
            since = upto if isinstance(upto, int) else 0
            yield _Sent(since, entry.seq, entry.purpose, version, entry.request)


def _views(log: Path, waiting: list[_Sent]) -> Iterator[tuple[_Sent, View]]:
    """Yield each request with the view at the time it was built. `waiting` must be sorted by
    `upto`. All requests share one view, which is folded further from request to request.
    """
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
    """The view of a log up to the newest added entry. After a revert, the log is folded again from
    the beginning, when the view is next needed.
    """

    log: Path
    folding: Folding = field(default_factory=Folding)
    newest: float = -inf  # entry
    outdated: bool = False  # a revert was added since the last folding

    def add(self, entry: Entry) -> None:
        self.newest = max(self.newest, entry.seq)
        self.outdated = self.outdated or not self.folding.add(entry)

    def view(self) -> View:
        if self.outdated:
            self.folding, self.outdated = start_folding(Entries(self.log, upto=self.newest)), False
        return self.folding.view


def _rebuilt_digest(view: View, sent: _Sent) -> str:
    """Return the digest of the request rebuilt from a view; "" if the recipe is invalid."""
    try:
        rebuilt = PROTOCOLS[sent.protocol]().rebuild(_request(view, sent.recipe), sent.recipe)
        return hashlib.sha256(rebuilt).hexdigest()
    except (LookupError, RecursionError, TypeError, ValueError):  # a file can contain anything
        return ""


def _request(view: View, recipe: Mapping[str, Any]) -> Request:
    """Rebuild a request without the parameters that are stored in the log."""
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
    """Return the seq of the item that followed a cache breakpoint. Older logs store `settled`: the
    breakpoint is before the first item with that seq or a larger one, which after a summary is the
    summary.
    """
    settled = recipe.get("settled")
    if settled is None:
        return recipe.get("stable_before")
    return next((item.seq for item in view.items if item.seq >= settled), None)
