"""The person's rules in a summary: which it must have, and where they stand in it.

They are taken from the person's own words in the log, whole, and never from a model's memory. A
model may name a rule that no form recognises ("Rule: …"): if the person said it, their sentence
counts from then on. Rules stand among the critical facts, beside the summary's cap. Of the other
messages the refs are kept.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...context.tokens import estimate
from ...context.view import Item
from ...session.ledger import Ledger
from ..document import SummaryDocument
from ..language.rules import PersonRule, rules_in, sentence_with, standing_rules, subject
from ..language.signs import says_go_on
from .request import MAX_PIN_TOKENS

RULES_SHARE = 0.10  # of the window, that rules may take; of older ones the refs are kept
MAX_LISTED_WORDS = 40  # messages whose refs are listed
MIN_SAME_WORDS = 2  # of a fact that says nothing but what a rule says, or its contrary

_RULE = re.compile(r"The person ruled \(#(\d+)\): (.*)", re.DOTALL)
_NAMED_RULE = re.compile(
    r"[*_]*rule[*_]*(?: \(#\d+\))?[*_]*: *[*_]*[\"“]?(.*?)[\"”]?", re.I | re.DOTALL
)
_QUOTED = re.compile(r"The person \(#\d+\): (.*)", re.DOTALL)
_OLDER_RULES = "Older rules of the person, which stand too: Recall "
_OTHER_WORDS = "What else the person said, in full: Recall "


@dataclass(frozen=True, slots=True)
class Rulings:
    """What the person said that a summary keeps: rules, and the refs of other messages."""

    rules: Sequence[PersonRule] = ()
    others: Sequence[int] = ()

    def within(self, room: int) -> tuple[str, ...]:
        """Return the lines of the rules; of the oldest, where all have no room, the refs alone."""
        lines = [rule_line(rule) for rule in self.rules]
        kept: list[str] = []
        for line in reversed(lines):
            room -= estimate(line) + 1
            if room < 0:
                break
            kept.insert(0, line)
        refs = dict.fromkeys(rule.ref for rule in self.rules[: len(lines) - len(kept)])
        return (*((f"{_OLDER_RULES}{_refs(refs)}",) if refs else ()), *kept)

    def other_words(self) -> tuple[str, ...]:
        """Return the line with the refs of the newest other messages."""
        older = len(self.others) - MAX_LISTED_WORDS
        more = f", and {older} older ones in conversation.md" if older > 0 else ""
        return (f"{_OTHER_WORDS}{_refs(self.others[-MAX_LISTED_WORDS:])}{more}",) * bool(
            self.others
        )


def rulings_of(
    evicted: Sequence[Item],
    ledger: Ledger,
    named: Iterable[PersonRule] = (),
    lifted: Iterable[PersonRule] = (),
) -> Rulings:
    """Return what a summary of `evicted` must keep of the person's words that do not stay in the
    context otherwise. `named` and `lifted` are rules that summaries knew of."""
    here = {item.seq for item in evicted if item.source == "person"}
    start = min((item.seq for item in evicted if item.source != "summary"), default=0)
    gone = {ref: text for ref, text in ledger.words if ref in here or ref < start}
    pinned = [text.casefold() for text in ledger.pins.values() if estimate(text) <= MAX_PIN_TOKENS]
    rules = [
        rule
        for rule in standing_rules(ledger.words, named, lifted)
        if rule.ref in gone and not any(rule.text.casefold().rstrip(".") in p for p in pinned)
    ]
    ruling = {rule.ref for rule in rules}
    others = [
        ref
        for ref, text in gone.items()
        if ref not in ruling and text.strip() and not rules_in(text) and not says_go_on(text)
    ]
    return Rulings(rules, others)


def rule_line(rule: PersonRule) -> str:
    """Return the line of a rule among the critical facts."""
    return f"The person ruled (#{rule.ref}): {rule.text}"


def rule_of(fact: str) -> PersonRule | None:
    """Return the rule that a line of `rule_line` has; None for any other fact."""
    found = _RULE.fullmatch(fact)
    return PersonRule(int(found[1]), found[2]) if found else None


def rules_in_document(
    document: SummaryDocument, words: Sequence[tuple[int, str]]
) -> Iterator[PersonRule]:
    """Yield the rules that a summary has and the person did say, each as they said it."""
    said = dict(words)
    for fact in document.facts:
        if (rule := rule_of(fact)) and sentence_with(said.get(rule.ref, ""), rule.text):
            yield rule
        elif named := _NAMED_RULE.fullmatch(fact):
            spoken = ((ref, sentence_with(text, named[1])) for ref, text in reversed(words))
            if found := next((row for row in spoken if row[1]), None):
                yield PersonRule(*found)


def without_rules(document: SummaryDocument, rules: Collection[PersonRule]) -> SummaryDocument:
    """Return the document without rules, what says the same or the contrary of one of them, and
    without the lines about older words."""
    subjects = {subject(rule.text) for rule in rules}
    texts = " ".join(rule.text.casefold() for rule in rules)

    def is_covered(fact: str) -> bool:
        if _RULE.fullmatch(fact) or fact.startswith(_OLDER_RULES):
            return True
        named, quoted = _NAMED_RULE.fullmatch(fact), _QUOTED.fullmatch(fact)
        text = named[1] if named else quoted[1] if quoted else fact
        about = subject(text)
        return (len(about) >= MIN_SAME_WORDS and about in subjects) or (
            bool(named or quoted) and text.casefold().rstrip(".") in texts
        )

    return replace(
        document,
        facts=tuple(fact for fact in document.facts if not is_covered(fact)),
        recovery=tuple(x for x in document.recovery if not x.startswith(_OTHER_WORDS)),
    )


def with_rulings(document: SummaryDocument, rulings: Rulings, room: int) -> SummaryDocument:
    """Return the document with the rules first among its facts, in `room` tokens, and with the refs
    of what else the person said."""
    return replace(
        document,
        facts=(*rulings.within(room), *document.facts),
        recovery=(*document.recovery, *rulings.other_words()),
    )


def with_all_rules(
    document: SummaryDocument, ledger: Ledger, lifted: Iterable[PersonRule] = ()
) -> SummaryDocument:
    """Return the document with every rule that stands now, also those that the context has."""
    named = rules_in_document(document, ledger.words)
    rules = standing_rules(ledger.words, named, lifted)
    bare = without_rules(document, rules)
    return replace(bare, facts=(*bare.facts, *map(rule_line, reversed(rules))))


def is_ruling(fact: str) -> bool:
    """Return whether a critical fact is a rule of the person, or names where older ones stand."""
    return _RULE.fullmatch(fact) is not None or fact.startswith(_OLDER_RULES)


def _refs(refs: Iterable[int]) -> str:
    return " ".join(f"#{ref}" for ref in refs)
