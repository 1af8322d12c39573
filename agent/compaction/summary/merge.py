"""Merge summary documents, and correct their facts from the ledger.

`with_ledger_facts` replaces a model's facts about files with recorded ones. `document_from_ledger`
makes a whole summary without a model.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...lazy import regex
from ...session.ledger import FileFact, Ledger
from ..document import DENIED, FileRow, ReadRow, SummaryDocument, SummaryFact
from ..words import paths_in
from .facts import comparable, merged_facts, open_errors
from .open_failures import still_open, with_open_failures
from .shorten import (
    changed_file_rows,
    is_folder_row,
    is_line_count,
    shorten_at_gap,
)
from .user_messages import merged_rules

LAST_COMMAND_PREFIX = "the last command was"  # begins the phase in a summary without a model
MAX_CHANGE_PIECES = 4  # parts of a change's description: the first and the newest
MAX_INTENT_CHARS = 600  # of the first message, as the intent of a summary without a model
MAX_WORDS_CHARS = 400  # of a command, a request or a reason
MIN_REPEATED_CHARS = 10  # of a message that a step repeats; shorter ones may occur by chance
MAX_LISTED_ITEMS = 20  # denials, offloaded files

_UNCHANGED = regex(r"\W*(?:unchanged|no change|(?:the )?same(?: as before)?)\W*", re.I)
_READ_REF = regex(r"#\d+")
_NOTED = regex(r" \[[^\[\]]*: deleted since\]$")


def merge(old: SummaryDocument, new: SummaryDocument) -> SummaryDocument:
    """Merge the new summary into the old one.

    The intent only changes with the scope. Rules, files, decisions, facts and finished work are
    added or updated, never removed; so are blockers, until they are done. Phase, work in progress
    and next steps are the new ones, without finished items. Errors are added, except errors that a
    new line "Resolved: …" names. References are added.
    """
    done = _union(old.done, new.done)
    ended = set(map(comparable, done))
    modified = {row.path: row for row in old.modified}
    for row in new.modified:
        modified[row.path] = _updated(modified.get(row.path), row)
    read = {row.path: row for row in old.read}
    for new_row in new.read:
        old_row = read.pop(new_row.path, new_row)
        read[new_row.path] = new_row if new_row.why else old_row
    return replace(
        new,
        intent=old.intent if _is_unchanged(new.intent) else new.intent,
        rules=merged_rules(old.rules, new.rules),
        modified=tuple(modified.values()),
        read=tuple(row for path, row in read.items() if path not in modified),
        decisions=_union(old.decisions, new.decisions),
        done=done,
        in_progress=tuple(text for text in new.in_progress if comparable(text) not in ended),
        blocked=tuple(t for t in _union(old.blocked, new.blocked) if comparable(t) not in ended),
        next_steps=tuple(text for text in new.next_steps if comparable(text) not in ended),
        facts=merged_facts(old.facts, new.facts),
        errors=_union((), open_errors(old.errors, new.errors)),
        recovery=_union(old.recovery, new.recovery),
        other=merged_facts(old.other, new.other),
    )


def with_ledger_facts(
    document: SummaryDocument, ledger: Ledger, room: int | None = None
) -> SummaryDocument:
    """Return the document with the files and references of the ledger. `room` limits the table of
    changed files, in tokens.

    A model's description of a changed file is kept, else the row has the count of changed lines.
    Next steps that repeat an answered message are removed. Errors from the ledger, and errors that
    quote its failures, are removed once they are resolved.
    Decisions and facts that name a deleted file get a note.
    """
    named = (row for row in document.modified if not is_folder_row(row))
    changes = {ledger.display_path(row.path): row.change for row in named}
    reasons = {
        ledger.display_path(row.path): row.why
        for row in document.read
        if not _READ_REF.fullmatch(row.why)  # the ref may be outdated
    }
    files = ledger.files
    rows = changed_file_rows(files, room)
    deleted = {path for path, fact in files.items() if fact.action == "deleted"}
    answered = answered_steps(document.next_steps, ledger)
    return replace(
        document,
        modified=tuple(
            replace(row, change=_change_text(changes.get(row.path, ""), files[row.path]))
            if row.path in files
            else row
            for row in rows
        ),
        read=tuple(
            ReadRow(path, reasons.get(path) or f"#{ref}") for path, ref in ledger.read.items()
        ),
        decisions=tuple(_with_deleted_noted(text, deleted) for text in document.decisions),
        facts=tuple(
            replace(fact, text=_with_deleted_noted(fact.text, deleted)) for fact in document.facts
        ),
        errors=still_open(document.errors, ledger),
        next_steps=tuple(step for step in document.next_steps if step not in answered),
        recovery=_offloaded_files(ledger),
    )


def with_statuses(document: SummaryDocument, stale: Collection[str]) -> SummaryDocument:
    """Return the document with a status for each changed file. A file in `stale` is marked as
    changed on disk. A file named by open work or an error is partial. A file named only by finished
    work is complete.
    """
    still_open = "\n".join(
        (*document.in_progress, *document.blocked, *document.next_steps, *document.errors)
    )
    done = "\n".join(document.done)

    def status(path: str) -> str:
        if path in stale:
            return "changed on disk since: read it"
        if _names(still_open, path):
            return "partial"
        return "complete" if _names(done, path) else ""

    rows = tuple(replace(row, status=status(row.path)) for row in document.modified)
    return replace(document, modified=rows)


def _names(text: str, path: str) -> bool:
    """Return True if a text contains the file's path or base name."""
    ends = "|".join(map(re.escape, {path, path.rpartition("/")[2]}))
    return re.search(rf"(?<![\w/-])(?:\./)?(?:{ends})(?![\w/-])", text) is not None


def answered_steps(steps: Sequence[str], ledger: Ledger) -> tuple[str, ...]:
    """Return the next steps that repeat an answered message. A step that also repeats an open
    message or an open item of the todo list is not answered.
    """
    open_texts = {comparable(t["content"]) for t in ledger.todos if t["status"] != "completed"}
    answered = set[str]()
    for message in ledger.messages:
        if message.is_attached or len(text := comparable(message.text)) < MIN_REPEATED_CHARS:
            continue
        (answered if message.state == "answered" else open_texts).add(text)
    answered -= open_texts
    return tuple(step for step in steps if any(text in comparable(step) for text in answered))


def document_from_ledger(ledger: Ledger, previous: SummaryDocument | None) -> SummaryDocument:
    """Make a summary without a model, merged with `previous`. It has the previous intent or else
    the user's first message, the todo list, the last command, failures and denied calls.
    """
    words = [(ref, text) for ref, text in ledger.typed_messages if text.strip()]
    earlier = previous or SummaryDocument()
    intent = earlier.intent or shorten_at_gap(words[0][1] if words else "", MAX_INTENT_CHARS)
    steps = {
        status: tuple(t["content"] for t in ledger.todos if t["status"] == status)
        for status in ("completed", "in_progress", "pending")
    }
    newest = next((m for m in reversed(ledger.messages) if not m.is_attached), None)
    task = newest.text if newest and newest.state != "answered" else ""
    made = SummaryDocument(
        phase=_last_command(ledger),
        done=steps["completed"],
        in_progress=steps["in_progress"],
        facts=tuple(
            SummaryFact(denial_fact(each, ledger)) for each in ledger.denials[-MAX_LISTED_ITEMS:]
        ),
        next_steps=steps["in_progress"] + steps["pending"]
        or ((f"Go on with: {shorten_at_gap(task, MAX_WORDS_CHARS)}",) if task else ()),
    )
    merged = merge(replace(earlier, intent=intent), made)
    return with_open_failures(with_ledger_facts(merged, ledger), ledger)


# Merging


def _is_unchanged(intent: str) -> bool:
    return not intent.strip() or _UNCHANGED.fullmatch(intent) is not None


def _union(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return the old items, followed by the new items that differ from them."""
    first: dict[str, str] = {}
    for text in (*old, *new):
        first.setdefault(comparable(text), text)
    return tuple(first.values())


def _updated(old: FileRow | None, new: FileRow) -> FileRow:
    if old is None:
        return new
    created = old.action == "created" and new.action == "modified"
    pieces = list(dict.fromkeys(_pieces(old.change) + _pieces(new.change)))
    if len(pieces) > MAX_CHANGE_PIECES:
        pieces = [pieces[0], *pieces[1 - MAX_CHANGE_PIECES :]]
    change = "; ".join(pieces) or new.change or old.change
    return FileRow(new.path, "created" if created else new.action, change)


def _pieces(change: str) -> list[str]:
    """Return the parts of a change's description, without the ledger's line counts."""
    return [p for p in change.split("; ") if p and not is_line_count(p)]


# From the ledger


def _change_text(said: str, fact: FileFact) -> str:
    lines = f"+{fact.added} −{fact.removed} lines " if fact.added or fact.removed else ""
    return "; ".join(_pieces(said)) or f"{lines}({fact.tool}, #{fact.ref})"


def _with_deleted_noted(text: str, deleted: Collection[str]) -> str:
    """Return an entry with a note about the deleted files in it. Denials get no note."""
    bare = _NOTED.sub("", text)
    if bare.startswith(DENIED):
        return bare
    gone = [path for path in dict.fromkeys(paths_in(bare)) if path.removeprefix("./") in deleted]
    return f"{bare} [{', '.join(gone)}: deleted since]" if gone else bare


def denial_fact(denial: str, ledger: Ledger) -> str:
    """Return the fact for a denied call, with the user's reason."""
    call = re.sub("^not authorised: ", "", denial, flags=re.IGNORECASE)
    return f"{DENIED}{call}{shorten_at_gap(ledger.reason_of(denial), MAX_WORDS_CHARS)}"


def _last_command(ledger: Ledger) -> str:
    if not ledger.commands:
        return ""
    last = ledger.commands[-1]
    end = "in the background" if last.exit_code is None else f"exit {last.exit_code}"
    command = shorten_at_gap(last.command, MAX_WORDS_CHARS)
    return f"{LAST_COMMAND_PREFIX} `{command}` ({end}, #{last.ref})"


def _offloaded_files(ledger: Ledger) -> tuple[str, ...]:
    """Return one line for each of the newest files with full results, and one for the number of
    older files.
    """
    rows = list(ledger.offloaded.items())
    older = len(rows) - MAX_LISTED_ITEMS
    more = (f"{older} older files in offloaded/",) if older > 0 else ()
    newest = (f"{path}: the whole result #{ref}" for path, ref in rows[-MAX_LISTED_ITEMS:])
    return (*more, *newest)
