"""The engine: which layer acts when. It runs before every call, inside the tool loop too.

In order: old results and inputs go when it pays, a summary is prepared in the background and
applied when it is due; if the next request would still not fit, the ladder goes on until it does,
or one clear error is raised. Each act is one entry and one event; a failed one changes nothing.
Triggers in the log carry the names of S1's gates (HOOK-CTX-001 to 005).
"""

import asyncio
import time
from bisect import bisect
from collections.abc import Reversible
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..context import tokens
from ..context.window import LEAST_OUTPUT, Window
from ..errors import CompactionFailed, LimitReached
from ..events import Notice, waiting
from ..record.entries import Entry, Mask, Note, Revert, Summary
from . import microcompact, preserve, renewal, summarize
from .acts import last_acts
from .ahead import Ahead
from .application import Application, most
from .folding import TABLE, standing, weight
from .host import Host
from .masks import Masks
from .policy import Policy, reached
from .summarize import Cut
from .summary import Document, render
from .verify import quality
from .verify.quality import Report
from .writer import Draft, Writer

APART = 3  # calls between two automatic summaries
FEWER = (2, 1)  # messages kept where the policy's number leaves too much
FULL = ("ORANGE", "RED", "CRITICAL")  # levels at which a session does not end without a summary


@dataclass(frozen=True, slots=True)
class Preview:
    """What a summary would do now: (seq, what, tokens) of each item that would be kept, is masked,
    or would be dropped; tokens of the context before and after; what asking for it would cost."""

    kept: list[tuple[int, str, int]]
    masked: list[tuple[int, str, int]]
    dropped: list[tuple[int, str, int]]
    tokens_before: int
    tokens_after_estimate: int
    call_tokens: int
    call_cost_usd: float | None


@dataclass
class Engine:
    """One conversation's."""

    host: Host
    policy: Policy
    _calls: int = APART  # since the newest summary
    _held: int = 0  # calls that the next one waits after one failed or was taken back
    _marked: set[str] = field(default_factory=set)  # what was done once since the summary
    _missed: set[str] = field(default_factory=set)  # sections of which that was told
    _finished: tuple[str, ...] = ()  # the todo list that was the newest task boundary

    def __post_init__(self) -> None:
        self._masks = Masks(self.host, self.policy)
        self._application = Application(self.host)
        self._ahead = Ahead(self.host, self._helps)

    async def before_call(self, *, turn_start: bool) -> None:
        """Make the context ready for the next call. Raises LimitReached when nothing makes it
        fit, RecordError when what was said in the background could not be recorded."""
        self._ahead.check()
        self._calls += 1
        self._held -= 1
        self._masks.demote_together()
        if self.policy.mode != "off":
            self._masks.clear()
            window = self.host.measured()
            await self._checkpoint_if_due(window)
            await self._summarize_if_due(window, turn_start=turn_start)
        if not self._fits():
            await self.fit()

    async def fit(self) -> None:
        """The ladder: by every means in turn, until the next request fits. Raises LimitReached,
        naming the largest items, when none is left."""
        why = ""
        if self.policy.mode != "off":
            self._masks.clear_all()
            if not self._fits():
                self._masks.truncate_all()
            if not self._fits() and self._calls > APART:
                try:
                    await self.compact(trigger="HOOK-CTX-003: nothing else fits")
                except CompactionFailed as error:
                    why = f": {error.message}"
            if self._fits():
                return
        window = self.host.measured()
        raise LimitReached(
            f"the context holds {window.tokens:,} of {window.size:,} tokens and cannot be made to "
            f"fit{why}. The largest items: {self._largest()}",
            limit="context",
            hint="Start a fresh session, or take a model with a larger window; everything said "
            "stays in the log.",
        )

    async def compact(
        self, instructions: str = "", *, trigger: str = "manual", document: Document | None = None
    ) -> Summary:
        """Summarise now, with `document` when it is given. Raises CompactionFailed, with nothing
        changed, and says why."""
        started, before = time.monotonic(), self.host.measured()
        aside = bool(instructions) or document is not None
        prepared = None if aside else self._ahead.usable()
        cut = prepared.cut if prepared else self._cut()
        event = {
            "trigger": trigger,
            "tokens": before.tokens,
            "covers": cut.covers,
            "summary": str(self.host.folder / "summary.md"),
        }
        self._check()
        if veto := await self.host.hook("before_compact", event):
            raise CompactionFailed(f"a before_compact hook said no: {veto}")
        if self.policy.checkpoint_always:
            await self.host.checkpoint(f"before a summary: {trigger}")
        if document is not None:
            draft = Draft(document, 0.0, "person", render(document))
        elif prepared:
            with waiting(self.host.emit, "the summary, which is being written"):
                draft = replace(await asyncio.shield(prepared.task), ahead=True)
        else:
            self._ahead.discard()
            draft = await self._writer().write(cut, instructions, tell=self.host.emit)
        self._ahead.discard()
        summary = await self._application.apply(cut, draft, trigger, before)
        self._calls, self._marked = 0, set()
        self._ahead.applied()
        await self.host.hook("after_compact", {**event, "seq": summary.seq})
        self._application.tell(summary, draft, started)
        return summary

    async def draft(self, instructions: str = "") -> tuple[Document, str]:
        """The summary that `compact` would apply, and its text. Raises CompactionFailed."""
        self._ahead.discard()
        cut, before = self._cut(), self.host.measured()
        draft = await self._writer().write(cut, instructions, tell=self.host.emit)
        fitted = await self._application.fitted(cut, draft, before)
        return fitted.document, fitted.text

    async def examine(self, summary: Summary) -> Report:
        """Put the probes of the newest summary to the model, which knows the summary alone, and
        grade what it answers (S2 "Quality Metrics"). Raises ModelError."""
        asked, window = self._application.asked, self.host.measured()
        request = quality.exam(
            summary.text,
            asked,
            model=self.policy.model or self.host.model_id,
            effort=self.host.effort,
            max_tokens=2 * summarize.cap(window),
        )
        said = await self.host.ask_aside(request, "verify")
        report = quality.grade(said.text, asked)
        text = f"summary #{summary.seq}: {'met' if report.met else 'not met'}"
        self.host.record(Note(topic="quality", text=text, data=report.to_json()))
        return report

    def preview(self) -> Preview:
        """What `compact` would do, asking nobody. Raises CompactionFailed when that is nothing."""
        view, window, cut = self.host.view, self.host.measured(), self._cut()
        gone = {item.seq for item in cut.evicted}
        rows = [(i, (i.seq, summarize.headline(i), round(i.size * view.ratio))) for i in view.items]
        likely = self._beside(window) + min(summarize.cap(window), cut.tokens // 4)
        return Preview(
            kept=[row for i, row in rows if i.seq not in gone and not i.stubs],
            masked=[row for i, row in rows if i.stubs],
            dropped=[row for i, row in rows if i.seq in gone],
            tokens_before=window.tokens,
            tokens_after_estimate=window.tokens - cut.tokens + likely,
            call_tokens=window.tokens,
            call_cost_usd=self.host.price(window.tokens, summarize.cap(window)),
        )

    def uncompact(self, entries: Reversible[Entry]) -> list[Mask | Summary]:
        """Take back the newest acts among `entries`, all of the log, and say which. Raises
        CompactionFailed when there are none."""
        last = last_acts(entries)
        if not last:
            raise CompactionFailed("there is no compaction to take back")
        self._ahead.discard()
        self._held = APART
        for act in reversed(last):
            self.host.record(Revert(target=act.seq, reason="taken back by the person"))
        self.host.refold()
        return last

    @property
    def preparing(self) -> bool:
        """Whether a summary is being written in the background."""
        return self._ahead.pending

    def instead(self) -> int | None:
        """The tokens that clearing would free in the place of the summary that comes by itself,
        as things are now; None where none comes, or clearing does not suffice."""
        comes = self.policy.mode == "auto" and self.policy.summarize_at is not None
        return self._masks.instead() if comes else None

    def settled(self) -> int | None:
        """The seq from which on results may still be cleared: a cache breakpoint stands there."""
        oldest = microcompact.oldest_clearable(self.host.view, self.policy)
        return self._masks.next if self._masks.next is not None else oldest

    async def finish(self) -> None:
        """The session ends in good order: what the policy does then (S3 "Automatic Triggers")."""
        if not self.policy.at_end or self.policy.mode != "auto" or not self.host.view.items:
            return
        if self.host.measured().level in FULL:
            with suppress(CompactionFailed):
                self._cut()  # or there is none to write
                self.host.emit(Notice("info", "writing a summary of the session …"))
                await self.compact(trigger="end of the session")
                return
        await self.host.checkpoint("end of the session")

    async def close(self) -> None:
        """Drop a summary that is being prepared, and wait until it has let go."""
        await self._ahead.close()

    # The summary

    async def _checkpoint_if_due(self, window: Window) -> None:
        """S1's HOOK-CTX-005, and what the policy says besides; each once between summaries."""
        if reached(self.policy.checkpoint_at, window) and self._once("checkpoint"):
            await self.host.checkpoint(f"{window.share:.0%} of the window")
        if reached(self.policy.fresh_at, window) and self._once("fresh"):
            taken = await self.host.checkpoint(f"HOOK-CTX-005: {window.share:.0%} of the window")
            way = f": ctxagent --from {self.host.folder.name}:{taken.number}" if taken else ""
            told = f"the context is {window.share:.0%} full; a fresh session is recommended{way}"
            self.host.emit(Notice("warning", told))

    async def _summarize_if_due(self, window: Window, *, turn_start: bool) -> None:
        due = reached(self.policy.summarize_at, window)
        if self.policy.mode == "remind":
            if due and self._once("reminded"):
                share = f"{window.share:.0%}"
                self.host.emit(Notice("info", f"the context is {share} full: /compact"))
            return
        if self._calls <= APART or self._held > 0:
            return
        if due and not self._masks.clear_instead():
            try:
                await self.compact(trigger=f"HOOK-CTX-003: {window.share:.0%} of the window")
            except CompactionFailed as error:
                self._held = APART
                self.host.emit(Notice("warning", f"not compacted: {error.message}"))
        elif turn_start and (reason := self._boundary()):
            with suppress(CompactionFailed):  # a reason to, not a need
                await self.compact(trigger=reason)
        elif not due and reached(self.policy.prepare_at, window) and not self._masks.suffices():
            self._prepare()

    def _boundary(self) -> str:
        """Why a turn begins with a summary although there is room (S2 "Compression Trigger"); ""
        when it does not."""
        listed = tuple(t["content"] for t in self.host.ledger.todos)
        done = all(t["status"] == "completed" for t in self.host.ledger.todos)
        if self.policy.boundaries and listed and done and listed != self._finished:
            self._finished = listed
            return "task boundary: the todo list is done"
        last = self.host.view.summary.seq if self.host.view.summary else 0
        turns = len(self.host.ledger.words) - bisect(self.host.ledger.words, (last + 1,))
        if self.policy.turns is not None and turns > self.policy.turns and self._worth():
            return f"{turns} turns since the last summary"
        return ""

    def _worth(self) -> bool:
        """Whether a summary now would at least halve the context (S3 "Metrics")."""
        try:
            planned = self.preview()
        except CompactionFailed:
            return False
        return planned.tokens_after_estimate < planned.tokens_before / 2

    def _once(self, what: str) -> bool:
        """Whether this is the first time since the newest summary."""
        first = what not in self._marked
        self._marked.add(what)
        return first

    def _prepare(self) -> None:
        """Start writing the summary while the agent works, unless one that would help is there."""
        if self.policy.summarizer != "model":
            return
        with suppress(CompactionFailed):
            cut = self._cut()
            if self._ahead.wanted(cut):
                self._ahead.begin(cut, self._application.prepared(cut, self._writer()))

    def _helps(self, cut: Cut) -> bool:
        """Whether a summary at this cut would leave room enough."""
        window = self.host.measured()
        room = summarize.cap(window) + self._beside(window)
        return summarize.after(self.host.view, cut, room) <= most(window)

    def _cut(self) -> Cut:
        """Where to cut so that what is left fills at most half of the window, if there is such a
        place. Raises CompactionFailed when there is nothing to summarise."""
        view, window = self.host.view, self.host.measured()
        room = summarize.cap(window) + self._beside(window)
        found = None
        for least in (None, self.policy.keep_messages, *FEWER):
            cut = summarize.cut(view, self.policy, window, least=least)
            found = cut or found
            if cut and summarize.after(view, cut, room) <= most(window):
                return cut
        if found is None:
            raise CompactionFailed("there is nothing to summarise yet")
        return found

    def _check(self) -> None:
        """S3's pre-check: what must be kept is there. Raises CompactionFailed in strict mode."""
        for section in preserve.missing(self.host.sections()):
            told = f"{section.problem}; `ctxagent preserve {section.name} --create` writes it"
            if self.policy.rules.strict:
                raise CompactionFailed(f"preserve.strict is set, and {told}")
            if section.name not in self._missed:
                self._missed.add(section.name)
                self.host.emit(Notice("warning", told))

    def _writer(self) -> Writer:
        return Writer(self.host, self.policy)

    def _beside(self, window: Window) -> int:
        """Tokens of what stands beside a summary's own words: the table of changed files, what is
        pinned, and what is said again."""
        rows = standing(self.host.ledger.files, TABLE * summarize.cap(window))
        pins = tokens.estimate(summarize.pinned(self.host.ledger.pins))
        return weight(rows) + pins + renewal.weight(self._application.again(window))

    def _fits(self) -> bool:
        return self.host.measured().output(LEAST_OUTPUT) > 0

    def _largest(self) -> str:
        view = self.host.view
        items = [(i, round(i.size * view.ratio)) for i in sorted(view.items, key=lambda i: -i.size)]
        return "; ".join(f"#{i.seq} {summarize.headline(i)}, {n:,} tokens" for i, n in items[:3])
