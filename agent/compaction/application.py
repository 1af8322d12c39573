"""Applying a summary: made to fit, checked against the facts, archived, recorded, verified.

The document gets the facts of the ledger as it is now, is bounded, and what the probes miss is
added, until it makes the context smaller. What it stands for goes to the archive and to disk before
it is recorded; what must stand beside it (environment, instructions, what is preserved) counts too,
and is recorded right after. How the checks went is in its entry: S1's gate, S2's probes, S3's
preservation and recovery. A summary that would make nothing smaller changes nothing.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..context import tokens
from ..context.view import Result
from ..context.window import Window
from ..errors import CompactionFailed, RecordError
from ..events import Compacted, Notice, waiting
from ..record.archive import FILES, append_conversation, write_files, write_summary
from ..record.entries import Entry, Summary, User
from ..record.ledger import Ledger
from ..record.sessions import plain
from . import drift, preserve, renewal, summarize, verify
from .folding import TABLE, stands_for_many, weight
from .host import Host
from .summarize import Cut
from .summary import Document, bounded, with_facts
from .verify import Probe, Tally
from .writer import Draft, Writer, document_of

WRITTEN = 0.75  # of its cap that a model's summary may fill; the rest is for what it misses
SAMPLE = 100  # entries of the span that are recalled as a proof


@dataclass(frozen=True, slots=True)
class Fitted:
    """A summary with what it had missed, its text, what is said again after it, the tokens of the
    context with all that, and what it was asked."""

    document: Document
    text: str
    again: Sequence[Entry]
    after: int
    asked: Sequence[Probe]


@dataclass(slots=True)
class Application:
    """One conversation's. `asked` are the probes of the newest summary that was applied."""

    host: Host
    asked: Sequence[Probe] = ()

    async def apply(self, cut: Cut, draft: Draft, trigger: str, before: Window) -> Summary:
        """Check and record the summary. Raises CompactionFailed when it makes nothing smaller."""
        fitted = await self.fitted(cut, draft, before)
        document, text, after = fitted.document, fitted.text, fitted.after
        append_conversation(self.host.folder, summarize.transcript(cut.evicted))
        files = ["conversation.md", "summary.md"]
        if any(map(stands_for_many, document.modified)):
            write_files(self.host.folder, _changed(self.host.ledger))
            files.append(FILES)
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
                probes={
                    **_gate(document, before, after),
                    "tally": verify.tally(fitted.asked, draft.said, text).to_json(),
                    "sections": self._preserved(fitted.again),
                    "recovery": self._recovered(cut),
                },
                files=files,
            )
        )
        assert isinstance(recorded, Summary)
        self.asked = fitted.asked
        for entry in fitted.again:
            self.host.record(entry)
        try:
            write_summary(self.host.folder, text)
        except RecordError as error:  # it is in the log, which is what counts
            self.host.emit(Notice("warning", error.message))
        return recorded

    async def prepared(self, cut: Cut, writer: Writer) -> Draft:
        """A draft ahead of the need, and read ahead too what it is going to be held against."""
        draft = await writer.write(cut)
        ledger = self.host.ledger
        for read in (verify.reading(cut.evicted, ledger), drift.reading(ledger)):
            await asyncio.to_thread(read)
        return draft

    def tell(self, summary: Summary, draft: Draft, started: float) -> None:
        """The receipt, and a warning for each check that failed. `started` is a time of the
        monotonic clock."""
        first, last = summary.covers
        ahead = f" · written ahead in {draft.seconds:.1f} s" if draft.ahead else ""
        kept, asked = summary.probes["sections"], summary.probes["recovery"]
        self.host.emit(
            Compacted(
                "summary",
                summary.trigger,
                summary.tokens_before,
                summary.tokens_after,
                time.monotonic() - started,
                draft.cost_usd,
                last - first + 1,
                f"#{first} to #{last} summarised by the {draft.by}{ahead} · {_metrics(summary)}",
            )
        )
        if kept["kept"] < kept["critical"]:
            lost = kept["critical"] - kept["kept"]
            told = f"{lost} of {kept['critical']} preserved sections do not stand in the context"
            self.host.emit(Notice("warning", f"{told}; `ctxagent preserve` shows them"))
        if asked["ok"] < asked["asked"]:
            lost = asked["asked"] - asked["ok"]
            told = f"{lost} of {asked['asked']} entries cannot be read back"
            self.host.emit(Notice("error", f"{told}; take the summary back with /uncompact"))

    def text(self, document: Document) -> str:
        """The message that the document becomes."""
        return summarize.text_of(document, self.host.folder, self.host.ledger.pins)

    def again(self, window: Window) -> list[Entry]:
        """What is said again after a summary."""
        return renewal.bounded(self.host.renewal(), window)

    async def fitted(self, cut: Cut, draft: Draft, before: Window) -> Fitted:
        """The summary as it would stand. What a person wrote is expanded by nothing. Raises
        CompactionFailed when it makes nothing smaller."""
        again = self.again(before)
        with waiting(self.host.emit, "checking the summary"):
            fitted = await asyncio.to_thread(self._fitted, cut, draft, before, again)
        if fitted.after >= before.tokens:
            raise CompactionFailed(
                f"it would not be smaller: {before.tokens:,} tokens before, {fitted.after:,} after"
            )
        return fitted

    def _fitted(self, cut: Cut, draft: Draft, before: Window, again: Sequence[Entry]) -> Fitted:
        """With the first share of its cap that makes the context small enough, or the least."""
        view, ledger = self.host.view, self.host.ledger
        previous = document_of(view.summary)
        shares = (1,) if draft.by == "person" else (1, 2, 4)
        for share in shares:
            room = summarize.cap(before) // share
            asked = verify.probes(cut.evicted, ledger, previous, room)
            document = draft.document
            if draft.by != "person":
                document = with_facts(document, ledger, TABLE * room)
                files = weight(document.modified)
                known = verify.facts_of(asked)
                document = bounded(document, int(WRITTEN * room) + files, known)
                document = verify.expanded(document, asked, room + files)
            text = self.text(document)
            beside = tokens.estimate(text) + renewal.weight(again)
            after = summarize.after(view, cut, beside)
            if after <= most(before) and after < before.tokens:
                break
        return Fitted(document, text, again, after, asked)

    def _preserved(self, again: Sequence[Entry]) -> dict[str, int]:
        """S3's verification: how many of the critical sections will stand in the context."""
        told = "\n\n".join(plain(entry.content) for entry in again if isinstance(entry, User))
        sections = self.host.sections()
        critical = sum(section.critical for section in sections)
        gone = len(preserve.missing(sections)) + len(preserve.lost(told, sections))
        return {"critical": critical, "kept": critical - gone}

    def _recovered(self, cut: Cut) -> dict[str, int]:
        """How many of the span's entries can be read back whole, of a sample over all of it."""
        span = {item.seq for item in cut.evicted}
        results = [r for r in self.host.view.results() if r.item.seq in span]
        sample = results[:: len(results) // SAMPLE + 1]
        whole = [_is_whole(self.host.recall(result.item.seq), result) for result in sample]
        return {"asked": len(whole), "ok": sum(whole)}


def _changed(ledger: Ledger) -> str:
    """Every file that was changed, a line each, by path."""
    return "\n".join(
        f"{f.path} — {f.action}, +{f.added} −{f.removed} lines ({f.tool}, #{f.ref})"
        for f in sorted(ledger.files.values(), key=lambda f: f.path)
    )


def most(window: Window) -> int:
    """The tokens that a context may have after a summary, where that can be had."""
    return int(window.size * summarize.MOST_AFTER)


def _metrics(summary: Summary) -> str:
    """S3's metrics and the probes, as they stand in the receipt."""
    checks = summary.probes
    kept, asked = checks["sections"], checks["recovery"]
    parts = [f"{summary.tokens_after / max(1, summary.tokens_before):.0%} of before"]
    if checks["tally"]:
        parts.append(Tally.from_json(checks["tally"]).line())
    if kept["critical"]:
        parts.append(f"{kept['kept']}/{kept['critical']} sections kept")
    if asked["asked"]:
        parts.append(f"{asked['ok']}/{asked['asked']} results read back")
    return " · ".join(parts)


def _is_whole(text: str | None, result: Result) -> bool:
    """Whether a text is all of a result: of one that went to a file, more than its reference."""
    if text is None:
        return False
    had = plain(result.block.get("content") or "")
    return len(text) > len(had) if result.offloaded else text == had


def _gate(document: Document, before: Window, after: int) -> dict[str, Any]:
    """What S1's gate after a summary looks at, as it is recorded."""
    return {
        "gate": "HOOK-CTX-004",
        "intent": bool(document.intent.strip()),
        "smaller": after < before.tokens,
        "within_half": after <= most(before),
    }
