"""The structured summary: merging, facts from the ledger, and a size that fits.

Facts come from records, prose from the model: `with_facts` puts right what a model remembers of
files, and `mechanical` makes a whole summary without one. `merge` follows S2's rules and `bounded`
S0's third principle, least critical first. The document itself is in `document.py`, what stands for
many of its items in `folding.py`.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..context.tokens import estimate
from ..record.ledger import CommandFact, FileFact, Ledger
from .document import Document, FileRow, ReadRow, missing, parse, render
from .drift.signs import go_on
from .folding import TABLE, fewer_facts, folded, standing, stands_for_many, weight

__all__ = [
    "Document",
    "FileRow",
    "ReadRow",
    "bounded",
    "mechanical",
    "merge",
    "missing",
    "parse",
    "render",
    "with_facts",
]

LAST = "the last command was"  # how a mechanical summary says where the work stands
PIECES = 4  # of what changed in one file: the first and the newest
MOST_INTENT = 2_000  # characters of the person's words that a mechanical summary takes over
MOST_WORDS = 400  # characters of each later thing they said
MOST_LISTED = 20  # failed commands, denials, offloaded files
TELLING = 10  # characters that an error must share with what is said to be resolved
CUTS = (1_000, 400, 160, 60)  # characters a text may keep, tried in turn
SHORT = 160  # characters of a fact, as its share is reckoned
SHORTEST = (240, 120, 60, 30, 10, 3, 1)  # characters of the intent, where nothing else is left
FACTS = 0.5  # of a summary, that facts may take before anything else goes for them
ROWS = (0.5, 0.25, 0.125, 0.0)  # of a summary, tried in turn: for rows of files that crowd it out

_UNCHANGED = re.compile(r"\W*(?:unchanged|no change|(?:the )?same(?: as before)?)\W*", re.I)
_COUNTED = re.compile(r"(?:\+\d+ −\d+ lines )?\(\w+, #\d+\)")
_RESOLVED = re.compile(r"\W*resolved:\W*(.*)", re.I | re.DOTALL)
_FAILED = re.compile(r"`.*?` failed \(exit [^)]*, #(\d+)\)", re.DOTALL)
_RULED = re.compile(r"(?:Not authorised|The person(?: \(#\d+\)| said)): ")


def merge(old: Document, new: Document, resolved: Iterable[str] = ()) -> Document:
    """Both summaries in one, by S2's "Merge Incrementally".

    The intent changes only when the scope did; files, decisions, facts and references are added or
    updated; the state and the next steps are the new ones alone. Errors are added, less those that
    `resolved` or a new line "Resolved: …" names.
    """
    modified = {row.path: row for row in old.modified}
    for row in new.modified:
        modified[row.path] = _updated(modified.get(row.path), row)
    read = {row.path: row for row in old.read}
    for seen in new.read:
        before = read.pop(seen.path, seen)
        read[seen.path] = seen if seen.why else before
    return Document(
        intent=old.intent if _is_unchanged(new.intent) else new.intent,
        modified=tuple(modified.values()),
        read=tuple(row for path, row in read.items() if path not in modified),
        decisions=_union(old.decisions, new.decisions),
        phase=new.phase,
        done=new.done,
        in_progress=new.in_progress,
        blocked=new.blocked,
        facts=_union(old.facts, new.facts),
        errors=_open_errors(old.errors, new.errors, resolved),
        next_steps=new.next_steps,
        recovery=_union(old.recovery, new.recovery),
    )


def with_facts(document: Document, ledger: Ledger, room: int | None = None) -> Document:
    """The document with files and references as the ledger has them; where `room` is given, the
    table of changed files in about so many tokens.

    What a model said of a file is kept for a path the ledger knows, else its lines are counted.
    Failed commands that the ledger once named go when they have passed since.
    """
    said = (row for row in document.modified if not stands_for_many(row))
    changes = {ledger.shown(row.path): row.change for row in said}
    reasons = {ledger.shown(row.path): row.why for row in document.read}
    failing = {fact.ref for fact in ledger.unresolved()}
    files = ledger.files
    rows = standing(files, room)
    return replace(
        document,
        modified=tuple(
            replace(row, change=_change(changes.get(row.path, ""), files[row.path]))
            if row.path in files
            else row
            for row in rows
        ),
        read=tuple(
            ReadRow(path, reasons.get(path) or f"#{ref}") for path, ref in ledger.read.items()
        ),
        errors=tuple(e for e in document.errors if _failed_ref(e) in {None, *failing}),
        recovery=_recovery(ledger),
    )


def mechanical(ledger: Ledger, span_words: Sequence[str], previous: Document | None) -> Document:
    """A summary made without a model: the person's words verbatim, the todo list, the last
    command, what failed and what was not authorised. `span_words` are the person's in the span
    that the summary stands for."""
    said = [text for _, text in ledger.words] or list(span_words)
    first = next((text for text in said if text.strip()), "")
    earlier = previous or Document()
    intent = earlier.intent or _short(first, MOST_INTENT)
    later = [t for t in span_words if t.strip() and t != first and not go_on(t)]
    steps = {
        status: tuple(t["content"] for t in ledger.todos if t["status"] == status)
        for status in ("completed", "in_progress", "pending")
    }
    newest = (later or [first])[-1]
    onwards = (f"Go on with: {_short(newest, MOST_WORDS)}",) if newest else ()
    made = Document(
        decisions=tuple(f"The person said: {_short(text, MOST_WORDS)}" for text in later),
        phase=_last_command(ledger),
        done=steps["completed"],
        in_progress=steps["in_progress"],
        facts=tuple(
            f"Not authorised: {re.sub('^not authorised: ', '', denial, flags=re.I)}"
            for denial in ledger.denials[-MOST_LISTED:]
        ),
        errors=tuple(_failure(fact) for fact in ledger.unresolved()[-MOST_LISTED:]),
        next_steps=steps["in_progress"] + steps["pending"] or onwards,
    )
    return with_facts(merge(replace(earlier, intent=intent), made), ledger)


def bounded(
    document: Document, cap_tokens: int, asked: Callable[[str], bool] = lambda fact: False
) -> Document:
    """The document, rendered in at most `cap_tokens` estimated tokens, from 200 on.

    The least critical goes first, of each section the oldest: files read, what is done, counts of
    lines, resolved errors, other errors, references, decisions; then long texts are cut, the intent
    least. Facts that neither are `asked` for nor say what the person ruled may take their share;
    only where all that is not enough do more of them go, and changed files stand by folder.
    """

    def fits(candidate: Document) -> bool:
        return estimate(render(candidate)) <= cap_tokens

    def stays(fact: str) -> bool:
        return _RULED.match(fact) is not None or asked(fact)

    def shared(candidate: Document) -> bool:
        most = FACTS * max(cap_tokens - weight(document.modified), cap_tokens / (TABLE + 1))
        return estimate("\n".join(_short(text, SHORT) for text in candidate.facts)) <= most

    if fits(document):
        return document
    document = fewer_facts(document, stays, shared)
    document = replace(document, errors=tuple(sorted(document.errors, key=_is_open)))
    for name in ("read", "done", "modified", "errors", "recovery", "decisions"):
        document = _without_oldest(document, name, fits)
        if fits(document):
            return document
    for limit in CUTS:
        document = _cut(document, limit)
        if fits(document):
            return document
    return _least(fewer_facts(document, stays, fits), cap_tokens, fits)


# Merging


def _is_unchanged(intent: str) -> bool:
    return not intent.strip() or _UNCHANGED.fullmatch(intent) is not None


def _union(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """The old items, then those of the new that say something else."""
    first: dict[str, str] = {}
    for text in (*old, *new):
        first.setdefault(_key(text), text)
    return tuple(first.values())


def _key(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _updated(old: FileRow | None, new: FileRow) -> FileRow:
    if old is None:
        return new
    created = old.action == "created" and new.action == "modified"
    pieces = list(dict.fromkeys(_pieces(old.change) + _pieces(new.change)))
    if len(pieces) > PIECES:
        pieces = [pieces[0], *pieces[1 - PIECES :]]
    change = "; ".join(pieces) or new.change or old.change
    return FileRow(new.path, "created" if created else new.action, change)


def _pieces(change: str) -> list[str]:
    """What a model said of a change, without the ledger's count of lines."""
    return [p for p in change.split("; ") if p and not _COUNTED.fullmatch(p)]


def _open_errors(
    old: Sequence[str], new: Sequence[str], resolved: Iterable[str]
) -> tuple[str, ...]:
    said = [found[1] for error in new if (found := _RESOLVED.fullmatch(error))]
    gone = [_key(text) for text in (*resolved, *said) if text.strip()]
    return tuple(
        error
        for error in _union(old, new)
        if _is_open(error) and not any(_same(_key(error), key) for key in gone)
    )


def _is_open(error: str) -> bool:
    return _RESOLVED.fullmatch(error) is None


def _same(error: str, named: str) -> bool:
    """Whether an error is the one named: equal, or one of them a telling part of the other."""
    short, long = sorted((error, named), key=len)
    return error == named or (len(short) >= TELLING and short in long)


# From the ledger


def _change(said: str, fact: FileFact) -> str:
    lines = f"+{fact.added} −{fact.removed} lines " if fact.added or fact.removed else ""
    return "; ".join(_pieces(said)) or f"{lines}({fact.tool}, #{fact.ref})"


def _failed_ref(error: str) -> int | None:
    """The ref of the failed command in a line of the ledger's making, None for any other."""
    found = _FAILED.match(error)
    return int(found[1]) if found else None


def _failure(fact: CommandFact) -> str:
    command = _short(fact.command, MOST_WORDS)
    head = f"`{command}` failed (exit {fact.exit_code}, #{fact.ref})"
    return "\n".join([f"{head}:", *fact.errors]) if fact.errors else head


def _last_command(ledger: Ledger) -> str:
    if not ledger.commands:
        return ""
    last = ledger.commands[-1]
    end = "in the background" if last.exit_code is None else f"exit {last.exit_code}"
    return f"{LAST} `{_short(last.command, MOST_WORDS)}` ({end}, #{last.ref})"


def _recovery(ledger: Ledger) -> tuple[str, ...]:
    """The newest files that hold whole results, and how many older ones there are."""
    rows = list(ledger.offloaded.items())
    older = len(rows) - MOST_LISTED
    more = (f"{older} older files in offloaded/",) if older > 0 else ()
    newest = (f"{path}: the whole result #{ref}" for path, ref in rows[-MOST_LISTED:])
    return (*more, *newest)


# Fitting


def _without_oldest(document: Document, name: str, fits: Callable[[Document], bool]) -> Document:
    """The document without as many of a section's oldest items as need to go; without any, if
    that is still too much. Of changed files only the counts of lines go."""
    items: tuple[Any, ...] = getattr(document, name)

    def rest(count: int) -> Document:
        bare = map(_uncounted, items[:count]) if name == "modified" else ()
        changed: dict[str, Any] = {name: (*bare, *items[count:])}
        return replace(document, **changed)

    return rest(bisect_left(range(len(items)), True, key=lambda count: fits(rest(count))))


def _uncounted(row: FileRow) -> FileRow:
    return replace(row, change="") if _COUNTED.fullmatch(row.change) else row


def _without_last(
    document: Document, name: str, least: int, fits: Callable[[Document], bool]
) -> Document:
    """As `_without_oldest`, for a section whose first items matter most, so many of which stay."""
    items: tuple[str, ...] = getattr(document, name)

    def rest(count: int) -> Document:
        changed: dict[str, Any] = {name: items[: len(items) - count]}
        return replace(document, **changed)

    most = max(0, len(items) - least)
    return rest(bisect_left(range(most), True, key=lambda count: fits(rest(count))))


def _least(document: Document, cap_tokens: int, fits: Callable[[Document], bool]) -> Document:
    """The document with ever less of what is critical, until it fits."""
    rows = document.modified
    ranks = [(place,) for place in range(len(rows))]
    for share in ROWS:
        if fits(document):
            return document
        document = replace(document, modified=folded(rows, ranks, int(share * cap_tokens)))
    for name, least in (("blocked", 0), ("in_progress", 0), ("next_steps", 1)):
        document = _without_last(document, name, least, fits)
    document = fewer_facts(document, lambda fact: False, fits)
    if not fits(document):
        document = replace(document, phase="", facts=(), next_steps=())
    for limit in SHORTEST:
        if fits(document):
            break
        document = replace(document, intent=_short(document.intent, limit))
    return document


def _cut(document: Document, limit: int) -> Document:
    def each(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_short(text, limit) for text in texts)

    return replace(
        document,
        intent=_short(document.intent, 4 * limit),
        modified=tuple(replace(r, change=_short(r.change, limit)) for r in document.modified),
        phase=_short(document.phase, limit),
        in_progress=each(document.in_progress),
        blocked=each(document.blocked),
        facts=each(document.facts),
        next_steps=each(document.next_steps),
    )


def _short(text: str, limit: int) -> str:
    """The text's beginning, cut in a gap between words where there is one: a path is not cut."""
    if len(text) <= limit:
        return text
    gap = re.match(r".*\s", text[: limit + 1], re.DOTALL)
    return f"{text[: gap.end() if gap else limit].rstrip()} …"
