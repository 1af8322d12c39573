"""Recovery: the state of a session at one of three levels, from its log alone, without a model.

Level 1 has the intent, the state of the work, the next steps, constraints and the newest user
message. Level 2 adds blockers, open errors, decisions and changed files. Level 3 adds files read,
failed commands, finished work, references and, if the disk is available, files that changed since.
The base is the newest readable summary, corrected from the ledger. Texts are cut to fit and marked
as cut; paths are never cut. A failed recovery is recorded with a flag for reviewers and replaced by
level 3.

An agent that takes over gets the intent of the session: the user's requests and the changes so far.
"""

from collections.abc import Iterable, Iterator, Mapping, Reversible, Sequence
from dataclasses import replace

from ...tools.system.phrasing import count_of, shorten
from ..context.tokens import estimate
from ..errors import SessionError
from ..lazy import dataclass
from ..session.entries import Entry, Note, Revert, Summary, User
from ..session.ledger import FileFact, Ledger
from ..session.since_point import list_stale_files
from .document import DENIED, SummaryDocument, fact_text
from .summary.merge import LAST_COMMAND_PREFIX, document_from_ledger
from .summary.user_messages import message_lines, rule_lines
from .summary.writer import document_of

RECOVERY_TOPIC = "recovery"  # of the note of a recovery that failed
LOSS_FLAG = "possible loss of data, to be reviewed"
MAX_NAMED_REFS = 20  # lost entries named to the model
LEVEL_TOKENS = {1: 100, 2: 500, 3: 2_000}  # limit in estimated tokens, by level
_MAX_ITEM_CHARS = (400, 240, 160, 110, 80, 60, 40, 25)  # limits of an item, tried in turn
_MAX_PATH_CHARS = 1_000  # a longer word is not a path
_UNCUT = 1_000  # factor of the item limit: nothing is cut
_FILES_PER_STEP = 6  # files added for each item of another section


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    items: Sequence[str]
    level: int  # lowest level that shows it
    length_factor: int = 1  # factor of the item limit
    step: int = 1  # items added per round


@dataclass(frozen=True, slots=True)
class RecoveredSession:
    """The state of a session as text."""

    level: int  # the level of the text
    text: str
    failure: str = ""  # why it is not the requested level


def recover_session(
    entries: Reversible[Entry], number: int, *, disk: bool = False, is_handed_over: bool = False
) -> RecoveredSession:
    """Return the session at level `number`, or at level 3 if that level is not possible. Level 3
    names files that changed, if `disk` is set. `is_handed_over`: see `recovery_text`. Raises
    SessionError if the log has no usable content.
    """
    ledger, summary = ledger_of(entries), newest_readable_summary(entries)
    handed = is_handed_over
    if number < 3 and (text := recovery_text(ledger, summary, number, is_handed_over=handed)):
        return RecoveredSession(number, text)
    changed = list_stale_files(ledger) if disk else ()
    text = recovery_text(ledger, summary, 3, changed, is_handed_over=handed)
    if not text:
        raise SessionError(
            "nothing can be recovered: the log has no readable messages, calls or summary",
            hint="`ctxagent doctor ID` checks a log.",
        )
    failure = f"level {number} cannot be made, level 3 can: the log does not say what was wanted"
    return RecoveredSession(3, text, failure if number < 3 else "")


def failure_note(why: str, refs: Sequence[int] = ()) -> Note:
    """Return the entry for a failed recovery. `refs` are the entries that may be lost."""
    return Note(topic=RECOVERY_TOPIC, text=why, data={"flag": LOSS_FLAG, "refs": list(refs)})


def recover_after(ledger: Ledger, summary: Summary, lost: Sequence[int]) -> list[Entry]:
    """Check the recovery after a summary, and return the entries to record. The list is empty, or
    has the failure and the session at level 3 if entries are lost or a level is not possible.
    """
    document = _current_document(ledger, summary)
    failed = [n for n in LEVEL_TOKENS if not _level_sections(document, ledger, n)]
    named = ", ".join(f"#{ref}" for ref in lost[:MAX_NAMED_REFS])
    problems = [f"cannot be read back as it was: {named}"] if lost else []
    problems += [f"level {number} cannot be made" for number in failed]
    if not problems:
        return []
    why = f"recovery after the summary failed: {'; '.join(problems)}"
    text = f"{why}. What this session says of itself:\n\n{recovery_text(ledger, summary, 3)}"
    return [User(content=text.strip(), source="environment"), failure_note(why, lost)]


def recovery_text(
    ledger: Ledger,
    summary: Summary | None,
    number: int,
    changed: Sequence[str] = (),
    *,
    is_handed_over: bool = False,
) -> str:
    """Return the session at level 1, 2 or 3, within the limit of LEVEL_TOKENS. `changed` are files
    that changed on disk since, for level 3. A text that is handed over to another session has no
    denied calls: the user said no to these calls, not to calls like them.

    Return "" if the level is not possible: levels 1 and 2 need an intent, level 3 any content.
    """
    document = _current_document(ledger, summary)
    if is_handed_over:
        facts = tuple(each for each in document.facts if not each.text.startswith(DENIED))
        document = replace(document, facts=facts)
    sections = _level_sections(document, ledger, number, changed)
    if not sections:
        return ""
    paths_with_spaces = [path for path in (*ledger.files, *ledger.read, *changed) if " " in path]
    for limit in _MAX_ITEM_CHARS:
        shown = _fill(sections, limit, LEVEL_TOKENS[number], paths_with_spaces)
        if all(shown):
            break
    return _render(sections, shown)


def _level_sections(
    document: SummaryDocument, ledger: Ledger, number: int, changed: Sequence[str] = ()
) -> list[_Section]:
    """Return the sections of a level that have items; [] if the level is not possible."""
    known = _sections(document, ledger, changed)
    sections = [section for section in known if section.items and section.level <= number]
    return [] if number < 3 and not document.intent else sections


def ledger_of(entries: Iterable[Entry]) -> Ledger:
    """Build a ledger from entries."""
    ledger = Ledger()
    for entry in entries:
        ledger.add(entry)
    return ledger


def newest_readable_summary(entries: Reversible[Entry]) -> Summary | None:
    """Return the newest readable summary that was not reverted. Entries before it are not read."""
    reverted = set[int]()
    for entry in reversed(entries):
        if isinstance(entry, Revert) and entry.seq not in reverted:
            reverted.add(entry.target)
        elif isinstance(entry, Summary) and entry.seq not in reverted and document_of(entry):
            return entry
    return None


def _current_document(ledger: Ledger, summary: Summary | None) -> SummaryDocument:
    """Return the summary updated from the ledger. The summary's state is kept where the ledger has
    nothing newer. The newest user message is not a next step, since it has a separate section.
    """
    previous = document_of(summary) or SummaryDocument()
    made = document_from_ledger(ledger, document_of(summary))
    listed = any(todo.get("status") != "completed" for todo in ledger.todos)
    earlier_phase = "" if previous.phase.startswith(LAST_COMMAND_PREFIX) else previous.phase
    return replace(
        made,
        phase="; ".join(filter(None, (earlier_phase, made.phase))),
        decisions=previous.decisions or made.decisions,
        done=made.done or previous.done,
        in_progress=made.in_progress or previous.in_progress,
        blocked=previous.blocked,
        next_steps=made.next_steps if listed else previous.next_steps,
    )


def _sections(
    document: SummaryDocument, ledger: Ledger, changed: Sequence[str]
) -> Iterator[_Section]:
    """Yield all sections, the most important first."""
    newest = [f"#{ref}: {text}" for ref, text in ledger.typed_messages[-1:]]
    state = [*document.in_progress, *filter(None, [document.phase])]
    yield _Section("Intent", [document.intent] if document.intent else [], 1, length_factor=2)
    yield _Section("Stands", state, 1)
    yield _Section("Next", document.next_steps, 1)  # the todo list, if there is one
    yield _Section("Rules", [*rule_lines(document.rules)], 1)
    yield _Section("Constraints", [*map(fact_text, document.facts)], 1)
    yield _Section("Newest words", newest, 1)
    earlier = [f"#{ref}: {text}" for ref, text in ledger.typed_messages[-2::-1]]
    yield _Section("Earlier messages of the user", earlier, 2)
    yield _Section("Blocked", document.blocked, 2)
    yield _Section("Open errors", document.errors, 2, length_factor=2)
    yield _Section("Decisions", document.decisions, 2)
    changes = [f"{row.path} ({row.action})" for row in document.modified]
    yield _Section("Files changed", changes, 2, length_factor=_UNCUT, step=_FILES_PER_STEP)
    yield _Section("Changed on disk since", changed, 3, length_factor=_UNCUT, step=_FILES_PER_STEP)
    read = [row.path for row in document.read]
    yield _Section("Files read", read, 3, length_factor=_UNCUT, step=_FILES_PER_STEP)
    yield _Section("Commands that failed", _failed(ledger), 3)
    yield _Section("Done", document.done, 3)
    yield _Section("What changed", [f"{r.path}: {r.change}" for r in document.modified], 3)
    pins = [f"#{ref}: {text}" for ref, text in ledger.pins.items()]
    yield _Section("Pinned", pins, 3)
    yield _Section("More is in", document.recovery, 3)


def _failed(ledger: Ledger) -> list[str]:
    """Return the failed commands, newest first, without repetitions."""
    still = {fact.command for fact in ledger.unresolved()}
    rows = {
        fact.command: f"`{fact.command}` (exit {fact.exit_code}, #{fact.ref}"
        f"{'' if fact.command in still else ', not since'})"
        for fact in reversed(ledger.commands)
        if fact.errors
    }
    return list(rows.values())


def _fill(
    sections: Sequence[_Section], limit: int, room: int, paths_with_spaces: Sequence[str]
) -> list[list[str]]:
    """Return the items of each section that fit. They are added in rounds, so that each section
    gets a share.
    """
    shown: list[list[str]] = [[] for _ in sections]
    full: set[int] = set()
    for _ in range(max(len(section.items) for section in sections)):
        for place, section in enumerate(sections):
            rest = section.items[len(shown[place]) :]
            for item in rest[: section.step if place not in full else 0]:
                shown[place].append(_short(item, limit * section.length_factor, paths_with_spaces))
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


def _short(text: str, limit: int, paths_with_spaces: Sequence[str]) -> str:
    """Cut a text to `limit` characters, between words and never inside a path."""
    text = text.strip()
    if len(text) <= limit:
        return text
    cut = _gap(text, limit + 1)
    if cut < 0:  # its first word is longer: whole, as it may be a path
        word = text.split(maxsplit=1)[0]
        cut = limit if len(word) > _MAX_PATH_CHARS else len(word)
    for path in paths_with_spaces:
        start = text.rfind(path, 0, cut + len(path))
        if 0 <= start < cut < start + len(path):
            cut = _gap(text, start) if _gap(text, start) > 0 else start + len(path)
    return text if cut >= len(text) else f"{text[:cut].rstrip()} …"


def _gap(text: str, end: int) -> int:
    """Return the position of the last blank before `end`; -1 if there is none."""
    return max(text.rfind(gap, 0, end) for gap in " \n\t")


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
