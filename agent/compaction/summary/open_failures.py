"""The errors of a summary that come from the ledger: open command failures and recent past
failures.

Open failures are listed in full while they fit, then by ref only. The lines of a model about them
stay too. Past failures have a separate token limit.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...context.tokens import estimate
from ...lazy import regex
from ...session.command_output import has_error_sign
from ...session.ledger import CommandFact, Ledger
from ..document import SummaryDocument
from ..recall_hints import FOUND_BY
from .facts import quotes_past_failure
from .shorten import shorten_at_gap

MAX_COMMAND_CHARS = 400
MAX_LINE_CHARS = 160  # of a single error line
MAX_EARLIER_TOKENS = 400  # for past failures
EARLIER_LINES = 2  # of each past failure

_MORE = f"More commands that still fail{FOUND_BY}: "
_EARLIER = "Failed earlier: "
_FAILED = regex(r"`.*?` failed \(exit [^)]*, #(\d+)\)", re.DOTALL)
_DECORATION = regex(r"(?:E\s+|>\s+|\[\d[\d:., TZ-]*\]\s*)+")  # before an error
_ERROR = regex(r"\w*(?:Error|Exception)\b|\berror\b|\bassert|\bpanic|\bfatal", re.IGNORECASE)
_FAILURE = regex(r"fail|denied|refused|not found|no such|undefined|timed out", re.IGNORECASE)


def with_open_failures(
    document: SummaryDocument, ledger: Ledger, room: int | None = None
) -> SummaryDocument:
    """Add the open failures that the document's errors do not have, newest last. If they exceed
    `room` tokens, the oldest ones keep only their most informative line, and then only their ref.
    """
    described = document.errors
    missing = [
        fact
        for fact in ledger.unresolved()
        if not any(line.startswith(_head_of(fact)) for line in described)
    ]
    lines = [_lines_of(fact, fact.errors) for fact in missing]
    if room is not None:
        left = sum(map(_size, lines)) - room
        for place, fact in enumerate(missing):
            if left <= 0:
                break
            left -= _size(lines[place])
            lines[place] = _lines_of(fact, filter(None, [error_line(fact)]))
            left += _size(lines[place])
        kept = _count_fitting(lines[::-1], room)
        lines = lines[len(lines) - kept :]
    older = " ".join(f"#{fact.ref}" for fact in missing[: len(missing) - len(lines)])
    return replace(document, errors=(*((f"{_MORE}{older}",) if older else ()), *described, *lines))


def earlier_failures(
    errors: Sequence[str],
    ledger: Ledger,
    until: int | None = None,
    room: int = MAX_EARLIER_TOKENS,
) -> tuple[str, ...]:
    """Return lines for the newest past failures that fit in `room` tokens, oldest first, of entries
    up to `until`. Lines that `errors` already contain are left out.
    """
    known_text = "\n".join(errors)
    over = {fact.ref: (_head_of(fact), fact.errors) for fact in ledger.past_failures()}
    over |= {call.ref: (f"{call.tool} (#{call.ref})", call.errors) for call in ledger.failed_calls}
    lines = list[str]()
    for ref, (head, said) in sorted(over.items(), reverse=True):
        if until is not None and ref > until:
            continue
        signed = [line for line in said if has_error_sign(line)] or said[-1:]
        new = [line for line in signed[-EARLIER_LINES:] if line.strip() not in known_text]
        line = f"{_EARLIER}{head}:\n" + "\n".join(new)
        if new and _size(line) <= room:
            room -= _size(line)
            lines.append(line)
            known_text += "\n" + line
    return tuple(reversed(lines))


def still_open(errors: Sequence[str], ledger: Ledger) -> tuple[str, ...]:
    """Return the errors that are still open, without the lines about more or earlier failures."""
    failing = {fact.ref for fact in ledger.unresolved()}

    def is_open(error: str) -> bool:
        if found := _FAILED.match(error):
            return int(found[1]) in failing
        return not error.startswith((_MORE, _EARLIER)) and not quotes_past_failure(error, ledger)

    return tuple(filter(is_open, errors))


def written_errors(errors: Sequence[str]) -> tuple[str, ...]:
    """Return the errors without the lines that this module adds."""
    return tuple(e for e in errors if not e.startswith((_MORE, _EARLIER)) and not _FAILED.match(e))


def error_line(fact: CommandFact) -> str:
    """Return the most informative line of a failed command's output; "" if there is none."""
    lines = [_DECORATION.sub("", line.strip(), count=1) for line in fact.errors]
    lines = [line for line in lines if line]
    for pattern in (_ERROR, _FAILURE):
        for line in reversed(lines):
            if match := pattern.search(line):
                return _part(line, match.start())
    return _part(lines[-1], 0) if lines else ""


def _part(line: str, at: int) -> str:
    """Return the part of a line around the character `at`; all of a short line."""
    start = max(0, at - MAX_LINE_CHARS // 4) if len(line) > MAX_LINE_CHARS else 0
    return line[start : start + MAX_LINE_CHARS].strip()


def _lines_of(fact: CommandFact, errors: Iterable[str]) -> str:
    said = "\n".join(errors)
    return f"{_head_of(fact)}:\n{said}" if said else _head_of(fact)


def _head_of(fact: CommandFact) -> str:
    command = shorten_at_gap(fact.command, MAX_COMMAND_CHARS)
    return f"`{command}` failed (exit {fact.exit_code}, #{fact.ref})"


def _count_fitting(lines: Sequence[str], room: int) -> int:
    """Return how many lines, counted from the first, fit in `room` tokens."""
    count = 0
    for line in lines:
        room -= _size(line)
        if room < 0:
            break
        count += 1
    return count


def _size(line: str) -> int:
    return estimate(line) + 1
