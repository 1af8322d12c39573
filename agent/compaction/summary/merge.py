"""The structured summary: merge two of them, and put its facts right from the ledger.

Facts come from records, prose from the model: `with_ledger_facts` corrects what a model remembers
of files, and `document_from_ledger` makes a whole summary without a model.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...session.ledger import CommandFact, FileFact, Ledger
from ..document import FileRow, ReadRow, SummaryDocument
from ..language.signs import paths_in, says_go_on
from .resolved_errors import comparable, names_error, resolved_error, says_what_passed
from .shorten import (
    changed_file_rows,
    is_line_count,
    shorten_at_gap,
    stands_for_many,
)
from .supersede import replaced_by_order, with_standing, without_superseded

LAST_COMMAND_PREFIX = "the last command was"  # how a summary without a model says the phase
MAX_CHANGE_PIECES = 4  # of what is said of one file: the first and the newest
MAX_INTENT_CHARS = 2_000  # of the person's words that a summary without a model takes over
MAX_WORDS_CHARS = 400  # of each later thing they said
MAX_LISTED_ITEMS = 20  # failed commands, denials, offloaded files

_UNCHANGED = re.compile(r"\W*(?:unchanged|no change|(?:the )?same(?: as before)?)\W*", re.I)
_READ_REF = re.compile(r"#\d+")
_NOTED = re.compile(r" \[[^\[\]]*: deleted since\]$")
_SAYS_GONE = re.compile(r"\b(?:delet|remov|renam|mov|replac|dropp?|no longer)", re.IGNORECASE)
_FAILED = re.compile(r"`.*?` failed \(exit [^)]*, #(\d+)\)", re.DOTALL)


def merge(old: SummaryDocument, new: SummaryDocument) -> SummaryDocument:
    """Merge the new summary into the old one.

    The intent changes only when the scope did; files, decisions, facts and references are added or
    updated, less those that a new one replaces. The phase, what is in progress and the next steps
    are the new ones alone, less what is done. What was done stays done, and what was blocked stays
    blocked until it is said to be gone. Errors are added, less those that a new line "Resolved: …"
    names.
    """
    old = without_superseded(old, replaced_by_order(old, new))
    done = with_standing("done", old.done, new.done)
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
        modified=tuple(modified.values()),
        read=tuple(row for path, row in read.items() if path not in modified),
        decisions=_union(old.decisions, new.decisions),
        done=done,
        in_progress=tuple(text for text in new.in_progress if comparable(text) not in ended),
        blocked=with_standing("blocked", old.blocked, new.blocked),
        next_steps=tuple(text for text in new.next_steps if comparable(text) not in ended),
        facts=_union(old.facts, new.facts),
        errors=_open_errors(old.errors, new.errors),
        recovery=_union(old.recovery, new.recovery),
    )


def with_ledger_facts(
    document: SummaryDocument, ledger: Ledger, room: int | None = None
) -> SummaryDocument:
    """Return the document with files and references as the ledger has them; where `room` is given,
    with the table of changed files in about so many tokens.

    What a model said of a file is kept for a path that the ledger knows, else its changed lines are
    counted. Errors that the ledger once named, or that quote what it knows, go once they are
    resolved. Decisions and facts that name a file which is deleted say so.
    """
    named = (row for row in document.modified if not stands_for_many(row))
    changes = {ledger.display_path(row.path): row.change for row in named}
    reasons = {
        ledger.display_path(row.path): row.why
        for row in document.read
        if not _READ_REF.fullmatch(row.why)  # the ref may be an older one
    }
    failing = {fact.ref for fact in ledger.unresolved()}
    files = ledger.files
    rows = changed_file_rows(files, room)
    deleted = {path for path, fact in files.items() if fact.action == "deleted"}
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
        facts=tuple(_with_deleted_noted(text, deleted) for text in document.facts),
        errors=tuple(
            error
            for error in document.errors
            if _failed_ref(error) in failing
            or (_failed_ref(error) is None and not says_what_passed(error, ledger))
        ),
        recovery=_offloaded_files(ledger),
    )


def with_statuses(document: SummaryDocument, stale: Collection[str]) -> SummaryDocument:
    """Return the document with the status of each changed file. What differs on disk (`stale`) says
    so, since the code comes before every record of it; else a file is partial that open work or an
    error names, and complete that only finished work names."""
    still_open = "\n".join(
        (*document.in_progress, *document.blocked, *document.next_steps, *document.errors)
    )
    done = "\n".join(document.done)

    def status(path: str) -> str:
        if path in stale:
            return "changed on disk since: Read it"
        if _names(still_open, path):
            return "partial"
        return "complete" if _names(done, path) else ""

    rows = tuple(replace(row, status=status(row.path)) for row in document.modified)
    return replace(document, modified=rows)


def _names(text: str, path: str) -> bool:
    """Return whether a text names a file, by its path or by its name."""
    ends = "|".join(map(re.escape, {path, path.rpartition("/")[2]}))
    return re.search(rf"(?<![\w/-])(?:\./)?(?:{ends})(?![\w/-])", text) is not None


def document_from_ledger(
    ledger: Ledger, span_words: Sequence[str], previous: SummaryDocument | None
) -> SummaryDocument:
    """Make a summary without a model: the person's words verbatim, the todo list, the last command,
    what failed and what was not authorised. `span_words` are the person's words in the span that
    the summary stands for."""
    words = [text for _, text in ledger.words] or list(span_words)
    first = next((text for text in words if text.strip()), "")
    earlier = previous or SummaryDocument()
    intent = earlier.intent or shorten_at_gap(first, MAX_INTENT_CHARS)
    later = [t for t in span_words if t.strip() and t != first and not says_go_on(t)]
    steps = {
        status: tuple(t["content"] for t in ledger.todos if t["status"] == status)
        for status in ("completed", "in_progress", "pending")
    }
    newest = shorten_at_gap((later or [first])[-1], MAX_WORDS_CHARS)
    made = SummaryDocument(
        decisions=tuple(
            f"The person said: {shorten_at_gap(text, MAX_WORDS_CHARS)}" for text in later
        ),
        phase=_last_command(ledger),
        done=steps["completed"],
        in_progress=steps["in_progress"],
        facts=tuple(
            f"Not authorised: {re.sub('^not authorised: ', '', denial, flags=re.I)}"
            + shorten_at_gap(ledger.reason_of(denial), MAX_WORDS_CHARS)
            for denial in ledger.denials[-MAX_LISTED_ITEMS:]
        ),
        errors=tuple(_failed_command(fact) for fact in ledger.unresolved()[-MAX_LISTED_ITEMS:]),
        next_steps=steps["in_progress"] + steps["pending"]
        or ((f"Go on with: {newest}",) if newest else ()),
    )
    return with_ledger_facts(merge(replace(earlier, intent=intent), made), ledger)


# Merging


def _is_unchanged(intent: str) -> bool:
    return not intent.strip() or _UNCHANGED.fullmatch(intent) is not None


def _union(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return the old items, then the new ones that say something else."""
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
    """Return what a model said of a change, without the ledger's count of lines."""
    return [p for p in change.split("; ") if p and not is_line_count(p)]


def _open_errors(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    resolved = [text for text in map(resolved_error, new) if text]
    return tuple(
        error
        for error in _union(old, new)
        if resolved_error(error) is None and not any(names_error(text, error) for text in resolved)
    )


# From the ledger


def _change_text(said: str, fact: FileFact) -> str:
    lines = f"+{fact.added} −{fact.removed} lines " if fact.added or fact.removed else ""
    return "; ".join(_pieces(said)) or f"{lines}({fact.tool}, #{fact.ref})"


def _with_deleted_noted(text: str, deleted: Collection[str]) -> str:
    """Return an entry with a note of each deleted file that it names, unless it says so itself or
    is in the person's words."""
    bare = _NOTED.sub("", text)
    if bare.startswith(("The person", "Not authorised")) or _SAYS_GONE.search(bare):
        return bare
    gone = [path for path in dict.fromkeys(paths_in(bare)) if path.removeprefix("./") in deleted]
    return f"{bare} [{', '.join(gone)}: deleted since]" if gone else bare


def _failed_ref(error: str) -> int | None:
    """Return the ref in a line of `_failed_command`; None for any other line."""
    found = _FAILED.match(error)
    return int(found[1]) if found else None


def _failed_command(fact: CommandFact) -> str:
    command = shorten_at_gap(fact.command, MAX_WORDS_CHARS)
    head = f"`{command}` failed (exit {fact.exit_code}, #{fact.ref})"
    return "\n".join([f"{head}:", *fact.errors]) if fact.errors else head


def _last_command(ledger: Ledger) -> str:
    if not ledger.commands:
        return ""
    last = ledger.commands[-1]
    end = "in the background" if last.exit_code is None else f"exit {last.exit_code}"
    command = shorten_at_gap(last.command, MAX_WORDS_CHARS)
    return f"{LAST_COMMAND_PREFIX} `{command}` ({end}, #{last.ref})"


def _offloaded_files(ledger: Ledger) -> tuple[str, ...]:
    """Return lines for the newest files that hold whole results, and for the number of others."""
    rows = list(ledger.offloaded.items())
    older = len(rows) - MAX_LISTED_ITEMS
    more = (f"{older} older files in offloaded/",) if older > 0 else ()
    newest = (f"{path}: the whole result #{ref}" for path, ref in rows[-MAX_LISTED_ITEMS:])
    return (*more, *newest)
