"""Probes: questions about facts that a summary must still answer, and the facts that it misses.

`choose_probes` chooses them from recorded facts, before the summary is read: all changed files that
are listed by name, and the most important other facts. The facts may take PROBED_SHARE of the
summary's cap. `is_answered` looks for a fact in a rendered summary. The fact of a failed probe is
added to its section, within the summary's cap. The answered probes are counted before and after.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, cast, get_args

from ....tools.system.phrasing import count_of
from ...context.items import Item
from ...context.tokens import estimate
from ...lazy import dataclass, regex
from ...session.ledger import FileAction, Ledger
from ..document import DENIED, FileRow, ReadRow, SummaryDocument, SummaryFact, UserRule, render
from ..summary.facts import whole_words
from ..summary.merge import denial_fact
from ..summary.open_failures import MAX_COMMAND_CHARS, error_line
from ..summary.request import MAX_PIN_TOKENS
from ..summary.shorten import FILE_TABLE_FACTOR, changed_file_rows, shorten_at_gap
from ..summary.standing import quoted_lines

ProbeKind = Literal["recall", "artifact", "continuation", "decision"]

PROBED_SHARE = 0.6  # of the cap; the rest is for the summary's own text
EMPTY_DOCUMENT_TOKENS = 120  # of a document without content
ITEM_FRAME_TOKENS = 4  # of the markup of an item
MIN_FACT_CHARS = 2
MAX_FACT_CHARS = 160
SEPARATELY_LIMITED = ("rules", "errors")  # have separate limits
IGNORED_FACT_ENDS = " .,;:"
MAX_ASKED_RULES = 8  # the user's newest rules
MAX_ASKED_DENIALS = 2
MAX_ASKED_DECISIONS = 4

_REFERENCE = regex(r"&#(\d{1,6});")
_LISTED_PATH = regex(r"^(\| |- )`([^`\n]*)`", re.MULTILINE)  # a path, as rendered
_ONE_WORD = regex(r"[\w\0/.@+~-]+")  # a path of plain characters, with NUL for blanks
_EXIT = regex(r"\bexit(?:ed|s)?(?: with)?(?: code| status)?[ :=]*(?=\d)", re.IGNORECASE)
_MARKS = str.maketrans("“”‘’", "\"\"''", "`*")


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that a summary must answer with `fact`, verbatim."""

    kind: ProbeKind
    question: str
    fact: str
    section: str  # the field of the document that `entry` is added to if the fact is missing
    ref: int | None  # seq of the entry with the fact
    entry: str  # text that contains the fact; for a path, its description

    @property
    def is_constraint(self) -> bool:
        return self.kind == "decision" and self.section in ("facts", "rules")


def choose_probes(
    evicted: Sequence[Item],
    ledger: Ledger,
    previous: SummaryDocument | None,
    cap_tokens: int,
    *,
    written: SummaryDocument | None = None,
    standing: str = "",
) -> list[Probe]:
    """Return the facts that a summary of `evicted` should contain, as probes, the most important
    first.

    `cap_tokens` is the summary's cap without the table of changed files, the user's rules and open
    command failures. Pinned items are not probed, since they stay in the context. Decisions that
    the merged document `written` dropped are not probed either. `standing` has the user's
    instructions for every summary.
    """
    changed = list(_changed_files(ledger, cap_tokens))
    room = int(PROBED_SHARE * (cap_tokens - EMPTY_DOCUMENT_TOKENS))
    evicted_seqs = {item.seq for item in evicted}
    rules = written.rules if written else previous.rules if previous else ()
    candidates: list[Iterator[Probe]] = [  # the most important sort first
        _intent(evicted_seqs, ledger),
        _errors(ledger),
        _constraints(rules, ledger),
        _asked_for(standing, evicted, (written or previous or SummaryDocument()).facts),
        _work(ledger),
        _decisions(previous, written),
        _read_files(evicted_seqs, ledger),
    ]
    paths = [probe.fact for probe in changed]
    return [*changed, *_fitting_probes([list(sort) for sort in candidates], room, paths, ledger)]


def _fitting_probes(
    candidates: Sequence[Sequence[Probe]],
    room: int,
    paths: Sequence[str],
    ledger: Ledger,
) -> list[Probe]:
    """Return the probes whose entries fit in `room`, in the order of the lists. The first probe of
    each list is tried, then the second of each, and so on. Facts that are contained in a path,
    another probe or a pin are skipped. Rules and errors do not count towards `room`.
    """
    facts = [
        *(path.casefold() for path in paths),
        *(normalized(t).casefold() for t in ledger.pins.values() if estimate(t) <= MAX_PIN_TOKENS),
    ]
    entries = set[str]()
    kept: list[list[Probe]] = [[] for _ in candidates]
    for rank in range(max(map(len, candidates), default=0)):
        for sort, chosen in zip(candidates, kept, strict=True):
            if rank >= len(sort):
                continue
            probe = sort[rank]
            fact = normalized(probe.fact).casefold().rstrip(IGNORED_FACT_ENDS)
            is_free = probe.entry in entries or probe.section in SEPARATELY_LIMITED
            price = 0 if is_free else estimate(probe.entry) + ITEM_FRAME_TOKENS
            if price > room or len(fact) < MIN_FACT_CHARS or fact in facts:
                continue
            words = whole_words(fact)
            if probe.kind != "artifact" and any(words.search(other) for other in facts):
                continue
            room -= price
            facts.append(fact)
            entries.add(probe.entry)
            chosen.append(probe)
    return [probe for chosen in kept for probe in chosen]


def _changed_files(ledger: Ledger, cap_tokens: int) -> Iterator[Probe]:
    files = ledger.files
    for row in changed_file_rows(files, FILE_TABLE_FACTOR * cap_tokens):
        if fact := files.get(row.path):
            question = f"Which files were {fact.action} in this session?"
            yield Probe("artifact", question, row.path, "modified", fact.ref, fact.action)


def _read_files(evicted_seqs: set[int], ledger: Ledger) -> Iterator[Probe]:
    for path, ref in [row for row in ledger.read.items() if row[1] in evicted_seqs][:-5:-1]:
        yield Probe(
            "artifact", "Which files were read last, and not changed?", path, "read", ref, f"#{ref}"
        )


def _intent(evicted_seqs: set[int], ledger: Ledger) -> Iterator[Probe]:
    for ref, text in ledger.typed_messages[:1]:
        if ref in evicted_seqs and (fact := first_line(text)):
            yield Probe("recall", "What did the user first ask for?", fact, "intent", ref, fact)


def _constraints(rules: Sequence[UserRule], ledger: Ledger) -> Iterator[Probe]:
    """Yield the newest denials, then the user's newest rules."""
    question = "What did the user rule or not authorise? Quote each."
    for denial in ledger.denials[: -MAX_ASKED_DENIALS - 1 : -1]:
        entry = denial_fact(denial, ledger)
        fact = first_line(entry.removeprefix(DENIED).removesuffix(ledger.reason_of(denial)))
        yield Probe("decision", question, fact, "facts", None, entry)
    for rule in rules[: -MAX_ASKED_RULES - 1 : -1]:
        if fact := first_line(rule.text):
            yield Probe("decision", question, fact, "rules", rule.ref, rule.text)


def _asked_for(
    standing: str, evicted: Sequence[Item], facts: Sequence[SummaryFact]
) -> Iterator[Probe]:
    """Yield what the user's instructions for every summary quote."""
    for kept in quoted_lines(standing, evicted, [fact.text for fact in facts]):
        line = first_line(kept.line)
        question = f"What does the record say with “{kept.quoted}”? Quote each line."
        fact = line if kept.is_mark else kept.quoted
        entry = line if fact in line else kept.quoted
        yield Probe("decision", question, fact, "facts", kept.ref or None, entry)


def _decisions(
    previous: SummaryDocument | None, written: SummaryDocument | None
) -> Iterator[Probe]:
    """Yield decisions of the previous summary, newest first."""
    remembered = previous.decisions if previous else ()
    holding = [text for text in remembered if written is None or text in written.decisions]
    for text in holding[: -MAX_ASKED_DECISIONS - 1 : -1]:
        fact = first_line(text)
        question = f"What was decided, and why: “{' '.join(fact.split()[:6])} …”?"
        yield Probe("decision", question, fact, "decisions", None, text)


def _work(ledger: Ledger) -> Iterator[Probe]:
    """Yield todo items in progress, then pending ones."""
    todos = [(t["status"], first_line(t["content"])) for t in ledger.todos]
    for fact in [text for status, text in todos if status == "in_progress"][:3]:
        question = "What is being worked on?"
        yield Probe("continuation", question, fact, "in_progress", None, fact)
    for fact in [text for status, text in todos if status == "pending"][:4]:
        question = "What should be done next?"
        yield Probe("continuation", question, fact, "next_steps", None, fact)


def _errors(ledger: Ledger) -> Iterator[Probe]:
    """Yield the error line and the exit code of each open command failure, newest first."""
    for fact in reversed(ledger.unresolved()):
        line, command = error_line(fact), shorten_at_gap(fact.command, MAX_COMMAND_CHARS)
        if line:
            question = f"Which error does `{command}` still give, exactly?"
            yield Probe("recall", question, line, "errors", fact.ref, line)
        if fact.exit_code is not None:
            code, question = (
                f"exit {fact.exit_code}",
                f"With which exit code does `{command}` fail?",
            )
            yield Probe("recall", question, code, "errors", fact.ref, code)


def first_line(text: str) -> str:
    """Return the first line of a text. A long line is cut between words."""
    line = text.strip().partition("\n")[0].strip()
    return shorten_at_gap(line, MAX_FACT_CHARS).removesuffix(" …")


def is_answered(probe: Probe, text: str) -> bool:
    """Return True if a rendered summary contains the fact verbatim. Blanks, quotation marks and
    emphasis are ignored, and in sentences also case. Paths, words and numbers must not be part of a
    longer one.
    """
    if probe.kind == "artifact":
        path = " ".join(probe.fact.split())
        forms = {path, path.replace(" ", "\0"), path.replace("\\|", "|")}
        return any(_is_named(form, text) for form in forms if form)
    fact = normalized(probe.fact).rstrip(IGNORED_FACT_ENDS)
    if " " in fact:
        return whole_words(fact.casefold()).search(_decoded(text).casefold()) is not None
    return bool(fact) and whole_words(fact).search(_decoded(text)) is not None


def normalized(text: str) -> str:
    """Normalize a text for comparison: no emphasis, single blanks, one form for exit codes."""
    return " ".join(_EXIT.sub("exit ", text.translate(_MARKS).replace("\\|", "|")).split())


def _is_named(path: str, text: str) -> bool:
    """Return True if a text contains a path that is not part of a longer path."""
    if path in _paths(text) or _ONE_WORD.fullmatch(path):
        return path in _paths(text)
    listed = _with_paths(text)
    return path in listed and _path(path).search(listed) is not None


@lru_cache(maxsize=8)
def _paths(text: str) -> frozenset[str]:
    """Return the parts of a text that may be paths: words, without a final full stop or a leading
    `./`, and items listed in backticks.
    """
    cells = (_REFERENCE.sub(_character, found[2]) for found in _LISTED_PATH.finditer(text))
    listed = {" ".join(cell.replace("\\|", "|").split()) for cell in cells}
    words = {word.removeprefix("./") for word in _ONE_WORD.findall(_with_paths(text))}
    ended = {word.rstrip(".") for word in words}
    return frozenset(listed | words | ended)


@lru_cache(maxsize=1_024)
def _path(path: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w\0/.@+~-])(?:\./)?{re.escape(path)}(?![\w\0/@+~-]|\.[\w/])")


@lru_cache(maxsize=1_024)
@lru_cache(maxsize=8)
def _decoded(text: str) -> str:
    return normalized(_REFERENCE.sub(_character, text))


@lru_cache(maxsize=8)
def _with_paths(text: str) -> str:
    """Return the text with NUL characters as blanks inside listed paths in backticks."""
    listed = _LISTED_PATH.sub(lambda m: f"{m[1]}`{chr(0).join(m[2].split())}`", text)
    listed = _REFERENCE.sub(_character, listed).replace("\\|", "|")
    return " ".join(listed.split())


def _character(reference: re.Match[str]) -> str:
    return chr(int(reference[1]))


PROBE_KINDS: tuple[ProbeKind, ...] = get_args(ProbeKind)

_REF = regex(r"(?:#\d+)?")

ItemPlace = tuple[str, int]  # a section, and the index of an item in it


@dataclass(frozen=True, slots=True)
class ProbeTally:
    """Counts of probes by kind."""

    asked: Mapping[ProbeKind, int]
    before: Mapping[ProbeKind, int]  # answered by the summary as written
    after: Mapping[ProbeKind, int]  # answered after missing facts were added

    def line(self) -> str:
        """Return a line for the report: how many facts were missing, added back and are still
        missing.
        """
        before, after, asked = (sum(n.values()) for n in (self.before, self.after, self.asked))
        if before == asked:
            return f"none of {count_of(asked, 'fact')} missing" if asked else ""
        parts = []
        if after > before:
            parts.append(f"{count_of(after - before, 'missing fact')} added back")
        if after < asked:
            parts.append(f"{count_of(asked - after, 'fact')} still missing")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            kind: {"asked": n, "before": self.before[kind], "after": self.after[kind]}
            for kind, n in self.asked.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ProbeTally":
        """Read the output of `to_json`. Raises KeyError, TypeError or ValueError."""
        rows = {kind: data[kind] for kind in PROBE_KINDS if kind in data}

        def column(name: str) -> dict[ProbeKind, int]:
            return {kind: int(row[name]) for kind, row in rows.items()}

        return cls(column("asked"), column("before"), column("after"))


def tally_probes(asked: Sequence[Probe], before: str, after: str) -> ProbeTally:
    """Count the probes answered by a summary as written (`before`) and as applied (`after`)."""
    kinds = [kind for kind in PROBE_KINDS if any(probe.kind == kind for probe in asked)]

    def count(text: str | None) -> dict[ProbeKind, int]:
        found = [probe.kind for probe in asked if text is None or is_answered(probe, text)]
        return {kind: found.count(kind) for kind in kinds}

    return ProbeTally(count(None), count(before), count(after))


def probed_facts_test(asked: Sequence[Probe]) -> Callable[[str], bool]:
    """Return a function that is True for a critical fact that a probe asks for."""
    about = [probe for probe in asked if probe.section == "facts"]
    return lambda fact: any(is_answered(probe, fact) for probe in about)


def add_missed_facts(
    document: SummaryDocument, asked: Sequence[Probe], cap_tokens: int
) -> SummaryDocument:
    """Return the document with its missing facts added verbatim, in at most `cap_tokens` when
    rendered. Return it unchanged if nothing can be added.

    `asked` has all probes; items that answer a probe stay. To make room, finished work and files
    read without a description are removed. For the intent, changed files and constraints,
    references and other files read are removed too. Facts that still do not fit are left out, the
    least important first. Rules and errors are not added here: other code adds them as far as they
    fit.
    """
    text = render(document)
    missed = [
        probe
        for probe in asked
        if probe.section not in SEPARATELY_LIMITED and not is_answered(probe, text)
    ]
    missed.sort(key=lambda probe: not _is_essential(probe))
    essential = sum(map(_is_essential, missed))
    spare = _unprobed_items(document, asked)
    minor = [place for place in spare if _is_minor(document, place)]
    spare = [*minor, *(place for place in spare if place not in set(minor))]

    def fits(count: int, gone: Sequence[ItemPlace]) -> bool:
        return estimate(render(_changed(document, gone, missed[:count]))) <= cap_tokens

    count, removable = len(missed), minor
    if not fits(count, minor):
        if not fits(essential, minor):
            count, removable = essential, spare
        count = _last_true(count, lambda n: fits(n, removable))
    if not count:
        return document
    removed = _first_true(len(removable), lambda n: fits(count, removable[:n]))
    return _changed(document, removable[:removed], missed[:count])


def _first_true(end: int, test: Callable[[int], bool]) -> int:
    """Return the first number below `end` that passes, else `end`. Later numbers must pass too."""
    return bisect_left(range(end), True, key=test)


def _last_true(end: int, test: Callable[[int], bool]) -> int:
    """Return the last number up to `end` that passes, else 0. All smaller numbers must pass too."""
    return bisect_left(range(1, end + 1), True, key=lambda n: not test(n))


def _is_essential(probe: Probe) -> bool:
    """Return True if a probe asks for the intent, a changed file or a constraint."""
    return probe.is_constraint or probe.section in ("intent", "modified")


def _unprobed_items(document: SummaryDocument, asked: Sequence[Probe]) -> list[ItemPlace]:
    """Return the files read, the finished work and the references that answer no probe. They are in
    this order of sections, and each section begins with its oldest item.
    """
    rows = {row.path for row in document.modified}
    guarding = [p for p in asked if p.section != "modified" or p.fact not in rows]

    def guarded(text: str) -> bool:
        return any(is_answered(probe, text) for probe in guarding)

    return [
        (name, index)
        for name in ("read", "done", "recovery")
        for index, item in enumerate(getattr(document, name))
        if not guarded(item.path if isinstance(item, ReadRow) else item)
    ]


def _is_minor(document: SummaryDocument, place: ItemPlace) -> bool:
    """Return True if an item is less critical than any probed fact."""
    name, index = place
    item = getattr(document, name)[index]
    if isinstance(item, ReadRow):
        return _REF.fullmatch(item.why) is not None
    return name == "done"


def _changed(
    document: SummaryDocument, gone: Collection[ItemPlace], missed: Iterable[Probe]
) -> SummaryDocument:
    """Return the document without the items `gone`, and with the entries of the `missed` probes
    added to their sections.
    """
    new: dict[str, dict[Any, None]] = {name: {} for name, _ in gone}
    for probe in missed:
        new.setdefault(probe.section, {})[_item(probe)] = None
    changed, places = dict[str, Any](), set(gone)
    for name, entries in new.items():
        before = getattr(document, name)
        if isinstance(before, str):
            changed[name] = "\n".join(filter(None, (before, *entries)))
        else:
            kept = (item for n, item in enumerate(before) if (name, n) not in places)
            changed[name] = (*kept, *entries)
    return replace(document, **changed)


def _item(probe: Probe) -> str | SummaryFact | FileRow | ReadRow:
    if probe.section == "modified":
        return FileRow(probe.fact, cast(FileAction, probe.entry))
    if probe.section == "facts":
        return SummaryFact(probe.entry, probe.ref or 0)
    return ReadRow(probe.fact, probe.entry) if probe.section == "read" else probe.entry
