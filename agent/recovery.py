"""Recovery: how a session stands, told without a model from its log alone, at S3's three levels.

Level 1 is the intent, where it stands, what is next, constraints and the person's newest words;
level 2 adds what blocks it, open errors, decisions and the files changed; level 3 adds what was
read, what failed on the way, what is done and where to read on, and, where the disk is at hand,
which files are no longer as the session knew them. The newest summary that can be read is the base,
and the ledger puts it right. Texts are cut to fit and say so; a path never is.
"""

from collections.abc import Iterable, Iterator, Reversible, Sequence
from dataclasses import dataclass, replace

from .compaction.summary import LAST, Document, mechanical
from .compaction.verify.evidence import constraints
from .compaction.writer import document_of
from .context.tokens import estimate
from .errors import SessionError
from .record.entries import Entry, Summary, taken_back
from .record.ledger import Ledger
from .record.stale import stale

MOST_STATED = 20
SIZES = {1: 100, 2: 500, 3: 2_000}  # estimated tokens at most (S3 "Recovery Guarantee")
_CUTS = (400, 240, 160, 110, 80, 60, 40, 25)  # characters a text may keep, tried in turn
_LONGEST = 1_000  # characters of a word that may be a path
_WHOLE = 1_000  # so many times longer, nothing is cut
_FILES = 6  # files listed for each item of another section


@dataclass(frozen=True, slots=True)
class _Section:
    """`longer`: times the length that others may have; `step`: items for one of the others'."""

    title: str
    items: Sequence[str]
    level: int
    longer: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class Recovered:
    """`level` is the one that `text` was made at; `failure` says why that is not the one asked
    for, or ""."""

    level: int
    text: str
    failure: str = ""


def recovered(entries: Reversible[Entry], number: int, *, disk: bool = False) -> Recovered:
    """The session at a level; at level 3 where the one asked for cannot be made (S3 "Recovery
    Failure"), which then also tells of the `disk`. Raises SessionError when there is nothing to
    tell."""
    if number < 3 and (text := level(entries, number)):
        return Recovered(number, text)
    if text := level(entries, 3, stale(_folded(entries)) if disk else ()):
        if number == 3:
            return Recovered(3, text)
        failure = (
            f"level {number} cannot be made, level 3 can: the log does not say what was wanted"
        )
        return Recovered(3, text, failure)
    raise SessionError(
        "nothing can be recovered: the log has no words, calls or summary that can be read",
        hint="`ctxagent doctor ID` checks a log.",
    )


def level(entries: Reversible[Entry], number: int, changed: Sequence[str] = ()) -> str:
    """The session at level 1, 2 or 3, in at most so many tokens as `SIZES` says. `changed` are
    files that level 3 is to name as changed on disk since.

    "" when it cannot be made: levels 1 and 2 without anybody's intent in the log, level 3 with
    nothing to tell.
    """
    return told_of(_folded(entries), _newest(entries), number, changed)


def told_of(
    ledger: Ledger, summary: Summary | None, number: int, changed: Sequence[str] = ()
) -> str:
    """As `level`, of a session whose ledger and newest summary are known."""
    document = _document(ledger, summary)
    told = _sections(document, ledger, changed)
    sections = [section for section in told if section.items and section.level <= number]
    if not sections or (number < 3 and not document.intent):
        return ""
    spaced = [path for path in (*ledger.files, *ledger.read, *changed) if " " in path]
    for limit in _CUTS:
        shown = _fill(sections, limit, SIZES[number], spaced)
        if all(shown):
            break
    return _render(sections, shown)


def _folded(entries: Iterable[Entry]) -> Ledger:
    ledger = Ledger()
    for entry in entries:
        ledger.add(entry)
    return ledger


def _newest(entries: Reversible[Entry]) -> Summary | None:
    """The newest summary that stands and can be read."""
    reverted = taken_back(entries)
    for entry in reversed(entries):
        if isinstance(entry, Summary) and entry.seq not in reverted and document_of(entry):
            return entry
    return None


def _document(ledger: Ledger, summary: Summary | None) -> Document:
    """The summary, with what was recorded since."""
    previous = document_of(summary)
    if summary is None or previous is None:
        made = mechanical(ledger, [text for _, text in ledger.words], None)
        return _brought_up(Document(), made, ledger)
    since = [text for ref, text in ledger.words if ref >= summary.keep_from]
    return _brought_up(previous, mechanical(ledger, since, previous), ledger)


def _brought_up(previous: Document, made: Document, ledger: Ledger) -> Document:
    """A mechanical document with the state as the summary had it, where no record is newer. The
    newest words are told by themselves, so they are not the next step."""
    listed = any(todo.get("status") != "completed" for todo in ledger.todos)
    stood = "" if previous.phase.startswith(LAST) else previous.phase
    return replace(
        made,
        phase="; ".join(filter(None, (stood, made.phase))),
        decisions=previous.decisions or made.decisions,
        facts=tuple(dict.fromkeys([*made.facts, *_stated(ledger)])),
        done=made.done or previous.done,
        in_progress=made.in_progress or previous.in_progress,
        blocked=previous.blocked,
        next_steps=made.next_steps if listed else previous.next_steps,
    )


def _stated(ledger: Ledger) -> list[str]:
    """What the person ruled out, in their own words, the strict first; the newest few."""
    stated = [
        (rank, -ref, text) for ref, words in ledger.words for rank, text in constraints(words)
    ]
    return [text for _, _, text in sorted(stated)[:MOST_STATED]]


def _sections(document: Document, ledger: Ledger, changed: Sequence[str]) -> Iterator[_Section]:
    """All that there is to tell, in the order in which it is told and of what goes first."""
    newest = [f"#{ref}: {text}" for ref, text in ledger.words[-1:]]
    stands = [*document.in_progress, *filter(None, [document.phase])]
    yield _Section("Intent", [document.intent] if document.intent else [], 1, longer=2)
    yield _Section("Stands", stands, 1)
    yield _Section("Next", document.next_steps, 1)  # the list of things to do, if there is one
    yield _Section("Constraints", document.facts, 1)
    yield _Section("Newest words", newest, 1)
    yield _Section("Blocked", document.blocked, 2)
    yield _Section("Open errors", document.errors, 2, longer=2)
    yield _Section("Decisions", document.decisions, 2)
    changes = [f"{row.path} ({row.action})" for row in document.modified]
    yield _Section("Files changed", changes, 2, longer=_WHOLE, step=_FILES)
    yield _Section("Changed on disk since", changed, 3, longer=_WHOLE, step=_FILES)
    read = [row.path for row in document.read]
    yield _Section("Files read", read, 3, longer=_WHOLE, step=_FILES)
    yield _Section("Commands that failed", _failed(ledger), 3)
    yield _Section("Done", document.done, 3)
    yield _Section("What changed", [f"{r.path}: {r.change}" for r in document.modified], 3)
    pins = [f"#{ref}: {text}" for ref, text in ledger.pins.items()]
    yield _Section("Pinned", pins, 3)
    yield _Section("Read on with Recall", document.recovery, 3)


def _failed(ledger: Ledger) -> list[str]:
    """Commands that failed, the newest first, each once."""
    still = {fact.command for fact in ledger.unresolved()}
    rows = {
        fact.command: f"`{fact.command}` (exit {fact.exit_code}, #{fact.ref}"
        f"{'' if fact.command in still else ', not since'})"
        for fact in reversed(ledger.commands)
        if fact.errors
    }
    return list(rows.values())


def _fill(
    sections: Sequence[_Section], limit: int, room: int, spaced: Sequence[str]
) -> list[list[str]]:
    """As many items of each section as fit, in rounds, so that each section gets its share."""
    shown: list[list[str]] = [[] for _ in sections]
    full: set[int] = set()
    for _ in range(max(len(section.items) for section in sections)):
        for place, section in enumerate(sections):
            rest = section.items[len(shown[place]) :]
            for item in rest[: section.step if place not in full else 0]:
                shown[place].append(_short(item, limit * section.longer, spaced))
                if estimate(_render(sections, shown)) > room:
                    shown[place].pop()
                    full.add(place)
                    break
        if len(full) == len(sections):
            break
    return shown


def _render(sections: Sequence[_Section], shown: Sequence[Sequence[str]]) -> str:
    lines: list[str] = []
    for section, items in zip(sections, shown, strict=True):
        texts = [item.replace("\n", "\n  ") for item in items]
        left = len(section.items) - len(items)
        more = [f"({left:,} more)"] if left and items else []
        if len(section.items) == 1 or section.level == 1:
            lines += [f"{section.title}: {' · '.join([*texts, *more])}"] if items else []
        elif items:
            lines += [f"{section.title}:", *(f"- {text}" for text in (*texts, *more))]
    return "\n".join(lines)


def _short(text: str, limit: int, spaced: Sequence[str]) -> str:
    """The beginning of a text, cut between words and never within a path."""
    text = text.strip()
    if len(text) <= limit:
        return text
    cut = _gap(text, limit + 1)
    if cut < 0:  # its first word is longer: whole, as it may be a path
        word = text.split(maxsplit=1)[0]
        cut = limit if len(word) > _LONGEST else len(word)
    for path in spaced:
        start = text.rfind(path, 0, cut + len(path))
        if 0 <= start < cut < start + len(path):
            cut = _gap(text, start) if _gap(text, start) > 0 else start + len(path)
    return text if cut >= len(text) else f"{text[:cut].rstrip()} …"


def _gap(text: str, end: int) -> int:
    """The last gap between words before a place; -1 without one."""
    return max(text.rfind(gap, 0, end) for gap in " \n\t")
