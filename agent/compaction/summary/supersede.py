"""Which entries of an earlier summary no longer hold, and how that is known.

Without a model by order: a later entry gives another value to the same thing, or rules out what an
earlier decision took up. With one by its claims: it names entries of the previous record by number
and by their first words, both of which must fit. A rule of the person goes by their own words
alone: a claim must quote them, from a later message that can lift it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from ...session.entries import Summary
from ..document import SummaryDocument
from ..language.decisions import overrules
from ..language.rules import PersonRule, changes_value, may_lift, sentence_with, subject
from .rulings import rule_of

Section = Literal["decisions", "facts", "blocked", "rules"]

CLAIM_WORDS = 6  # of an entry, that a claim may quote; half of them must be there
SAME_STATE_SHARE = {"done": 0.8, "blocked": 0.6}  # of the words of two that say the same

_CLAIM = re.compile(
    r"\W*(?P<kind>(?:key )?decision|(?:critical )?fact|constraint|rule|block)\w*\W*(?P<number>\d+)?"
    r"(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SECTIONS: Mapping[str, Section] = {"decision": "decisions", "block": "blocked"}
_QUOTES = re.compile(r"[\"“„«「]([^\"”“»」]{4,})[\"”“»」]|`([^`]{4,})`|(?<!\w)'([^']{4,})'(?!\w)")
_SOURCE = re.compile(r"The person(?: \(#\d+\)| said): ")
_GONE = re.compile(r"\W*(?:resolved|unblocked|no longer blocked)\b\W*(.*)", re.I | re.DOTALL)
_EXACT = re.compile(r"\S*\d\S*|\S*[/_`]\S*")


@dataclass(frozen=True, slots=True)
class Superseded:
    """An entry that a summary dropped since it no longer holds."""

    section: Section
    text: str
    why: str
    ref: int = 0  # of the message, for a rule

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def superseded_of(rows: Iterable[Any]) -> list[Superseded]:
    """Return the entries that `to_json` wrote; rows of another shape count as nothing."""
    return [
        Superseded(row["section"], row["text"], str(row.get("why", "")), row.get("ref") or 0)
        for row in rows
        if isinstance(row, Mapping)
        and row.get("section") in get_args(Section)
        and isinstance(row.get("text"), str)
        and isinstance(row.get("ref", 0), int)
    ]


def lifted_by(summary: Summary | None) -> list[PersonRule]:
    """Return the rules that a recorded summary knows to be lifted."""
    return lifted_rules(superseded_of(summary.superseded)) if summary else []


def lifted_rules(found: Iterable[Superseded]) -> list[PersonRule]:
    """Return the rules among what no longer holds."""
    return [PersonRule(each.ref, each.text) for each in found if each.section == "rules"]


def replaced_by_order(old: SummaryDocument, new: SummaryDocument) -> Iterator[Superseded]:
    """Yield the entries of the old document that one of the new document replaces."""
    for text in old.facts:
        for later in new.facts if rule_of(text) is None else ():
            if changes_value(_SOURCE.sub("", later), _SOURCE.sub("", text)):
                yield Superseded("facts", text, f"replaced: {later}")
                break
    for text in old.decisions:
        for later in new.decisions:
            if replaces_decision(later, text):
                yield Superseded("decisions", text, f"replaced: {later}")
                break


def replaces_decision(later: str, earlier: str) -> bool:
    """Return whether a decision takes the place of an earlier one."""
    new, old = _SOURCE.sub("", later), _SOURCE.sub("", earlier)
    return changes_value(new, old) or overrules(new, old)


def claimed(
    lines: Iterable[str], old: SummaryDocument, words: Sequence[tuple[int, str]]
) -> Iterator[Superseded]:
    """Yield the entries of the old document that a model says no longer hold, as far as its claims
    may be believed. `words` are the person's, each with its ref."""
    for line in lines:
        if (claim := _CLAIM.fullmatch(line)) is None:
            continue
        kind = claim["kind"].lower().removeprefix("key ").removeprefix("critical ")
        section: Section = _SECTIONS.get(kind, "facts")
        text = _named_entry(getattr(old, section), claim["number"], claim["rest"])
        if text is None:
            continue
        rule = rule_of(text) if section == "facts" else None
        if rule is None:
            yield Superseded(section, text, line)
        elif lifting := _lifting_words(rule, line, words):
            yield Superseded("rules", rule.text, lifting, rule.ref)


def without_superseded(document: SummaryDocument, found: Iterable[Superseded]) -> SummaryDocument:
    """Return the document without these entries."""
    gone = {(each.section, each.text) for each in found}

    def holds(section: Section, text: str) -> bool:
        rule = rule_of(text) if section == "facts" else None
        return ("rules", rule.text) not in gone if rule else (section, text) not in gone

    return replace(
        document,
        decisions=tuple(text for text in document.decisions if holds("decisions", text)),
        facts=tuple(text for text in document.facts if holds("facts", text)),
        blocked=tuple(text for text in document.blocked if holds("blocked", text)),
    )


def with_standing(
    section: Literal["done", "blocked"], old: Sequence[str], new: Sequence[str]
) -> tuple[str, ...]:
    """Return the old items of a state that none of the new ones says again or says to be gone, then
    the new ones."""
    said = [text for text in new if _GONE.fullmatch(text) is None or section == "done"]
    gone = [found[1] for text in new if (found := _GONE.fullmatch(text)) and section == "blocked"]
    share = SAME_STATE_SHARE[section]
    kept = [
        text
        for text in old
        if not any(_says_same(text, other, share) for other in said)
        and not any(_is_quoted(text, other) for other in gone)
    ]
    return (*kept, *dict.fromkeys(said))


def _named_entry(entries: Sequence[str], number: str | None, rest: str) -> str | None:
    """Return the entry that a claim means: the one of its number if the words fit, else the only
    one whose words all fit."""
    place = int(number[:6]) - 1 if number else -1
    if 0 <= place < len(entries) and _is_quoted(entries[place], rest):
        return entries[place]
    fitting = [text for text in entries if _is_quoted(text, rest, whole=True)]
    return fitting[0] if len(fitting) == 1 else None


def _is_quoted(entry: str, words: str, *, whole: bool = False) -> bool:
    """Return whether words quote the beginning of an entry: half of its first words, or all."""
    rule = rule_of(entry)
    telling = [subject(word) for word in (rule.text if rule else _SOURCE.sub("", entry)).split()]
    first = [word for word in telling if word][:CLAIM_WORDS]
    there = sum(word <= subject(words) for word in first)
    return bool(first) and (there == len(first) if whole else 2 * there >= len(first) + 1)


def _lifting_words(rule: PersonRule, line: str, words: Sequence[tuple[int, str]]) -> str:
    """Return the words of the person's that lift a rule, if a claim quotes such, else ""."""
    for quoted in filter(None, (part for found in _QUOTES.findall(line) for part in found)):
        for ref, text in words:
            sentence = sentence_with(text, quoted) if ref > rule.ref else ""
            if sentence and sentence != rule.text and may_lift(sentence, rule.text):
                return f"the person (#{ref}): {sentence}"
    return ""


def _says_same(one: str, other: str, share: float) -> bool:
    a, b = subject(one), subject(other)
    exact = [{name.strip(",.:;()") for name in _EXACT.findall(text)} for text in (one, other)]
    if exact[0] != exact[1]:
        return False
    return one == other or (bool(a and b) and len(a & b) >= share * min(len(a), len(b)))
