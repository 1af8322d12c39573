"""The engine: which layer acts when. It runs before every call, inside the tool loop too.

In order: old results are cleared, persisted inputs truncated, a summary prepared in the background
and applied when it is due; if the next request would still not fit, the ladder goes on until it
does, or one clear error is raised. Each act is one entry and one event; a failed one changes
nothing. Triggers in the log carry the names of S1's gates (HOOK-CTX-001 to 005).
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..context import tokens
from ..context.window import LEAST_OUTPUT, Window
from ..errors import CompactionFailed, LimitReached, RecordError
from ..events import Compacted, Notice
from ..record.archive import append_conversation, write_summary
from ..record.entries import Entry, Mask, Revert, Summary
from . import microcompact, summarize
from .host import Host
from .masks import Masks
from .policy import Policy, reached
from .summarize import Cut
from .summary import Document, bounded
from .writer import Draft, Writer

APART = 3  # calls between two automatic summaries
FEWER = (2, 1)  # messages kept where the policy's number leaves too much


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


@dataclass(frozen=True, slots=True)
class _Prepared:
    cut: Cut
    task: "asyncio.Task[Draft]"
    previous: Summary | None


@dataclass
class Engine:
    """One conversation's."""

    host: Host
    policy: Policy
    _prepared: _Prepared | None = None
    _calls: int = APART  # since the newest summary
    _held: int = 0  # calls that the next one waits after one failed or was taken back
    _reminded: bool = False

    def __post_init__(self) -> None:
        self._masks = Masks(self.host, self.policy)

    async def before_call(self, *, turn_start: bool) -> None:
        """Make the context ready for the next call. Raises LimitReached when nothing makes it
        fit."""
        self._calls += 1
        self._held -= 1
        self._masks.demote_together()
        if self.policy.mode != "off":
            self._masks.clear(turn_start=turn_start)
            self._masks.truncate()
            await self._summarize_if_due(self.host.measured())
        if not self._fits():
            await self.fit()

    async def fit(self) -> None:
        """The ladder: by every means in turn, until the next request fits. Raises LimitReached,
        naming the largest items, when none is left."""
        if self.policy.mode != "off":
            self._masks.clear_all()
            if not self._fits() and self._calls > APART:
                with suppress(CompactionFailed):
                    await self.compact(trigger="HOOK-CTX-003: nothing else fits")
            if self._fits():
                return
        window = self.host.measured()
        raise LimitReached(
            f"the context holds {window.tokens:,} of {window.size:,} tokens and cannot be made to "
            f"fit. The largest items: {self._largest()}",
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
        prepared = None if aside else self._usable()
        cut = prepared.cut if prepared else self._cut()
        event = {
            "trigger": trigger,
            "tokens": before.tokens,
            "covers": cut.covers,
            "summary": str(self.host.folder / "summary.md"),
        }
        if veto := await self.host.hook("before_compact", event):
            raise CompactionFailed(f"a before_compact hook said no: {veto}")
        if document is not None:
            draft = Draft(document, 0.0, "person")
        elif prepared:
            draft = await asyncio.shield(prepared.task)
        else:
            self._discard()
            draft = await self._writer().write(cut, instructions)
        self._discard()
        summary = self._apply(cut, draft, trigger, before)
        await self.host.hook("after_compact", {**event, "seq": summary.seq})
        self._tell(summary, draft, started)
        return summary

    async def draft(self, instructions: str = "") -> tuple[Document, str]:
        """The summary that `compact` would apply, and its text. Raises CompactionFailed."""
        self._discard()
        draft = await self._writer().write(self._cut(), instructions)
        return draft.document, self._text(draft.document)

    def preview(self) -> Preview:
        """What `compact` would do, asking nobody. Raises CompactionFailed when that is nothing."""
        view, window, cut = self.host.view, self.host.measured(), self._cut()
        gone = {item.seq for item in cut.evicted}
        rows = [(i, (i.seq, summarize.headline(i), round(i.size * view.ratio))) for i in view.items]
        pins = self._room(window) - summarize.cap(window)
        likely = pins + min(summarize.cap(window), cut.tokens // 4)
        return Preview(
            kept=[row for i, row in rows if i.seq not in gone and not i.stubs],
            masked=[row for i, row in rows if i.stubs],
            dropped=[row for i, row in rows if i.seq in gone],
            tokens_before=window.tokens,
            tokens_after_estimate=window.tokens - cut.tokens + likely,
            call_tokens=window.tokens,
            call_cost_usd=self.host.price(window.tokens, summarize.cap(window)),
        )

    def uncompact(self, entries: Sequence[Entry]) -> Entry:
        """Take back the newest act among `entries`, all of the log. Raises CompactionFailed when
        there is none."""
        act = last_act(entries)
        if act is None:
            raise CompactionFailed("there is no compaction to take back")
        self._discard()
        self._held = APART
        revert = self.host.record(Revert(target=act.seq, reason="taken back by the person"))
        self.host.refold()
        return revert

    def settled(self) -> int | None:
        """The seq from which on results may still be cleared: a cache breakpoint stands there."""
        return microcompact.oldest_clearable(self.host.view, self.policy)

    async def close(self) -> None:
        """Drop a summary that is being prepared, and wait until it has let go."""
        if self._prepared is not None:
            task = self._prepared.task
            self._discard()
            await asyncio.gather(task, return_exceptions=True)

    # The summary

    async def _summarize_if_due(self, window: Window) -> None:
        due = reached(self.policy.summarize_at, window)
        if self.policy.mode == "remind":
            if due and not self._reminded:
                self._reminded = True
                share = f"{window.share:.0%}"
                self.host.emit(Notice("info", f"the context is {share} full: /compact"))
            return
        if self._calls <= APART or self._held > 0:
            return
        if due:
            try:
                await self.compact(trigger=f"HOOK-CTX-003: {window.share:.0%} of the window")
            except CompactionFailed as error:
                self._held = APART
                self.host.emit(Notice("warning", f"not compacted: {error.message}"))
        elif reached(self.policy.prepare_at, window) and not self._stands():
            self._discard()
            self._prepare()

    def _prepare(self) -> None:
        """Start writing the summary while the agent works."""
        if self.policy.summarizer != "model":
            return
        with suppress(CompactionFailed):
            cut = self._cut()
            task = asyncio.ensure_future(self._writer().write(cut))
            self._prepared = _Prepared(cut, task, self.host.view.summary)

    def _stands(self) -> bool:
        """Whether what is prepared covers the view as it is, and was or will be written."""
        prepared, view = self._prepared, self.host.view
        if prepared is None or view.summary is not prepared.previous:
            return False
        if prepared.task.done() and (prepared.task.cancelled() or prepared.task.exception()):
            return False
        return all(view.position(item.seq) is not None for item in prepared.cut.evicted)

    def _usable(self) -> _Prepared | None:
        """The prepared summary, if it still stands and would help enough."""
        prepared, window = self._prepared, self.host.measured()
        if prepared is None or not self._stands():
            return None
        after = summarize.after(self.host.view, prepared.cut, self._room(window))
        return prepared if after <= _most(window) else None

    def _discard(self) -> None:
        """Stop preparing; what it has cost so far is recorded by the model's side."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if not prepared.task.done():
            prepared.task.cancel()
            prepared.task.add_done_callback(_retrieve)
        else:
            _retrieve(prepared.task)

    def _cut(self) -> Cut:
        """Where to cut so that what is left fills at most half of the window, if there is such a
        place. Raises CompactionFailed when there is nothing to summarise."""
        view, window = self.host.view, self.host.measured()
        found = None
        for least in (None, self.policy.keep_messages, *FEWER):
            cut = summarize.cut(view, self.policy, window, least=least)
            found = cut or found
            if cut and summarize.after(view, cut, self._room(window)) <= _most(window):
                return cut
        if found is None:
            raise CompactionFailed("there is nothing to summarise yet")
        return found

    def _apply(self, cut: Cut, draft: Draft, trigger: str, before: Window) -> Summary:
        """Check and record the summary. Raises CompactionFailed when it makes nothing smaller."""
        view, document = self.host.view, draft.document
        for share in (1, 2, 4):
            document = bounded(document, summarize.cap(before) // share)
            text = self._text(document)
            after = summarize.after(view, cut, tokens.estimate(text))
            if after <= _most(before) and after < before.tokens:
                break
        else:
            if after >= before.tokens:
                raise CompactionFailed(
                    f"it would not be smaller: {before.tokens:,} tokens before, {after:,} after"
                )
        append_conversation(self.host.folder, summarize.transcript(cut.evicted))
        self.host.sync()
        recorded = self.host.record(
            Summary(
                document=document.to_json(),
                text=text,
                covers=cut.covers,
                keep_from=cut.keep_from,
                keep=list(cut.keep),
                tokens_before=before.tokens,
                tokens_after=after,
                trigger=trigger,
                probes=_gate(document, before, after),
                files=["conversation.md", "summary.md"],
            )
        )
        assert isinstance(recorded, Summary)
        for entry in self.host.renewal():
            self.host.record(entry)
        self._calls, self._reminded = 0, False
        try:
            write_summary(self.host.folder, text)
        except RecordError as error:  # it is in the log, which is what counts
            self.host.emit(Notice("warning", error.message))
        return recorded

    def _tell(self, summary: Summary, draft: Draft, started: float) -> None:
        first, last = summary.covers
        self.host.emit(
            Compacted(
                "summary",
                summary.trigger,
                summary.tokens_before,
                summary.tokens_after,
                time.monotonic() - started,
                draft.cost_usd,
                last - first + 1,
                f"#{first} to #{last} summarised by the {draft.by}",
            )
        )

    def _writer(self) -> Writer:
        return Writer(self.host, self.policy)

    def _text(self, document: Document) -> str:
        return summarize.text_of(document, self.host.folder, self.host.ledger.pins)

    def _room(self, window: Window) -> int:
        """The most tokens that a summary and what is pinned can take."""
        return summarize.cap(window) + tokens.estimate(summarize.pinned(self.host.ledger.pins))

    def _fits(self) -> bool:
        return self.host.measured().output(LEAST_OUTPUT) > 0

    def _largest(self) -> str:
        view = self.host.view
        items = sorted(view.items, key=lambda i: i.size, reverse=True)[:3]
        return "; ".join(
            f"#{i.seq} {summarize.headline(i)}, {round(i.size * view.ratio):,} tokens"
            for i in items
        )


def _retrieve(task: "asyncio.Task[Draft]") -> None:
    """Look at how a task ended that nobody waits for any more, or asyncio would complain."""
    if not task.cancelled():
        task.exception()


def last_act(entries: Sequence[Entry]) -> Mask | Summary | None:
    """The newest mask or summary that was not taken back."""
    reverted = {e.target for e in entries if isinstance(e, Revert)}
    acts = (e for e in reversed(entries) if isinstance(e, Mask | Summary))
    return next((e for e in acts if e.seq not in reverted), None)


def _gate(document: Document, before: Window, after: int) -> dict[str, str | bool]:
    """What S1's gate after a summary looks at, as it is recorded."""
    return {
        "gate": "HOOK-CTX-004",
        "intent": bool(document.intent.strip()),
        "smaller": after < before.tokens,
        "within_half": after <= _most(before),
    }


def _most(window: Window) -> int:
    return int(window.size * summarize.MOST_AFTER)
