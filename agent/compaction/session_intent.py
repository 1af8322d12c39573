"""The intent of a session, for an agent that takes over: the user's requests and the changes so
far.
"""

from collections.abc import Iterator, Mapping, Reversible

from ...tools.system.plural import count_of
from ...tools.system.shorten import shorten
from ..session.entries import Entry, Summary
from ..session.ledger import FileFact
from .recovery import ledger_of, newest_readable_summary
from .summary.user_messages import message_lines
from .summary.writer import document_of

MESSAGE_TOKENS = 5_000  # approximate limit for all user messages
MAX_INTENT_CHARS = 2_000  # of the intent in a summary
MAX_LISTED_FILES = 50  # the last changed files
MAX_PATH_CHARS = 200


def session_intent(entries: Reversible[Entry]) -> str:
    """Return the intent of the newest summary, the user's messages verbatim and the changed files;
    "" if the log has none of these.
    """
    ledger, summary = ledger_of(entries), newest_readable_summary(entries)
    typed = [message for message in ledger.messages if not message.is_attached]
    sections = [
        _summary_intent(summary),
        _section(f"Messages of the user ({len(typed):,})", message_lines(typed, MESSAGE_TOKENS)),
        _section(f"Changed files ({len(ledger.files):,})", [*_file_lines(ledger.files)]),
    ]
    return "\n\n".join(filter(None, sections))


def _summary_intent(summary: Summary | None) -> str:
    document = document_of(summary)
    if summary is None or document is None or not document.intent:
        return ""
    intent = shorten(document.intent, MAX_INTENT_CHARS)
    return _section(f"Session intent, as summary #{summary.seq} states it", [intent])


def _section(heading: str, lines: list[str]) -> str:
    return "\n".join([f"## {heading}", *lines]) if lines else ""


def _file_lines(files: Mapping[str, FileFact]) -> Iterator[str]:
    """Yield a line for each of the last changed files, newest first."""
    newest_first = sorted(files.values(), key=lambda fact: -fact.ref)
    for fact in newest_first[:MAX_LISTED_FILES]:
        path = shorten(fact.path, MAX_PATH_CHARS)
        yield f"- {path}: {fact.action}, +{fact.added:,} -{fact.removed:,} lines, #{fact.ref}"
    if older := newest_first[MAX_LISTED_FILES:]:
        yield f"({count_of(len(older), 'more file')}, changed before these)"
