"""What came of playing a recording under a setting: values alone, for tables, pages and JSON.

Tokens are estimates of ours (`context.tokens`), dollars follow the prices of the model played for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Layer = Literal["demote", "microcompact", "truncate", "summary"]
How = Literal["asked again", "used"]


@dataclass(frozen=True, slots=True)
class Priced:
    """One call of the model. `purpose` is turn, or summary for one that writes a summary. `read`,
    `written` and `plain` are the tokens of the prompt that came from the cache, went into it, or
    neither. `at` is when it was made, in seconds since 1970, where the recording tells; `cold` says
    that the cache had ended by then."""

    number: int
    purpose: str
    read: int
    written: int
    plain: int
    output: int
    dollars: float
    at: float | None = None
    cold: bool = False

    @property
    def prompt(self) -> int:
        return self.read + self.written + self.plain


@dataclass(frozen=True, slots=True)
class Act:
    """One act of compaction before call `number`: how many results or inputs it took (entries, for
    a summary), and the tokens of the context before and after."""

    number: int
    layer: Layer
    trigger: str
    count: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Need:
    """Call `number` shows that a result which was no longer in the context was needed: it asks for
    the same again, or uses text that only stood there. `ref` is the entry of that result, `tokens`
    its size; `dollars` what asking again costs: as recorded where it was, else one call more."""

    number: int
    how: How
    what: str
    ref: int
    tokens: int
    dollars: float


@dataclass(frozen=True, slots=True)
class Fill:
    """What fills the window at call `number`: tokens by kind, in the order of `filling.KINDS`."""

    number: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    part: int = 0
    whole: int = 0

    @property
    def value(self) -> float | None:
        """0 to 1; None of nothing."""
        return self.part / self.whole if self.whole else None

    def __add__(self, other: "Share") -> "Share":
        return Share(self.part + other.part, self.whole + other.whole)


@dataclass(frozen=True, slots=True)
class Sums:
    """What a table has of one run or of several: tokens, dollars and counts. `peak` is the largest
    prompt; `edits` are masks, each an edit of history, `stubs` the results and inputs they took;
    `missed` the results that were needed after they were gone, `missed_usd` what that costs, in
    `dollars` already; `stopped` the sessions that were not played to their end. `paths` and
    `errors` are those of the session that the last context still has, `recovered` the results whose
    text comes back byte for byte by its ref."""

    calls: int = 0
    peak: int = 0
    sent: int = 0
    read: int = 0
    written: int = 0
    plain: int = 0
    output: int = 0
    dollars: float = 0.0
    edits: int = 0
    stubs: int = 0
    summaries: int = 0
    missed: int = 0
    missed_usd: float = 0.0
    stopped: int = 0
    paths: Share = Share()
    errors: Share = Share()
    recovered: Share = Share()

    @property
    def mean(self) -> float:
        return self.sent / self.calls if self.calls else 0.0

    @property
    def cached(self) -> float | None:
        """The share of all prompts that was read from the cache."""
        return Share(self.read, self.sent).value

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.calls + other.calls,
            max(self.peak, other.peak),
            self.sent + other.sent,
            self.read + other.read,
            self.written + other.written,
            self.plain + other.plain,
            self.output + other.output,
            self.dollars + other.dollars,
            self.edits + other.edits,
            self.stubs + other.stubs,
            self.summaries + other.summaries,
            self.missed + other.missed,
            self.missed_usd + other.missed_usd,
            self.stopped + other.stopped,
            self.paths + other.paths,
            self.errors + other.errors,
            self.recovered + other.recovered,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One recording under one setting. `label` names the setting as the person gave it. `peak_then`
    is the largest true prompt in the recording, where it has any. `stopped` says why the session
    could not go on; "" when it was played to its end."""

    name: str
    format: str
    label: str
    model: str
    window: int
    priced: tuple[Priced, ...]
    acts: tuple[Act, ...]
    needs: tuple[Need, ...]
    fills: tuple[Fill, ...]
    paths: Share
    errors: Share
    recovered: Share
    peak_then: int | None = None
    stopped: str = ""

    @property
    def sums(self) -> Sums:
        masks = [act for act in self.acts if act.layer != "summary"]
        extra = sum(need.dollars for need in self.needs if need.how == "used")
        return Sums(
            calls=len(self.priced),
            peak=max((call.prompt for call in self.priced), default=0),
            sent=sum(call.prompt for call in self.priced),
            read=sum(call.read for call in self.priced),
            written=sum(call.written for call in self.priced),
            plain=sum(call.plain for call in self.priced),
            output=sum(call.output for call in self.priced),
            dollars=sum(call.dollars for call in self.priced) + extra,
            edits=len(masks),
            stubs=sum(act.count for act in masks),
            summaries=len(self.acts) - len(masks),
            missed=len(self.needs),
            missed_usd=sum(need.dollars for need in self.needs),
            stopped=int(bool(self.stopped)),
            paths=self.paths,
            errors=self.errors,
            recovered=self.recovered,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every recording under every setting: `runs` by recording, then by label; `labels` in the
    order they were asked for, the first is what others are compared with."""

    labels: tuple[str, ...]
    runs: tuple[tuple[Run, ...], ...]

    def total(self, label: str) -> Sums:
        """The sums over all recordings under one setting."""
        return added(run.sums for row in self.runs for run in row if run.label == label)


def added(sums: Iterable[Sums]) -> Sums:
    return sum(sums, Sums())
