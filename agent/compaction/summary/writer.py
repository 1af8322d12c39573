"""Write a summary document: with the model, or from the ledger if that fails.

The request extends the session's own prefix, or uses chunks if the prefix no longer fits. An
unusable answer is requested once more, with the reason. The result is merged with the previous
summary; facts are corrected from the ledger when it is applied. If the policy says so, the API's
own summary is requested first (`block`). Cancelling changes nothing.

A fact quotes a message of the user or the result of a call. The model's own words are no source.
The search for the quoted entry blocks, because long texts are read from the log.

Entries of the earlier summary that the model marks as no longer true are removed. A claim quotes
the entry. If several entries match, the claim's kind, ref and number decide. A user's rule is
lifted only if the claim also quotes a later message of the user. Decisions, facts and rules are
never treated as outdated for another reason.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Literal, get_args

from ....tools.system.phrasing import count_of
from ...context.items import compaction_in
from ...context.window import Window
from ...errors import ModelError, PromptTooLong, RequestRejected
from ...events import Emit, Event, Notice, Waiting, waiting
from ...lazy import dataclass, regex
from ...models.base import Reply, text_of
from ...models.catalog import cost
from ...session.entries import Summary
from ...session.store import content_text
from ...session.user_messages import LoggedMessage
from ..document import SummaryDocument, parse, render, superseded_lines
from ..host import EngineHost
from ..policy import Policy
from ..sections import TITLES
from .block import BlockSummary, block_request
from .facts import Source, aged, claim_lines, open_failures_text, resolution_rows, sourced_facts
from .merge import document_from_ledger, merge
from .request import (
    Cut,
    chunk_requests,
    is_copied,
    max_summary_tokens,
    question_words,
    room_for_summary,
    summary_question,
    summary_request,
    why_unusable,
)
from .standing import standing_text
from .user_messages import (
    TextOf,
    lifting_quotation,
    merged_rules,
    quotations,
    quoted_rules,
    quoted_sentence,
)

MAX_ATTEMPTS = 2  # to write one summary
MAX_UNUSABLE = 2  # in a row, before the model is left out
MAX_SKIPPED = 16  # summaries from the ledger before the model is asked again
KEY = "unusable"  # in the checks of a summary
# Sections that a small model fills with copies of the question, with the field of their entries.
_COPIED = {
    "modified": "change", "read": "why", "decisions": "", "done": "", "in_progress": "",
    "blocked": "", "facts": "text", "errors": "", "next_steps": "", "other": "text",
}  # fmt: skip
INSTRUCTIONS_IGNORED = (
    "the instructions have no effect: the summary is built from the log, without a model. "
    "-c compact.summarizer=model lets the model write it"
)
STANDING_IGNORED = (
    "no model reads the instructions for summaries (compact.instructions, Compact Instructions): "
    "summaries are built from the log. Only what they quote is kept. -c compact.summarizer=model "
    "lets the model write summaries"
)


@dataclass(slots=True)
class UnusableSummaries:
    """The number of consecutive unusable summaries of one model."""

    model: str = ""
    count: int = 0
    skipped: int = 0  # summaries from the ledger since the newest unusable one

    @classmethod
    def from_summary(cls, summary: Summary | None) -> "UnusableSummaries":
        """Return the counts in the entry of the newest summary."""
        noted = summary.probes.get(KEY) if summary else None
        if not isinstance(noted, Mapping) or not isinstance(noted.get("count"), int):
            return cls()
        skipped = noted.get("skipped", 0)
        return cls(
            str(noted.get("model")), noted["count"], skipped if isinstance(skipped, int) else 0
        )

    def add(self, model: str) -> None:
        """Count an unusable summary."""
        self.model, self.count = model, self.count + 1 if model == self.model else 1
        self.skipped = 0

    def clear(self) -> None:
        """Reset the counts after a usable summary."""
        self.count = self.skipped = 0

    def skip(self) -> None:
        """Count a summary for which the model was not asked."""
        self.skipped += 1

    def should_skip(self, model: str) -> bool:
        """Return True if the model should not be asked for the next summary."""
        return model == self.model and self.skipped < self.to_skip

    def attempts(self, model: str) -> int:
        """Return how often the model may be asked for one summary: once if its newest ones were
        unusable.
        """
        return 1 if model == self.model and self.to_skip else MAX_ATTEMPTS

    @property
    def to_skip(self) -> int:
        """The number of summaries from the ledger after the newest unusable one."""
        doublings = self.count - MAX_UNUSABLE
        return min(2**doublings, MAX_SKIPPED) if doublings >= 0 else 0

    def to_check(self) -> dict[str, Any]:
        """Return the counts as a field of a summary's checks; an empty dict for 0."""
        if not self.count:
            return {}
        return {KEY: {"model": self.model, "count": self.count, "skipped": self.skipped}}


Section = Literal["decisions", "facts", "blocked", "rules"]

CLAIM_WORDS = 6  # first words of an entry; a claim must contain half of them

_CLAIM = regex(
    r"\W*(?:(?:key|critical|user) )?(?P<kind>decision|fact|constraint|rule|block)\w*"
    r"[^\w#\"“”„«「`'‘]*(?P<number>#?\d{1,9})?(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_REF = regex(r"#(\d{1,9})\b")
_SECTIONS: Mapping[str, Section] = {"decision": "decisions", "block": "blocked", "rule": "rules"}
_WORD = regex(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Superseded:
    """An entry that a summary dropped as no longer true."""

    section: Section
    text: str
    why: str
    ref: int = 0  # of a rule's message

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def superseded_entries(
    lines: Iterable[str],
    old: SummaryDocument,
    messages: Sequence[LoggedMessage],
    text_of: TextOf,
) -> Iterator[Superseded]:
    """Yield the entries of the old document that a model marks as no longer true, if its claims
    quote them. `text_of` returns the whole text of one of the user's `messages`.
    """
    for line in lines:
        if (claim := _CLAIM.fullmatch(line)) is None:
            continue
        section = _SECTIONS.get(claim["kind"].lower(), "facts")
        found = _named_entry(old, section, claim["number"], claim["rest"])
        if found is None:
            continue
        section, place = found
        if section != "rules":
            yield Superseded(section, _texts(old, section)[place], line)
            continue
        rule = old.rules[place]
        if why := lifting_quotation(claim["rest"], rule, messages, text_of):
            yield Superseded("rules", rule.text, why, rule.ref)


def without_superseded(document: SummaryDocument, found: Iterable[Superseded]) -> SummaryDocument:
    """Return the document without these entries."""
    gone = {(each.section, each.text) for each in found}
    return replace(
        document,
        rules=tuple(rule for rule in document.rules if ("rules", rule.text) not in gone),
        decisions=tuple(t for t in document.decisions if ("decisions", t) not in gone),
        facts=tuple(fact for fact in document.facts if ("facts", fact.text) not in gone),
        blocked=tuple(t for t in document.blocked if ("blocked", t) not in gone),
    )


def _named_entry(
    document: SummaryDocument, section: Section, number: str | None, rest: str
) -> tuple[Section, int] | None:
    """Return the section and index of the entry that a claim's first quotation matches. If several
    match, the kind, the ref, the length or the number decides. Numbers do not apply to rules, since
    the model may not have seen all rules.
    """
    quoted = next(iter(quotations(rest)), "")
    named = f"{number or ''}{rest.partition(quoted)[0]}" if quoted else ""
    refs = set(map(int, _REF.findall(named)))
    place = int(number) - 1 if number and number.isdigit() else -1

    def rank(name: Section, n: int) -> tuple[bool, ...]:
        is_rule = name == "rules"
        return (
            name == section,
            is_rule and document.rules[n].ref in refs,
            len(_texts(document, name)[n].split()) == len(quoted.split()),
            not is_rule and n == place,
        )

    fitting = [
        (rank(name, n), name, n)
        for name in get_args(Section)
        for n, text in enumerate(_texts(document, name))
        if quoted_sentence(text, quoted)
    ]
    if fitting:
        best = max(ranked for ranked, *_ in fitting)
        found = [(name, n) for ranked, name, n in fitting if ranked == best]
        return found[0] if len(found) == 1 else None
    texts = _texts(document, section)
    is_numbered = section != "rules" and 0 <= place < len(texts)
    return (section, place) if is_numbered and _is_quoted(texts[place], rest) else None


def _texts(document: SummaryDocument, section: Section) -> Sequence[str]:
    if section in ("rules", "facts"):
        return [each.text for each in getattr(document, section)]
    texts: Sequence[str] = getattr(document, section)
    return texts


def _is_quoted(entry: str, words: str) -> bool:
    """Return True if the words contain at least half of the entry's first words."""
    first = _WORD.findall(entry.casefold())[:CLAIM_WORDS]
    said = set(_WORD.findall(words.casefold()))
    there = sum(word in said for word in first)
    return bool(first) and 2 * there >= len(first) + 1


MAX_SEARCHED_CHARS = 4_000_000  # of a text in a file, searched for quotations


class SourceFinder:
    """Finds quotations in the entries of one conversation."""

    def __init__(self, host: EngineHost, text_of: TextOf) -> None:
        self._host, self._text_of = host, text_of
        self._messages = {each.ref: each for each in host.ledger.messages}
        self._shown = {
            result.item.seq: content_text(result.block.get("content") or "")
            for result in host.view.results()
        }

    def find(self, ref: int, quoted: str) -> Source | None:
        """Return the source of a quotation: the entry `ref` if that contains it, else the newest
        entry in the context that does.
        """
        for seq, text in self._texts(ref):
            if sentence := quoted_sentence(text, quoted):
                message = self._messages.get(seq)
                return Source(seq, sentence, message is not None and not message.is_attached)
        return None

    def _texts(self, ref: int) -> Iterator[tuple[int, str]]:
        if ref in self._messages:
            yield ref, self._text_of(self._messages[ref])
        elif self._is_result(ref) and (whole := self._host.recall([ref]).get(ref)):
            yield ref, whole.part(0, MAX_SEARCHED_CHARS)[0]
        for seq in sorted({*self._shown, *self._messages} - {ref}, reverse=True):
            message = self._messages.get(seq)
            yield seq, self._text_of(message) if message else self._shown[seq]

    def _is_result(self, ref: int) -> bool:
        ledger = self._host.ledger
        ran = (fact.ref for fact in ledger.commands)
        return ref in self._shown or ref in ledger.read.values() or ref in ran


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A check that entries which a summary replaces can be read back from the log, by sample."""

    replies: int  # in the sample
    results: int
    lost_replies: Sequence[int]  # seqs of entries that the log does not have in full
    lost_results: Sequence[int]
    files: Mapping[str, tuple[int, int]]  # inode and size of the moved results


@dataclass(frozen=True, slots=True)
class SummaryDraft:
    """A summary document that is not applied yet."""

    document: SummaryDocument
    cost_usd: float | None  # of the requests for it; None if a price is unknown
    author: str  # "model", "api", "ledger" or "user"
    raw_text: str  # the document as written, before facts were added
    seconds: float | None = None  # time to write it in the background
    max_words: int | None = None  # limit without file lists; None: only its cap applies
    resolved: tuple[dict[str, Any], ...] = ()  # claims about earlier failures, to record
    superseded: tuple[Superseded, ...] = ()  # dropped entries of the previous summary
    by_api: BlockSummary | None = None  # set if the API wrote it
    unusable: Mapping[str, Any] = field(default_factory=dict)  # count of unusable ones, to record
    read_back: ReadBack | None = None  # set if the check was made in the background
    standing: str = ""  # instructions for every summary; what they quote is checked


def _ignore(event: Event) -> None:
    """Ignore an event, for summaries in the background."""


@dataclass(slots=True)
class SummaryWriter:
    """Writes the summaries of one conversation."""

    host: EngineHost
    policy: Policy
    unusable: UnusableSummaries = field(default_factory=UnusableSummaries)
    only_span: bool = False  # the model reads just the span, as text

    async def write(
        self, cut: Cut, instructions: str = "", *, emit: Emit = _ignore, by_api: bool = True
    ) -> SummaryDraft:
        """Write a document for the span of `cut`, merged with the previous summary. With `by_api`,
        the API's own summary may be used, which cannot be edited, if the policy allows it.
        """
        previous, problem, is_answered = document_of(self.host.view.summary), "", False
        model = self.policy.model or self.host.model_id
        spent: float | None = 0.0
        with waiting(emit, "writing a summary"):
            if self.policy.summarizer == "mechanical":
                if self._standing:
                    self.host.warn_once(STANDING_IGNORED)
                return self.from_ledger(previous)
            if by_api and self.policy.summarizer == "api":
                draft, spent = await self._ask_api(cut, instructions)
                if draft:
                    return draft
            if self.unusable.should_skip(model):
                self.unusable.skip()
                return replace(self._from_ledger_after(previous), cost_usd=spent)
            for _ in range(self.unusable.attempts(model)):
                window = self.host.current_window()  # may have changed since the last attempt
                ledger = self.host.ledger
                failures = ledger.unresolved()
                try:
                    replies = await self._ask(cut, instructions, problem, window, emit)
                except ModelError as error:
                    problem = error.message
                    break
                spent, is_answered = _with_costs(spent, replies), True
                texts = [text_of(reply.content) for reply in replies]
                problem = "it is empty"
                if texts:
                    problem = why_unusable(texts[-1], replies[-1].stop_reason, window)
                if not problem:
                    new, gone = await asyncio.to_thread(self._read, texts, previous)
                    held = without_superseded(previous or SummaryDocument(), gone)
                    document = merge(aged(held), new)
                    problem = self._why_without_intent(document)
                if not problem:
                    self.unusable.clear()
                    resolved = resolution_rows(new.errors, "model", ledger, failures)
                    return SummaryDraft(
                        document,
                        spent,
                        "model",
                        render(document),
                        resolved=resolved,
                        superseded=gone,
                        standing=self._standing,
                    )
        text = f"the model's summary was not usable ({problem}); made from the ledger"
        if is_answered:
            self.unusable.add(model)
        if self.unusable.should_skip(model):
            left_out = count_of(self.unusable.to_skip, "summary", "summaries")
            text += f". {model} is not asked for the next {left_out}; /model selects another model"
        self.host.emit(Notice("warning", text))
        return replace(self._from_ledger_after(previous), cost_usd=spent)

    def _why_without_intent(self, document: SummaryDocument) -> str:
        """Return the reason to refuse a document without an intent, or "". Without a message of the
        user, there is no intent.
        """
        if document.intent.strip() or not self.host.ledger.typed_messages:
            return ""
        return f"it lacks {TITLES['intent']}: no previous record states it"

    def _from_ledger_after(self, previous: SummaryDocument | None) -> SummaryDraft:
        """Make a summary from the ledger after unusable answers of the model."""
        return replace(self.from_ledger(previous), unusable=self.unusable.to_check())

    async def _ask_api(
        self, cut: Cut, instructions: str
    ) -> tuple[SummaryDraft | None, float | None]:
        """Return a draft with the API's own summary, and the cost of the request in dollars. The
        draft is None if the API does not offer summaries, if it may not be used, or if its summary
        is unusable.
        """
        host = self.host
        if self.policy.model not in (None, host.model_id) or not host.has_compaction():
            return None, 0.0
        window, failures = host.current_window(), host.ledger.unresolved()
        listed = open_failures_text(failures)
        question = summary_question(
            window, host.redact(instructions), listed, is_merged=False, standing=self._standing
        )
        model, effort = host.model_id, host.effort
        found = block_request(host.view, cut, window, question, model=model, effort=effort)
        if found is None:
            return None, 0.0
        request, whole_cut = found
        edits = host.view.edits
        try:
            reply = await host.ask_model(request, "summary")
        except ModelError:  # reported by the request for the model's summary that follows
            return None, 0.0
        spent, block = _with_costs(0.0, [reply]), compaction_in(reply.content)
        problem = f"there is none, the server stopped with {reply.stop_reason}"
        if block is not None:
            problem = why_unusable(block["content"], "end_turn", window)
        new, gone = SummaryDocument(), tuple[Superseded, ...]()
        previous = document_of(host.view.summary)
        if block is not None and not problem:
            new, gone = await asyncio.to_thread(self._read, [block["content"]], previous)
            problem = self._why_without_intent(new)
        if block is None or problem:
            text = f"the API's own summary was not usable ({problem}); the model is asked"
            host.emit(Notice("info", text))
            return None, spent
        # The block replaces the previous summary, except its rules. A rule is lifted only by a
        # claim that quotes the user.
        held = without_superseded(previous or SummaryDocument(), gone).rules
        draft = SummaryDraft(
            merge(SummaryDocument(rules=held), new),
            spent,
            "api",
            block["content"],
            resolved=resolution_rows(new.errors, "model", host.ledger, failures),
            superseded=gone,
            by_api=BlockSummary(block, whole_cut, edits),
            standing=self._standing,
        )
        return draft, spent

    def _read(
        self, texts: Sequence[str], previous: SummaryDocument | None
    ) -> tuple[SummaryDocument, tuple[Superseded, ...]]:
        """Return the document in a model's answers, and the superseded entries of the previous
        document and of earlier answers.

        Claims apply in the order of the answers, which is the order of the log. An entry that a
        later answer states again stays. Only rules that quote a user message are kept. Blocking:
        long messages are read from their files.
        """
        messages, resolved, gone = [*self.host.ledger.messages], list[str](), list[Superseded]()
        new, old = SummaryDocument(), previous or SummaryDocument()
        sources = SourceFinder(self.host, self._whole_text)
        asked = question_words(self.host.current_window())
        for text in texts:
            claims, part = superseded_lines(text), _without_copies(parse(text), asked)
            rules = quoted_rules(part.rules, messages, self._whole_text)
            facts = sourced_facts(part.facts, old, (*old.rules, *rules), sources.find)
            stated = replace(new, rules=merged_rules(new.rules, rules))
            found = [*superseded_entries(claims, stated, messages, self._whole_text)]
            gone += superseded_entries(claims, old, messages, self._whole_text)
            gone += found
            kept = without_superseded(stated, found)
            new = replace(merge(kept, replace(part, rules=(), facts=facts)), rules=kept.rules)
            resolved += claim_lines(part.errors)
        errors = tuple(dict.fromkeys((*new.errors, *resolved)))
        return replace(new, errors=errors), tuple(dict.fromkeys(gone))

    def _whole_text(self, message: LoggedMessage) -> str:
        refs = [message.ref] if message.is_in_file or message.is_file else []
        found = self.host.recall(refs).get(message.ref)
        return message.text if found is None else found.part(0, MAX_SEARCHED_CHARS)[0]

    def from_ledger(self, previous: SummaryDocument | None) -> SummaryDraft:
        """Make a summary from the ledger, without a model."""
        document = document_from_ledger(self.host.ledger, previous)
        text = render(document)
        return SummaryDraft(document, 0.0, "ledger", text, standing=self._standing)

    @property
    def _standing(self) -> str:
        """The user's instructions for every summary."""
        return self.host.redact(standing_text(self.host.view, self.policy.instructions))

    async def _ask(
        self, cut: Cut, instructions: str, problem: str, window: Window, emit: Emit
    ) -> list[Reply]:
        """Return the model's answer, or its answers for chunks up to the first unusable one.
        `problem` is the reason why the previous answer was unusable.
        """
        host = self.host
        failures = open_failures_text(host.ledger.unresolved())
        asked = host.redact(instructions)
        question = summary_question(
            window,
            asked,
            failures,
            is_merged=not self.only_span,
            problem=problem,
            standing=self._standing,
        )
        view, model, effort = host.view, host.model_id, host.effort
        # Another model cannot read this model's thinking, so it gets chunks of text.
        is_own_model = self.policy.model in (None, model) and not self.only_span
        if is_own_model and room_for_summary(window, question) >= max_summary_tokens(window) // 2:
            request = summary_request(view, window, question, model=model, effort=effort)
            try:
                return [await host.ask_model(request, "summary")]
            except RequestRejected as refusal:
                # The estimate was too low, or the model takes no images: chunks are text.
                if not isinstance(refusal, PromptTooLong) and host.takes_images():
                    raise
        replies, model = list[Reply](), self.policy.model or model
        upto, effort = host.view.last_seq, host.effort
        chunks = chunk_requests(cut, window, question, upto=upto, model=model, effort=effort)
        for number, request in enumerate(chunks, 1):
            emit(Waiting(f"writing a summary, part {number} of {len(chunks)}"))
            replies.append(await host.ask_model(request, "summary"))
            if why_unusable(text_of(replies[-1].content), replies[-1].stop_reason, window):
                break
        return replies


def _without_copies(document: SummaryDocument, asked: str) -> SummaryDocument:
    """Return a document without the entries whose words stand in the question."""
    own: dict[str, Any] = {}
    for name, part in _COPIED.items():
        own[name] = tuple(
            each
            for each in getattr(document, name)
            if not is_copied(getattr(each, part) if part else each, asked)
        )
    return replace(document, **own)


def _with_costs(spent: float | None, replies: Iterable[Reply]) -> float | None:
    """Add the cost of replies; None if a price is unknown."""
    for reply in replies:
        more = cost(reply.model, reply.usage)
        spent = None if spent is None or more is None else spent + more
    return spent


def document_of(summary: Summary | None) -> SummaryDocument | None:
    """Return the document of a recorded summary; None if there is none or it is unreadable."""
    if summary is None:
        return None
    try:
        return SummaryDocument.from_json(summary.document)
    except (KeyError, TypeError, ValueError):
        return None
