"""Remove entries of an earlier summary that the model marks as no longer true.

A claim quotes the entry. If several entries match, the claim's kind, ref and number decide. A
user's rule is lifted only if the claim also quotes a later message of the user. Decisions, facts
and rules are never treated as outdated for another reason.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

from ...lazy import dataclass, regex
from ...session.user_messages import LoggedMessage
from ..document import SummaryDocument
from .user_rules import TextOf, lifting_quotation, quotations, quoted_sentence

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
