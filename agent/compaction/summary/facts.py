"""The facts and resolved errors of a summary: their sources, and what replaces or removes them.

The model quotes an entry for each fact. A fact whose quotation is found gets the ref of the entry.
Another fact is the model's note: it is removed if a fact with a source contradicts it, or if no
summary states it again.

The ledger cannot know that a problem was solved in another way if the failed command is never run
again. So a model's claim that an error is resolved is recorded with the summary: its author, its
text and the refs of the failures. Later failures have new refs, so older claims do not apply to
them. If a summary calls a failure both resolved and open, it is open.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...lazy import dataclass, regex
from ...session.ledger import CommandFact, Ledger
from ..document import DENIED, SummaryDocument, SummaryFact, UserRule
from ..words import MIN_NAME_CHARS, named_paths, terms
from .user_messages import quotations

MIN_SHARED_ERROR_CHARS = 10  # common to an error and the claim that it is resolved
MAX_LISTED_FAILURES = 20  # in the summary request
MAX_LISTED_CHARS = 200  # of each failure

_RESOLVED = regex(r"\W*resolved\b\s*(\([^)\n]*\))?\W*?[:—–\]*][\s*_~:—–-]*(.*)", re.I | re.DOTALL)
_REF = regex(r"#(\d{1,9})\b")
_HEAD_END = regex(r"\s+[—–-]+\s+|[;(]|,\s")
_QUOTED = regex(r"`([^`\n]{3,})`")


def resolved_error(error: str) -> str | None:
    """Return the error in a line "Resolved: …"; None for an open error."""
    found = _RESOLVED.fullmatch(error)
    return " ".join(filter(None, (found[2], found[1]))) if found else None


def comparable(text: str) -> str:
    """Normalize a text for comparison: case, blanks and a final full stop are ignored."""
    return " ".join(text.casefold().split()).rstrip(".")


@lru_cache(maxsize=1_024)
def whole_words(text: str) -> re.Pattern[str]:
    """Return a pattern that matches a text only as whole words and numbers."""
    before = r"(?<!\w)(?<!\d[.,])" if text[0].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if text[-1].isalnum() else ""
    return re.compile(f"{before}{re.escape(text)}{after}")


def names_error(named: str, error: str) -> bool:
    """Return True if a text names an error: in full, by its beginning or by one of its lines."""
    named, error = comparable(named), comparable(error)
    head = _HEAD_END.split(named, maxsplit=1)[0].strip()
    short, long = sorted((error, named), key=len)
    return error == named or any(
        len(part) >= MIN_SHARED_ERROR_CHARS and whole_words(part).search(whole)
        for part, whole in ((short, long), (head, error))
    )


def open_errors(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the old and new errors that are still open. An old error is resolved if a new line
    says so and no new line names it as open.
    """
    resolved = [text for text in map(resolved_error, new) if text]
    still_open = [text for text in new if resolved_error(text) is None]
    gone = [
        error
        for error in old
        if any(names_error(text, error) for text in resolved)
        and not any(names_error(text, error) for text in still_open)
    ]
    return [error for error in (*old, *still_open) if error not in gone]


def resolution_rows(
    errors: Sequence[str], by: str, ledger: Ledger, failures: Sequence[CommandFact]
) -> tuple[dict[str, Any], ...]:
    """Return the rows to record for a summary's error lines.

    There is a row for each new claim that an error is resolved, and for each line that names a
    settled failure as open again. `failures` are the open failures at the time of the request.
    """
    said_before = {comparable(str(row.get("why"))) for row in ledger.resolutions}
    still_open = [line for line in errors if resolved_error(line) is None]
    named_open = {
        fact.ref for line in still_open for fact in _failures_named(line, ledger, failures)
    }
    rows: list[dict[str, Any]] = []
    for line in errors:
        named = resolved_error(line)
        if named is None:
            refs = sorted(_refs(line) & ledger.settled_refs)
            rows += [{"by": by, "why": line, "reopened": refs}] if refs else []
        elif comparable(line) not in said_before:  # a repeated claim is not about newer failures
            solved = {fact.ref for fact in _failures_named(named, ledger, failures)}
            rows.append({"by": by, "why": line, "refs": sorted(solved - named_open)})
    return tuple(rows)


def quotes_past_failure(line: str, ledger: Ledger) -> bool:
    """Return True if a line quotes a past failure and no open one, by error or command."""
    if any(_quotes_failure(line, fact) for fact in ledger.unresolved()):
        return False
    return any(_quotes_failure(line, fact) for fact in ledger.past_failures())


def open_failures_text(failures: Sequence[CommandFact]) -> str:
    """Return the list of failures for the summary request; "" if there are none."""
    rows = [
        f"- #{fact.ref} " + " ".join(_text(fact).split())[:MAX_LISTED_CHARS]
        for fact in failures[-MAX_LISTED_FAILURES:]
    ]
    head = "Counted as still failing, because no later run has passed:"
    return "\n".join([head, *rows]) if rows else ""


def claim_lines(errors: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that mark an error as resolved."""
    return tuple(error for error in errors if resolved_error(error) is not None)


def _failures_named(
    text: str, ledger: Ledger, failures: Sequence[CommandFact]
) -> list[CommandFact]:
    """Return the failures that a text names: by the ref of a failed command, else by command or
    error.
    """
    refs = _refs(text)
    if refs & {fact.ref for fact in ledger.commands if fact.errors}:
        return [fact for fact in failures if fact.ref in refs]
    return [fact for fact in failures if _quotes_failure(text, fact)]


def _quotes_failure(text: str, fact: CommandFact) -> bool:
    """Return True if a text quotes a failed command or a line of its output."""
    lines = (line.strip() for line in fact.errors)
    telling = (line for line in lines if " " in line and not line.startswith("["))
    quoted = comparable(fact.command) in map(comparable, _QUOTED.findall(text))
    return quoted or any(names_error(text, line) for line in telling)


def _text(fact: CommandFact) -> str:
    return "\n".join((f"`{fact.command}`", *fact.errors))


def _refs(text: str) -> set[int]:
    return {int(ref) for ref in _REF.findall(text)}


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
