"""Models that write bad summaries: empty, a copy of the previous one, or half wrong.

`SUMMARIZERS[name](host)` returns the text of the next summary. The host is that of a replay, so the
parts that are not negated are as correct as the records.
"""

import re
from collections.abc import Callable

from ctxagent.addons.replay.player import ReplayHost
from ctxagent.agent.compaction.document import render
from ctxagent.agent.compaction.summary.merge import document_from_ledger
from ctxagent.agent.compaction.summary.request import max_summary_tokens
from ctxagent.agent.compaction.summary.shorten import shortened_to
from ctxagent.agent.compaction.summary.writer import document_of

_OPPOSITES = (  # the first match in a line is replaced
    (r"\bnever\b", "always"), (r"\balways\b", "never"), (r"\b(?:do not|don['’]t)\b", "do"),
    (r"\bmust not\b", "may"), (r"\bmust\b", "need not"), (r"\bfailed\b", "passed"),
    (r"\bcreated\b", "deleted"), (r"\bmodified\b", "deleted"), (r"\bis\b", "is not"),
    (r"\bare\b", "are not"), (r"\bwas\b", "was not"), (r"\bdecided to\b", "decided not to"),
)  # fmt: skip
_MARKED = re.compile(r"((?:[-*] |\d+\. )(?:\*\*[^*]+\*\* ?)?)(.*)", re.DOTALL)


def nothing(host: ReplayHost) -> str:
    return ""


def again(host: ReplayHost) -> str:
    """Return the document of the current summary; for the first summary, one from records."""
    document = document_of(host.view.summary)
    return render(document) if document else _from_records(host)


def negated(host: ReplayHost) -> str:
    """Return a summary from records in which every second line is negated."""
    lines, found = [], 0
    for line in _from_records(host).split("\n"):
        told = bool(line.strip()) and not line.startswith(("#", "| File", "| ---"))
        found += told
        lines.append(_negated(line) if told and found % 2 == 0 else line)
    return "\n".join(lines)


SUMMARIZERS: dict[str, Callable[[ReplayHost], str]] = {
    "nothing": nothing, "the last again": again, "half negated": negated,
}  # fmt: skip


def _from_records(host: ReplayHost) -> str:
    document = document_from_ledger(host.ledger, document_of(host.view.summary))
    return render(shortened_to(document, max_summary_tokens(host.current_window())))


def _negated(line: str) -> str:
    for pattern, opposite in _OPPOSITES:
        changed = re.sub(pattern, opposite, line, count=1, flags=re.IGNORECASE)
        if changed != line:
            return changed
    found = _MARKED.fullmatch(line)
    return f"{found[1]}It is not so that {found[2]}" if found else f"It is not so that {line}"
