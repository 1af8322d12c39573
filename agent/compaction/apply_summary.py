"""Fit a summary to its limits, check it, archive it and record it.

`fit` adds the newest facts of the ledger, shortens the document to its token cap, and adds facts
that the probes find missing. It retries with smaller caps until the context gets smaller. Before
the summary is recorded, the replaced items are synced to disk in the log and in `conversation.md`.
Reinserted entries (environment, instructions, preserved sections) count towards the new size and
are recorded right after the summary. A summary that would not shrink the context is rejected, and
nothing changes.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

from ...tools.system.kept_text import KeptText
from ...tools.system.phrasing import count_of
from ..context import tokens
from ..context.items import UNNUMBERED, ViewResult, without_line_numbers
from ..context.view import View
from ..context.window import MIN_OUTPUT_TOKENS, Window
from ..errors import CompactionFailed, RecordError
from ..events import Compacted, Notice, waiting
from ..lazy import dataclass, regex
from ..session.archive import (
    FILES_NAME,
    SUMMARY_NAME,
    TASK_SUMMARY_PREFIX,
    write_archive_file,
)
from ..session.conversation import CONVERSATION_NAME
from ..session.entries import Entry, Summary, User
from ..session.ledger import Ledger
from ..session.since_point import list_stale_files
from ..session.store import content_text
from ..session.user_messages import LoggedMessage
from . import drift, verify
from .document import SummaryDocument, UserRule, render
from .host import EngineHost
from .own_marks import without_marks, without_marks_in
from .preserve import sections_not_in_context
from .recovery import recover_after
from .reinserted import reinserted_tokens, reinserted_within
from .summary.block import BlockSupplement, block_supplement
from .summary.merge import with_ledger_facts, with_statuses
from .summary.open_failures import (
    MAX_EARLIER_TOKENS,
    earlier_failures,
    with_open_failures,
    written_errors,
)
from .summary.request import (
    MAX_SHARE_OF_BEFORE,
    Cut,
    max_summary_tokens,
    max_tokens_after,
    pinned_section,
    summary_text,
    tokens_after_summary,
)
from .summary.shorten import (
    FILE_TABLE_FACTOR,
    MIN_CAP_TOKENS,
    changed_file_rows,
    is_folder_row,
    row_tokens,
    shortened_to,
)
from .summary.user_messages import (
    RULES_SHARE,
    budget_tokens,
    evicted_messages,
    has_bare_refs,
    messages_section,
    rule_lines,
    rules_within,
    section_tokens,
    without_messages_section,
)
from .summary.writer import ReadBack, SummaryDraft, SummaryWriter, document_of
from .verify import Probe, ProbeTally

ERRORS_SHARE = 0.5  # of a summary's cap, added to it for open command failures
WRITTEN_SHARE = 0.75  # of the cap for the model's text; the rest is for missed facts
TASK_BOUNDARY = "task boundary"  # begins the trigger of a summary that ends a task
_AUTHORS = {  # of a draft, for display
    "model": "summary written by the model",
    "api": "summary written by the API, signed",
    "ledger": "summary built from the log, without a model",
    "user": "summary edited by you",
}
SHORTEST_DIVISOR = 4  # of a summary's cap, for the shortest summary that is tried
SHARES = (
    1.0,
    0.75,
    0.5,
    1 / SHORTEST_DIVISOR,
    0.125,
    0.0,
)  # of the room of every section, tried in turn
MESSAGE_DIVISORS = (2, 4, 8, 16)  # of the messages' budget, if a request would not fit
MAX_READ_BACK = 100  # size of the samples of replies and of results read back as a check

_T = TypeVar("_T")
_TASK_FILE = regex(rf"{TASK_SUMMARY_PREFIX}\d+\.md")


def _prose_size(document: SummaryDocument) -> tuple[int, int]:
    """Return the token count and word count of a document without its file lists."""
    text = render(replace(document, modified=(), read=(), recovery=()))
    return tokens.estimate(text), len(text.split())


def _tokens_of_words(document: SummaryDocument, count: int) -> int:
    """Estimate the tokens of `count` words of a document's prose."""
    size, words = _prose_size(document)
    return size * count // max(1, words)


def too_large_message(before: Window, after: int) -> str:
    """Return the reason why an automatic summary is rejected as too large."""
    return (
        f"a summary is not worth it: {after:,} of {before.tokens:,} tokens would remain; an "
        f"automatic summary must leave less than {MAX_SHARE_OF_BEFORE:.0%}"
    )


def _has_room(after: int, view: View, window: Window) -> bool:
    """Return True if a request of `after` estimated tokens leaves room for a reply."""
    return replace(window, tokens=after, error=round(after * view.error)).room >= MIN_OUTPUT_TOKENS


def _remaining_seqs(view: View, cut: Cut) -> set[int]:
    """Return the seqs of the items that stay in the view after a summary."""
    return {item.seq for item in view.items} - {item.seq for item in cut.evicted}


def _list_tokens(document: SummaryDocument | None, ledger: Ledger, window: Window) -> int:
    """Return the tokens of the user's rules and the open command failures in a summary that is
    merged with `document`.
    """
    rules = _rules_shown(document or SummaryDocument(), window)
    room = int(ERRORS_SHARE * max_summary_tokens(window))
    errors = with_open_failures(SummaryDocument(), ledger, room).errors
    earlier = earlier_failures(errors, ledger)
    return tokens.estimate("\n".join([*rule_lines(rules), *earlier, *errors]))


def _rules_shown(
    document: SummaryDocument, window: Window, share: float = 1.0
) -> tuple[UserRule, ...]:
    """Return the user's rules, cut to `share` of their room, for the summary's text. The log keeps
    all rules.
    """
    return rules_within(document.rules, int(share * RULES_SHARE * window.size))


@dataclass(frozen=True, slots=True)
class FittedSummary:
    """A summary that is ready to be recorded."""

    document: SummaryDocument  # with missed facts added
    text: str
    whole_text: str  # including the text of the API's block, if any
    reinserted: Sequence[Entry]  # entries to record right after it
    tokens_after: int  # size of the context, including summary and reinserted entries
    probes: Sequence[Probe]  # used to check the document


@dataclass(slots=True)
class SummaryApplier:
    """Applies the summaries of one conversation."""

    host: EngineHost
    probes: Sequence[Probe] = ()  # of the newest applied summary

    async def apply(
        self, cut: Cut, draft: SummaryDraft, trigger: str, before: Window, max_after: int
    ) -> Summary:
        """Check the summary and record it.

        Raises CompactionFailed if the context would not get smaller, unless the newest request was
        refused: then another form of the context is a way out. Also raises it if more than
        `max_after` tokens would remain and `max_after` is below half the window.
        """
        cut = draft.by_api.cut if draft.by_api else cut
        fitted = await self.fit(cut, draft, before, max_after)
        document, text, after = fitted.document, fitted.text, fitted.tokens_after
        task_file = self._task_file(cut)
        files = [CONVERSATION_NAME, SUMMARY_NAME, task_file]
        if any(map(is_folder_row, document.modified)):
            write_archive_file(self.host.folder / FILES_NAME, _changed_files_text(self.host.ledger))
            files.append(FILES_NAME)
        self.host.sync()
        checked = draft.read_back
        if checked is None or checked.files != self._stats(checked.files):
            checked = self._reader(cut)()
        lost, lost_replies = checked.lost_results, checked.lost_replies
        summary = Summary(
            document=document.to_json(),
            text=text,
            covers=cut.covers,
            keep_from=cut.keep_from,
            keep=list(cut.keep),
            tokens_before=before.tokens,
            tokens_after=after,
            trigger=trigger,
            probes={
                **_gate_results(document, before, after),
                "tally": verify.tally_probes(
                    fitted.probes, draft.raw_text, without_messages_section(fitted.whole_text)
                ).to_json(),
                "sections": self._count_preserved(fitted.reinserted),
                "trajectory": _counts(checked.replies, lost_replies),
                "recovery": _counts(checked.results, lost),
                **draft.unusable,
            },
            files=files,
            resolved=list(draft.resolved),
            replaces_earlier=True,
            superseded=[each.to_json() for each in draft.superseded],
            **self._block_fields(draft),
        )
        recovered = recover_after(self.host.ledger, summary, [*lost, *lost_replies])
        recorded = self.host.record(summary)
        assert isinstance(recorded, Summary)
        self.probes = fitted.probes
        for entry in (*fitted.reinserted, *recovered):
            self.host.record(entry)
        try:
            for name in (SUMMARY_NAME, task_file):
                write_archive_file(self.host.folder / name, recorded.whole_text)
        except RecordError as error:  # not fatal: the summary is in the log
            self.host.emit(Notice("warning", error.message))
        return recorded

    def _block_fields(self, draft: SummaryDraft) -> dict[str, Any]:
        """Return the entry fields of an API summary; an empty dict for other summaries."""
        if draft.by_api is None:
            return {}
        unedited = draft.by_api.edits == self.host.view.edits
        return {"block": draft.by_api.block, "keeps_thinking": unedited}

    def _task_file(self, cut: Cut) -> str:
        """Return the name of the file for the task's newest summary. Reuse the file of the previous
        summary unless that summary ended a task.
        """
        previous = self.host.view.summary
        if previous is not None and not previous.trigger.startswith(TASK_BOUNDARY):
            for name in previous.files:
                if _TASK_FILE.fullmatch(name):
                    return name
        end = previous.covers[1] if previous else 0
        first_ref = next(
            (ref for ref, _ in self.host.ledger.typed_messages if ref > end), cut.evicted[0].seq
        )
        return f"{TASK_SUMMARY_PREFIX}{first_ref}.md"

    async def prepare(self, cut: Cut, writer: SummaryWriter) -> SummaryDraft:
        """Write a draft in the background, and check that what it replaces can be read back. Also
        preload what drift detection and the section of user messages compute from texts.
        """
        started = time.monotonic()
        draft = await writer.write(cut)
        seconds = time.monotonic() - started
        await asyncio.to_thread(drift.terms_preloader(self.host.ledger))
        cut = draft.by_api.cut if draft.by_api else cut
        gone, room = self._messages_of(cut, self.host.current_window())
        await asyncio.to_thread(messages_section, gone, room)
        self.host.sync()
        return replace(draft, seconds=seconds, read_back=await asyncio.to_thread(self._reader(cut)))

    def _messages_of(self, cut: Cut, window: Window) -> tuple[list[LoggedMessage], int]:
        """Return the user's messages that a summary at this cut has to contain, and the estimated
        tokens that they may take.
        """
        view, evicted = self.host.view, [item.seq for item in cut.evicted]
        gone = evicted_messages(self.host.ledger.messages, view, evicted)
        return gone, budget_tokens(window, view.ratio)

    def report(self, summary: Summary, draft: SummaryDraft, started: float) -> None:
        """Emit the result of the summary, and a notice for each failed check. `started` is a
        monotonic time.
        """
        first, last = summary.covers
        how = "" if draft.seconds is None else f" · prepared in {draft.seconds:.1f} s"
        sections, recovery = summary.probes["sections"], summary.probes["recovery"]
        replies = summary.probes["trajectory"]
        self.host.emit(
            Compacted(
                "summary",
                summary.trigger,
                summary.tokens_before,
                summary.tokens_after,
                time.monotonic() - started,
                draft.cost_usd,
                last - first + 1,
                f"{_AUTHORS[draft.author]}{how} · {_check_summary(summary)}",
            )
        )
        if sections["kept"] < sections["critical"]:
            lost = sections["critical"] - sections["kept"]
            text = f"{lost} of {count_of(sections['critical'], 'preserved section')}"
            text += " missing from the context; `ctxagent preserve` shows which"
            self.host.emit(Notice("warning", text))
        asked, ok = (recovery[key] + replies[key] for key in ("asked", "ok"))
        if ok < asked:
            text = f"{asked - ok} of {count_of(asked, 'entry', 'entries')} cannot be read back"
            self.host.emit(Notice("error", f"{text}; /uncompact undoes the summary"))

    def tokens_after(self, cut: Cut, text_tokens: int) -> int:
        """Estimate the size of the context after a summary of `text_tokens` at this cut, with all
        that does not count towards the summary's cap.
        """
        window = self.host.current_window()
        added = text_tokens + self._tokens_outside_cap(window)
        added += section_tokens(*self._messages_of(cut, window))
        return tokens_after_summary(self.host.view, cut, added)

    def _tokens_outside_cap(self, window: Window) -> int:
        """Return the tokens outside the summary's cap: the table of changed files, the user's
        rules, open command failures, pins and reinserted entries.
        """
        ledger, room = self.host.ledger, FILE_TABLE_FACTOR * max_summary_tokens(window)
        rows = changed_file_rows(ledger.files, room)
        pins = tokens.estimate(pinned_section(ledger.pins))
        lists = _list_tokens(document_of(self.host.view.summary), ledger, window)
        return row_tokens(rows) + lists + pins + reinserted_tokens(self.reinserted(window, ()))

    def reinserted(self, window: Window, staying: Collection[int]) -> list[Entry]:
        """Return the entries to add after a summary, cut to their share of the window. `staying`
        has the seqs of the items that stay in the view.
        """
        return reinserted_within(self.host.reinserted(staying), window)

    async def fit(
        self,
        cut: Cut,
        draft: SummaryDraft,
        before: Window,
        max_after: int,
        *,
        is_estimate: bool = False,
    ) -> FittedSummary:
        """Return the summary as it would be recorded. A document that the user wrote is not
        changed.

        With `is_estimate`, no progress is shown. Raises CompactionFailed like `apply`.
        """
        reinserted = self.reinserted(before, _remaining_seqs(self.host.view, cut))
        progress = nullcontext() if is_estimate else waiting(self.host.emit, "checking the summary")
        with progress:
            fitted = await asyncio.to_thread(self._fit, cut, draft, before, max_after, reinserted)
        if max_after < max_tokens_after(before) and fitted.tokens_after > max_after:
            raise CompactionFailed(
                too_large_message(before, fitted.tokens_after), hint="/compact summarizes anyway."
            )
        if fitted.tokens_after >= before.tokens and not self.host.ledger.was_refused:
            raise CompactionFailed(
                f"the context would not get smaller: {before.tokens:,} tokens before, "
                f"{fitted.tokens_after:,} after",
                hint="Continue: old results are cleared when the context grows.",
            )
        return fitted

    def _fit(
        self,
        cut: Cut,
        draft: SummaryDraft,
        before: Window,
        max_after: int,
        reinserted: Sequence[Entry],
    ) -> FittedSummary:
        """Shrink the room of all sections by the same share until the context is small enough, a
        request fits, and the user's messages keep their text if that is possible. Only then shrink
        the section of user messages.
        """
        ledger = self.host.ledger.with_resolutions(draft.resolved)
        supplement = self._block_supplement(draft, ledger, before)
        gone, room = self._messages_of(cut, before)
        offered = self.host.offered
        messages = messages_section(gone, room, offered)

        def rendered(
            document: SummaryDocument, probes: Sequence[Probe], saved: int
        ) -> FittedSummary:
            shown = replace(document, rules=_rules_shown(document, before, share))
            if supplement is None:
                text = whole = summary_text(
                    shown, self.host.folder, ledger.pins, offered, messages=messages, saved=saved
                )
            else:
                text = supplement.render(shown, saved=saved)
                whole = f"{draft.raw_text}\n\n{text}"
            added = tokens.estimate(whole) + reinserted_tokens(reinserted)
            after = tokens_after_summary(self.host.view, cut, added)
            return FittedSummary(document, text, whole, reinserted, after, probes)

        def is_small(fitted: FittedSummary) -> bool:
            short = not draft.max_words or _prose_size(fitted.document)[1] <= draft.max_words
            return short and fitted.tokens_after <= min(max_after, before.tokens - 1)

        def fits(fitted: FittedSummary) -> bool:
            return _has_room(fitted.tokens_after, self.host.view, before)

        for share in SHARES[:1] if draft.author == "user" else SHARES:
            document, probes = self._with_facts(cut, draft, ledger, before, share)
            fitted = rendered(document, probes, before.tokens)
            if fits(fitted) and (is_small(fitted) or share * SHORTEST_DIVISOR <= 1):
                break
        for smaller in SHARES if draft.author != "user" and has_bare_refs(gone, room) else ():
            document, probes = self._with_facts(cut, draft, ledger, before, smaller)
            freed = tokens.estimate(render(fitted.document)) - tokens.estimate(render(document))
            if freed > 0 and not has_bare_refs(gone, room + freed):
                share, room = smaller, room + freed
                messages = messages_section(gone, room, offered)
                fitted = rendered(document, probes, before.tokens)
                break
        for divisor in MESSAGE_DIVISORS:
            if fits(fitted):
                break
            messages = messages_section(gone, room // divisor, offered)
            fitted = rendered(fitted.document, fitted.probes, before.tokens)
        return rendered(fitted.document, fitted.probes, max(0, before.tokens - fitted.tokens_after))

    def _block_supplement(
        self, draft: SummaryDraft, ledger: Ledger, before: Window
    ) -> BlockSupplement | None:
        """Return the text to show next to an API block; None for other summaries."""
        if draft.by_api is None:
            return None
        still_open = with_ledger_facts(draft.document, ledger).errors
        resolved = [error for error in draft.document.errors if error not in still_open]
        host = self.host
        return block_supplement(
            draft.by_api,
            draft.document,
            resolved,
            host.view,
            before,
            host.folder,
            ledger,
            host.offered,
        )

    def _with_facts(
        self, cut: Cut, draft: SummaryDraft, ledger: Ledger, before: Window, share: float
    ) -> tuple[SummaryDocument, Sequence[Probe]]:
        """Return a draft's document with missed facts added, and the probes that found them.

        Each section has `share` of its room. The text has at least that of the shortest summary.
        The file table, the user's rules and the failures have separate rooms. That of the file
        table never shrinks. A document that the user wrote is not changed.
        """
        cap = max_summary_tokens(before)
        if draft.max_words:
            cap = min(cap, _tokens_of_words(draft.document, draft.max_words))
        cap = int(max(share, 1 / SHORTEST_DIVISOR) * cap)
        previous, document = document_of(self.host.view.summary), draft.document
        probes = verify.choose_probes(
            cut.evicted, ledger, previous, cap, written=document, standing=draft.standing
        )
        if draft.author == "user":
            return document, probes
        rules, shown = document.rules, _rules_shown(document, before, share)
        errors = tuple(map(without_marks, written_errors(document.errors)))
        document = replace(document, rules=(), errors=errors)
        document = with_ledger_facts(
            document, ledger, FILE_TABLE_FACTOR * max_summary_tokens(before)
        )
        extra_tokens = row_tokens(document.modified)
        is_probed = verify.probed_facts_test(probes)
        written_cap = max(MIN_CAP_TOKENS, int(WRITTEN_SHARE * cap))
        short = shortened_to(document, written_cap + extra_tokens, is_probed)
        if len(short.modified) < len(document.modified):  # other text has taken their room
            rows = tuple(
                r if is_folder_row(r) else replace(r, change="") for r in document.modified
            )
            short = shortened_to(replace(document, modified=()), written_cap, is_probed)
            short = replace(short, modified=rows)
        document = replace(short, rules=shown)
        errors_room = int(share * ERRORS_SHARE * max_summary_tokens(before))
        whole = with_open_failures(document, ledger, errors_room)
        until = max((item.seq for item in cut.evicted), default=None)
        earlier_room = int(share * MAX_EARLIER_TOKENS)
        earlier = earlier_failures(whole.errors, ledger, until, earlier_room)
        whole = replace(whole, errors=(*earlier, *whole.errors))
        extra_tokens += tokens.estimate(render(whole)) - tokens.estimate(
            render(replace(document, rules=()))
        )
        document = replace(verify.add_missed_facts(whole, probes, cap + extra_tokens), rules=rules)
        return with_statuses(without_marks_in(document), list_stale_files(ledger)), probes

    def _count_preserved(self, reinserted: Sequence[Entry]) -> dict[str, int]:
        """Count the critical sections, and how many of them will be in the context.

        Sections that were missing before the summary do not count as lost.
        """
        text = "\n\n".join(content_text(e.content) for e in reinserted if isinstance(e, User))
        sections = self.host.preserved_sections()
        critical = sum(section.critical and section.found for section in sections)
        return {
            "critical": critical,
            "kept": critical - len(sections_not_in_context(text, sections)),
        }

    def _reader(self, cut: Cut) -> Callable[[], ReadBack]:
        """Return a function that reads a sample of the span's replies and results back from the
        synced log. It does not use the view, so it may run in a thread.
        """
        span = {item.seq for item in cut.evicted}
        replies = _sampled([item.seq for item in cut.evicted if item.role == "assistant"])
        results = _sampled([r for r in self.host.view.results() if r.item.seq in span])
        files = [result.offloaded for result in results if result.offloaded]

        def read() -> ReadBack:
            texts = self.host.recall([*replies, *(r.item.seq for r in results)])
            return ReadBack(
                replies=len(replies),
                results=len(results),
                lost_replies=[seq for seq in replies if seq not in texts],
                lost_results=[
                    r.item.seq for r in results if not _is_whole(texts.get(r.item.seq), r)
                ],
                files=self._stats(files),
            )

        return read

    def _stats(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the inode and the size of each file of the session that exists."""
        found = {}
        for name in names:
            with suppress(OSError, ValueError):  # a garbled log may name anything
                stat = (self.host.folder / name).stat()
                found[name] = stat.st_ino, stat.st_size
        return found


def _counts(asked: int, lost: Sequence[int]) -> dict[str, int]:
    return {"asked": asked, "ok": asked - len(lost)}


def _sampled(entries: Sequence[_T]) -> Sequence[_T]:
    return entries[:: len(entries) // MAX_READ_BACK + 1]


def _changed_files_text(ledger: Ledger) -> str:
    """Return one line for each changed file, sorted by path."""
    return "\n".join(
        f"{f.path} — {f.action}, +{f.added} −{f.removed} lines ({f.tool}, #{f.ref})"
        for f in sorted(ledger.files.values(), key=lambda f: f.path)
    )


def _check_summary(summary: Summary) -> str:
    """Return the results of the summary's checks in one line."""
    checks = summary.probes
    sections, recovery = checks["sections"], checks["recovery"]
    parts = [f"{1 - summary.tokens_after / max(1, summary.tokens_before):.0%} smaller"]
    if checks["tally"]:
        parts.append(ProbeTally.from_json(checks["tally"]).line())
    if critical := sections["critical"]:
        parts.append(f"{sections['kept']} of {count_of(critical, 'section')} kept")
    if asked := recovery["asked"]:
        parts.append(f"{recovery['ok']} of {count_of(asked, 'result')} can be read back")
    return " · ".join(filter(None, parts))


def _is_whole(text: KeptText | None, result: ViewResult) -> bool:
    """Return True if the text is the whole result. The text of an offloaded result must be longer
    than its reference.
    """
    if text is None:
        return False
    shown = content_text(result.block.get("content") or "")
    if result.offloaded:
        return text.is_longer_than(len(shown))
    whole = text.whole()
    is_plain = result.details.get(UNNUMBERED) is True
    return (without_line_numbers(whole) if is_plain else whole) == shown


def _gate_results(document: SummaryDocument, before: Window, after: int) -> dict[str, Any]:
    """Return the results of the checks after a summary, as they are recorded."""
    return {
        "gate": "HOOK-CTX-004",
        "intent": bool(document.intent.strip()),
        "smaller": after < before.tokens,
        "within_half": after <= max_tokens_after(before),
    }
