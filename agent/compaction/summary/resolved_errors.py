"""Which errors a summary says are resolved, and which of the recorded failures these are.

A model says so of what the ledger cannot know: another way was taken, and the command that failed
is never run again. Its word is recorded with the summary: who said it, why, and of which failures,
by their refs. A later failure has a ref of its own, so a word said before does not speak of it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ...session.ledger import CommandFact, Ledger
from ..language.evidence import whole_words

MIN_SHARED_ERROR_CHARS = 10  # that an error shares with the text that says it is resolved
MIN_NAME_CHARS = 4  # of a name by which an error is known
MAX_LISTED_FAILURES = 20  # that the model is asked about
MAX_LISTED_CHARS = 200  # of each

_LEADING = re.compile(
    r"\W*(?:now )?(?:resolved|solved|fixed)\b\W*(\([^)\n]*\))?\W*?[:—–\]*][\s*_~:—–-]*(.*)",
    re.I | re.DOTALL,
)
_TRAILING = re.compile(
    r"(.*?)\s*(?:[—–:;,(\[~]|\s-|→|#\d+ (?:is|was))[\s*~]*(?:now )?resolved\b"
    r"(?= *$|\W*(?:[.,;:)\]—–*]|by|in|with|after|since|because|via|\())(.*)",
    re.I | re.DOTALL,
)
_GIVEN_UP = re.compile(
    r"\W*(?:(?:a|the) )?(?:previous|earlier|first|initial) attempt\b.*[—–;,-] ?(?:so )?"
    r"(?:we |I )?(?:switched|moved|changed) to\b.*",
    re.I | re.DOTALL,
)
_REF = re.compile(r"#(\d{1,9})\b")
_HEAD_END = re.compile(r"\s+[—–-]+\s+|[;(]|,? (?:because|by|since|after|due to)\b")
_QUOTED = re.compile(r"`([^`\n]{3,})`")
_NAME = re.compile(r"[A-Za-z_][\w./:-]*\w")
_TELLING_NAME = re.compile(r".*[_./\d].*|.+[A-Z].*")


def resolved_error(error: str) -> str | None:
    """Return what a line names that says "Resolved: …" or the like; None for an open error."""
    if found := _LEADING.fullmatch(error):
        return " ".join(filter(None, (found[2], found[1])))
    if (found := _TRAILING.fullmatch(error)) and (found[1].strip() or _REF.search(error)):
        return error
    return error if _GIVEN_UP.fullmatch(error) else None


def comparable(text: str) -> str:
    """Return a text for comparison: no case, single blanks, no full stop at its end."""
    return " ".join(text.casefold().split()).rstrip(".")


def names_error(named: str, error: str) -> bool:
    """Return whether a text names an error: as a whole, by its beginning or by a line of it."""
    named, error = comparable(named), comparable(error)
    head = _HEAD_END.split(named, maxsplit=1)[0].strip()
    short, long = sorted((error, named), key=len)
    return error == named or any(
        len(part) >= MIN_SHARED_ERROR_CHARS and whole_words(part).search(whole)
        for part, whole in ((short, long), (head, error))
    )


def resolution_rows(
    errors: Sequence[str], by: str, ledger: Ledger, failures: Sequence[CommandFact]
) -> tuple[dict[str, Any], ...]:
    """Return what is recorded of a summary's error lines: a row for each that says an error is
    resolved, and for each that names one as open again, of which that was said before. `failures`
    were those open when the summary was asked for."""
    said_before = {comparable(str(row.get("why"))) for row in ledger.resolutions}
    rows: list[dict[str, Any]] = []
    for line in errors:
        named = resolved_error(line)
        if named is None:
            refs = sorted(_refs(line) & ledger.settled_refs)
            rows += [{"by": by, "why": line, "reopened": refs}] if refs else []
        elif comparable(line) not in said_before:  # said again, it says nothing of what came since
            refs = [fact.ref for fact in _failures_named(named, ledger, failures)]
            rows.append({"by": by, "why": line, "refs": refs})
    return tuple(rows)


def _failures_named(
    named: str, ledger: Ledger, failures: Sequence[CommandFact]
) -> list[CommandFact]:
    """Return the failures that a text names: by ref, by command or error, by the most names."""
    refs = _refs(named)
    if refs & {fact.ref for fact in ledger.commands if fact.errors}:
        return [fact for fact in failures if fact.ref in refs]
    exact = [fact for fact in failures if _names_failure(named, fact)]
    if exact:
        return exact
    names = {name.casefold() for name in _NAME.findall(named) if _is_telling(name)}
    names |= {part.strip().casefold() for part in _QUOTED.findall(named)}
    kinds = {name for name in names if name.endswith(("error", "exception"))}
    names = names - kinds or kinds  # the kind of an error is told by many
    texts = [_text(fact).casefold() for fact in failures]
    patterns = list(map(whole_words, filter(None, names)))
    shared = [sum(pattern.search(text) is not None for pattern in patterns) for text in texts]
    most = max(shared, default=0)
    best = [fact for fact, count in zip(failures, shared, strict=True) if count == most]
    return best if most and len(best) == 1 else []


def _names_failure(text: str, fact: CommandFact) -> bool:
    """Return whether a text quotes the command of a failure, or a line of its output."""
    lines = (line.strip() for line in fact.errors)
    telling = (line for line in lines if " " in line and not line.startswith("["))
    quoted = comparable(fact.command) in map(comparable, _QUOTED.findall(text))
    return quoted or any(names_error(text, line) for line in telling)


def says_what_passed(line: str, ledger: Ledger) -> bool:
    """Return whether a line names only failures that are over: it quotes their error or command."""
    if any(_names_failure(line, fact) for fact in ledger.unresolved()):
        return False
    return any(_names_failure(line, fact) for fact in ledger.past_failures())


def open_failures_text(failures: Sequence[CommandFact]) -> str:
    """Return a list of failures for the request for a summary; "" for none."""
    rows = [
        f"- #{fact.ref} " + " ".join(_text(fact).split())[:MAX_LISTED_CHARS]
        for fact in failures[-MAX_LISTED_FAILURES:]
    ]
    head = "Counted as still failing, because no later run has passed:"
    return "\n".join([head, *rows]) if rows else ""


def _text(fact: CommandFact) -> str:
    return "\n".join((f"`{fact.command}`", *fact.errors))


def _refs(text: str) -> set[int]:
    return {int(ref) for ref in _REF.findall(text)}


def _is_telling(name: str) -> bool:
    return len(name) >= MIN_NAME_CHARS and _TELLING_NAME.fullmatch(name) is not None


def claim_lines(errors: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that say an error is resolved."""
    return tuple(error for error in errors if resolved_error(error) is not None)
