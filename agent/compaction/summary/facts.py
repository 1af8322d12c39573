"""The facts of a summary: their sources, and what replaces or removes them.

The model quotes an entry for each fact. A fact whose quotation is found gets the ref of the entry.
Another fact is the model's note: it is removed if a fact with a source contradicts it, or if no
summary states it again.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ...lazy import dataclass, regex
from ..document import DENIED, SummaryDocument, SummaryFact, UserRule
from ..language.words import MIN_NAME_CHARS, named_paths, terms
from .resolved_errors import comparable
from .user_rules import quotations

MAX_NOTE_AGE = 4  # summaries by a model that do not state a note again; then it is removed

_SOURCE = regex(
    r"(?P<text>.*?)\s*[—–(\[-]*\s*(?:#(?P<ref>\d{1,9})\b[:,]?\s*)?"
    r"(?P<quote>[\"“”„«「`][^\n]{2,}[\"”“»」`])[\s)\].]*",
    re.DOTALL,
)
_NUMBER = regex(r"\d+(?:[.,:]\d+)*")
_VALUE = regex(r"`[^`\n]+`|\"[^\"\n]+\"|\d[\w.,:/-]*\w|\d")
_PERMISSION_MODE = regex(r"\W*(?:the )?permission mode\b.*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Source:
    """An entry that contains a quotation."""

    ref: int
    sentence: str  # with the quoted words
    is_user: bool  # a message of the user


FindSource = Callable[[int, str], Source | None]  # from the ref that the model names, or 0


def sourced_facts(
    facts: Iterable[SummaryFact],
    previous: SummaryDocument,
    rules: Sequence[UserRule],
    find: FindSource,
) -> tuple[SummaryFact, ...]:
    """Return the facts that a model states, each with the source that was found for it.

    What the user allowed or forbade is never a fact: a fact from a user message has the words of
    the user, and a note about what a rule names is left out.
    """
    known = {comparable(fact.text): fact for fact in previous.facts}
    names = {path for rule in rules for path in named_paths(rule.text)}
    found = []
    for fact in facts:
        if fact.text.startswith(DENIED) or _PERMISSION_MODE.fullmatch(fact.text):
            continue
        made = _sourced(fact, find)
        if made.is_note and (before := known.get(comparable(made.text))):
            made = replace(made, ref=before.ref)
        if made.ref or not any(name in made.text for name in names):
            found.append(made)
    return tuple(found)


def _sourced(fact: SummaryFact, find: FindSource) -> SummaryFact:
    """Return a fact with the ref of its source, if its quotation is found and fits the fact."""
    match = _SOURCE.fullmatch(fact.text)
    if match is None or not match["text"].strip():
        return SummaryFact(fact.text)
    text = match["text"].strip()
    for quoted in quotations(match["quote"]):
        source = find(int(match["ref"] or 0), quoted) if _fits(text, quoted) else None
        if source is not None:
            said = f'The user: "{source.sentence}"'
            return SummaryFact(said if source.is_user else text, source.ref)
    return SummaryFact(text)


def _fits(text: str, quoted: str) -> bool:
    """Return True if a quotation contains all numbers of a fact, and a word or number of it."""
    numbers = set(_NUMBER.findall(text))
    if not numbers <= set(_NUMBER.findall(quoted)):
        return False
    return bool(numbers or terms(text, MIN_NAME_CHARS) & terms(quoted, MIN_NAME_CHARS))


def aged(document: SummaryDocument) -> SummaryDocument:
    """Return a document for the next merge: older notes, without the oldest."""
    return replace(document, facts=_older(document.facts), other=_older(document.other))


def _older(facts: Iterable[SummaryFact]) -> tuple[SummaryFact, ...]:
    older = (replace(fact, age=fact.age + 1) if fact.is_note else fact for fact in facts)
    return tuple(fact for fact in older if fact.age <= MAX_NOTE_AGE)


def merged_facts(old: Sequence[SummaryFact], new: Sequence[SummaryFact]) -> tuple[SummaryFact, ...]:
    """Return the old facts, then the new ones. A new fact replaces an old one that states the same,
    and an old note that it contradicts. A fact with a source stays if a new note contradicts it.
    """
    stated = {comparable(fact.text): fact for fact in new}
    kept: dict[str, SummaryFact] = {}
    for fact in old:
        key = comparable(fact.text)
        again = stated.pop(key, None)
        if again is not None:
            fact = again if again.ref or not fact.ref else fact
        elif fact.is_note and any(_contradicts(fact, each) for each in new):
            continue
        kept.setdefault(key, fact)
    sourced = [fact for fact in kept.values() if fact.ref]
    for key, fact in stated.items():
        if not (fact.is_note and any(_contradicts(fact, each) for each in sourced)):
            kept.setdefault(key, fact)
    return tuple(kept.values())


def _contradicts(fact: SummaryFact, other: SummaryFact) -> bool:
    """Return True if two facts have the same words and differ in exactly one value."""
    text, said = comparable(fact.text), comparable(other.text)
    values, others = _VALUE.findall(text), _VALUE.findall(said)
    if len(values) != len(others) or _VALUE.sub("0", text) != _VALUE.sub("0", said):
        return False
    differing = [pair for pair in zip(values, others, strict=True) if pair[0] != pair[1]]
    return len(differing) == 1
