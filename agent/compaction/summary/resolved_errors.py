"""Match the errors that a summary marks as resolved with recorded failures.

The ledger cannot know that a problem was solved in another way if the failed command is never run
again. So a model's claim is recorded with the summary: its author, its text and the refs of the
failures. Later failures have new refs, so older claims do not apply to them. If a summary calls a
failure both resolved and open, it is open.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from ...lazy import regex
from ...session.ledger import CommandFact, Ledger

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
