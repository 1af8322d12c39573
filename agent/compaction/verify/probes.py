"""Probes: questions about facts that a summary must still answer.

`choose_probes` takes them from the records alone, before any summary is looked at: every changed
file that has room by its name, and as much else as is worth its place. A summary has a cap, so what
may be asked has one too: PROBED_SHARE of it, the most important of each sort first. `is_answered`
looks a fact up in a rendered summary.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ...context.tokens import estimate
from ...context.view import Item
from ...session.ledger import CommandFact, Ledger
from ..document import SummaryDocument
from ..language import evidence
from ..language.rules import PersonRule, changes_value, rules_in, telling_part
from ..summary.request import MAX_PIN_TOKENS
from ..summary.rulings import rule_line, rulings_of
from ..summary.shorten import FILE_TABLE_FACTOR, changed_file_rows, shorten_at_gap
from ..summary.supersede import replaces_decision

ProbeKind = Literal["recall", "artifact", "continuation", "decision"]

PROBED_SHARE = 0.6  # of the cap: the rest is for the summary's own words
EMPTY_DOCUMENT_TOKENS = 120  # of a document without content
ITEM_FRAME_TOKENS = 4  # of what stands around an item
MIN_FACT_CHARS = 2
MAX_COMMAND_CHARS = 120  # of a command that stand beside its error
IGNORED_FACT_ENDS = " .,;:"
MAX_DEMANDS = 8  # of the person, that are asked for
MAX_RECENT_MESSAGES = 100  # of the person's, beside the first

_REFERENCE = re.compile(r"&#(\d{1,6});")
_LISTED_PATH = re.compile(r"^(\| |- )`([^`\n]*)`", re.MULTILINE)  # a path, as rendered
_ONE_WORD = re.compile(
    r"[\w\0/.@+~-]+"
)  # a path of plain characters, its blanks as in `_LISTED_PATH`
_EXIT = re.compile(r"\bexit(?:ed|s)?(?: with)?(?: code| status)?[ :=]*(?=\d)", re.IGNORECASE)
_MARKS = str.maketrans("“”‘’", "\"\"''", "`*")
_DECORATION = re.compile(r"(?:E\s+|>\s+|\[\d[\d:., TZ-]*\]\s*)+")  # before an error
_ERROR = re.compile(r"\w*(?:Error|Exception)\b|\berror\b|\bassert|\bpanic|\bfatal", re.IGNORECASE)
_FAILURE = re.compile(r"fail|denied|refused|not found|no such|undefined|timed out", re.IGNORECASE)
_NOTE = re.compile(r"\[[^\]]*\]|(?:exit code|exit)[: ]*\d+", re.IGNORECASE)
_QUOTING = re.compile(r"The person(?: \(#\d+\)| said): ")  # before words that a summary quotes
_QUOTED_REF = re.compile(r" \(#(\d+)\)$")  # after them


RefText = tuple[int, str]  # a text with the seq of its entry


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that a summary must answer with `fact`, verbatim."""

    kind: ProbeKind
    question: str
    fact: str
    section: str  # the field of the document that `entry` is added to if the fact is missing
    ref: int | None  # the seq of the entry that the fact is from
    entry: str  # words with the fact in them, or, for a path, what is said of it beside

    @property
    def is_constraint(self) -> bool:
        return self.kind == "decision" and self.section == "facts"


def choose_probes(
    evicted: Sequence[Item],
    ledger: Ledger,
    previous: SummaryDocument | None,
    cap_tokens: int,
    *,
    rules: Sequence[PersonRule] | None = None,
    written: SummaryDocument | None = None,
) -> list[Probe]:
    """Return what a summary of `evicted` should still say, the most important first. The summary is
    at most `cap_tokens` long, beside its table of changed files and the person's `rules` (by
    default those in their words). What is pinned is not asked for: it stays in the context anyway.
    Nor is what no longer holds: a decision of the summary before is not that `written`, which was
    merged with it, does not have."""
    rules = rulings_of(evicted, ledger).rules if rules is None else rules
    changed = list(_changed_files(ledger, cap_tokens))
    room = int(PROBED_SHARE * (cap_tokens - EMPTY_DOCUMENT_TOKENS))
    said, texts = _person_texts(evicted, ledger), _assistant_texts(evicted)
    here = {item.seq for item in evicted}
    candidates: list[Iterator[Probe]] = [  # the most important sort first
        _intent(said),
        _errors(ledger),
        _constraints(said, rules, ledger),
        _work(here, texts, ledger),
        _decisions(texts, previous, written),
        _read_files(here, ledger),
        _names([(ref, text) for ref, text in said if ref in here]),
    ]
    paths = [probe.fact for probe in changed]
    return [*changed, *_chosen([list(sort) for sort in candidates], room, paths, rules, ledger)]


def prepare_reading(evicted: Sequence[Item], ledger: Ledger) -> Callable[[], None]:
    """Return a function that reads ahead what `choose_probes` will read of today's texts. The
    function takes time and may run in a thread."""
    here = {item.seq for item in evicted}
    said, texts = _person_texts(evicted, ledger), _assistant_texts(evicted)

    def read() -> None:
        for ref, text in said:
            evidence.wishes(text)
            rules_in(text)
            if ref in here:
                evidence.names(text)
        for _, text in texts:
            evidence.decisions(text)

    return read


def _assistant_texts(evicted: Sequence[Item]) -> list[RefText]:
    """Return the assistant's texts, the newest first."""
    return [
        (item.seq, str(block.get("text", "")))
        for item in reversed(evicted)
        if item.role == "assistant"
        for block in reversed(item.blocks)
        if block.get("type") == "text"
    ]


def _person_texts(evicted: Sequence[Item], ledger: Ledger) -> list[RefText]:
    """Return the person's messages that do not stay in the context, the newest first. They were
    evicted now or before. Of many it is the first and the MAX_RECENT_MESSAGES newest."""
    here = {item.seq for item in evicted if item.source == "person"}
    start = min((item.seq for item in evicted if item.source != "summary"), default=0)
    said = [(ref, text) for ref, text in ledger.words if ref in here or ref < start]
    recent = said[: -MAX_RECENT_MESSAGES - 1 : -1]
    return [*recent, *(said[:1] if len(said) > MAX_RECENT_MESSAGES else ())]


def _chosen(
    candidates: Sequence[Sequence[Probe]],
    room: int,
    paths: Sequence[str],
    rules: Sequence[PersonRule],
    ledger: Ledger,
) -> list[Probe]:
    """Return the probes whose entries have room, in the order of the lists. The first of each list
    is tried, then the second of each, and so on. What a path, another probe or a pin says already
    is left out. Rules take no room here."""
    facts = [
        *(path.casefold() for path in paths),
        *(normalized(t).casefold() for t in ledger.pins.values() if estimate(t) <= MAX_PIN_TOKENS),
    ]
    entries = set(map(rule_line, rules))
    kept: list[list[Probe]] = [[] for _ in candidates]
    for rank in range(max(map(len, candidates), default=0)):
        for sort, chosen in zip(candidates, kept, strict=True):
            if rank >= len(sort):
                continue
            probe = sort[rank]
            fact = normalized(probe.fact).casefold().rstrip(IGNORED_FACT_ENDS)
            price = 0 if probe.entry in entries else estimate(probe.entry) + ITEM_FRAME_TOKENS
            part = probe.kind != "artifact" and any(fact in other for other in facts)
            if price > room or part or len(fact) < MIN_FACT_CHARS or fact in facts:
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


def _read_files(here: set[int], ledger: Ledger) -> Iterator[Probe]:
    for path, ref in [row for row in ledger.read.items() if row[1] in here][:-5:-1]:
        yield Probe(
            "artifact", "Which files were read last, and not changed?", path, "read", ref, f"#{ref}"
        )


def _intent(said: Sequence[RefText]) -> Iterator[Probe]:
    for ref, text in said[-1:]:
        fact = evidence.first_fact(text)
        yield Probe("recall", "What did the person first ask for?", fact, "intent", ref, fact)


def _constraints(
    said: Sequence[RefText], rules: Sequence[PersonRule], ledger: Ledger
) -> Iterator[Probe]:
    """Yield what was not authorised last, then the newest rules of the person, then their other
    demands; of each message its first comes before its second."""
    question = "What did the person demand, rule out or not authorise? Quote each."
    for denial in ledger.denials[:-3:-1]:
        fact = evidence.fact_at(re.sub("^not authorised: ", "", denial, flags=re.IGNORECASE))
        why = shorten_at_gap(ledger.reason_of(denial), evidence.MAX_FACT_CHARS)
        yield Probe("decision", question, fact, "facts", None, f"Not authorised: {fact}{why}")
    for rule in sorted(rules, key=lambda rule: -rule.ref)[:MAX_DEMANDS]:
        fact = telling_part(rule.text)
        yield Probe("decision", question, fact, "facts", rule.ref, rule_line(rule))
    rows = [
        (place, ref, fact)
        for ref, text in said
        for place, fact in enumerate(evidence.wishes(text)[:4])
        if not any(fact in rule.text for rule in rules)
    ]
    for _, ref, fact in sorted(rows, key=lambda row: row[0])[: max(0, MAX_DEMANDS - len(rules))]:
        yield Probe("decision", question, fact, "facts", ref, f"The person (#{ref}): {fact}")


def _names(said: Sequence[RefText]) -> Iterator[Probe]:
    found = [(ref, *name) for ref, text in said for name in evidence.names(text)[:3]]
    holding = [
        row
        for place, row in enumerate(found)
        if not any(changes_value(newer, row[2]) for _, _, newer in found[:place])
        and not rules_in(row[2])  # those that stand are kept whole; the others were lifted
    ]
    for ref, name, words in holding[:6]:
        question = f"What stands in the gap? “{words.replace(name, '____')}”"
        yield Probe("recall", question, name, "facts", ref, f"The person (#{ref}): {words}")


def _decisions(
    texts: Sequence[RefText], previous: SummaryDocument | None, written: SummaryDocument | None
) -> Iterator[Probe]:
    """Yield decisions of the summary before and of the evicted texts in turns, the newest first,
    less those that a later one replaces."""
    remembered = previous.decisions if previous else ()
    standing = [text for text in remembered if written is None or text in written.decisions]
    later = [text for text in (written.decisions if written else ()) if text not in standing]
    rows: list[tuple[int, int, str]] = []
    for seq, text in texts:
        for rank, fact in evidence.decisions(text):
            if not any(replaces_decision(newer, fact) for newer in later):
                rows.append((rank, seq, fact))
        later += [fact for _, fact in evidence.decisions(text)]
    rows.sort(key=lambda row: row[0])
    holding = [t for t in standing if not any(replaces_decision(newer, t) for newer in later)]
    old = [_remembered(text) for text in holding[:-5:-1]]
    new = [(ref, fact, f"{fact} (#{ref})") for _, ref, fact in rows[:4]]
    for n in range(4):
        for ref, fact, entry in (*old[n : n + 1], *new[n : n + 1]):
            topic = " ".join(fact.split()[:6])
            question = f"What was decided, and why: “{topic} …”?"
            yield Probe("decision", question, fact, "decisions", ref, entry)


def _remembered(decision: str) -> tuple[int | None, str, str]:
    """Return the ref, fact and entry of a decision in the summary before."""
    quoting = _QUOTING.match(decision)
    words = decision[quoting.end() :] if quoting else decision
    made = _QUOTED_REF.search(words)
    fact = evidence.fact_at(words[: made.start()] if made else words)
    ref = int(made[1]) if made else None
    return ref, fact, decision if len(decision) <= 2 * evidence.MAX_FACT_CHARS else fact


def _work(here: set[int], texts: Sequence[RefText], ledger: Ledger) -> Iterator[Probe]:
    """Yield the person's newest words if they go, what is in progress and pending by the todo list,
    and the plan if nothing that is recorded has followed it. Words that go were answered: they are
    no step any more."""

    def probe(question: str, fact: str, section: str, ref: int | None, entry: str) -> Probe:
        return Probe("continuation", question, fact, section, ref, entry)

    following = "What should be done next?"
    for ref, text in ledger.words[-1:]:
        if ref in here and (fact := evidence.first_fact(text)):
            question, entry = "What did the person ask for last?", f"The person (#{ref}): {fact}"
            yield Probe("recall", question, fact, "facts", ref, entry)
    todos = [(t["status"], evidence.fact_at(t["content"])) for t in ledger.todos]
    for fact in [text for status, text in todos if status == "in_progress"][:3]:
        yield probe("What is being worked on?", fact, "in_progress", None, fact)
    for fact in [text for status, text in todos if status == "pending"][:4]:
        yield probe(following, fact, "next_steps", None, fact)
    for ref, text in texts[:1]:
        for fact in evidence.plans(text)[-1:] if ref > _newest_act(ledger) else ():
            yield probe(following, fact, "next_steps", ref, f"{fact} (#{ref})")


def _newest_act(ledger: Ledger) -> int:
    """Return the seq of the newest entry that is known to have moved the work on."""
    acts = [fact.ref for fact in ledger.files.values()]
    acts += [*ledger.read.values(), *(fact.ref for fact in ledger.commands[-1:])]
    return max([*acts, *(ref for ref, _ in ledger.words[-1:])], default=0)


def _errors(ledger: Ledger) -> Iterator[Probe]:
    """Yield the exact error and the exit code of the newest commands that still fail."""
    found = 0
    for fact in reversed(ledger.unresolved()):
        line = _error(fact)
        if (fact.exit_code == 1 and not line) or found == 3:  # it may have answered "no"
            continue
        found += 1
        command = evidence.fact_at(fact.command)[:MAX_COMMAND_CHARS].rstrip()
        code = f"exit {fact.exit_code}"
        entry = f"`{command}` failed ({code}, #{fact.ref})" + (f":\n{line}" if line else "")
        if line:
            question = f"Which error does `{command}` still give, exactly?"
            yield Probe("recall", question, line, "errors", fact.ref, entry)
        if fact.exit_code is not None:
            question = f"With which exit code does `{command}` fail?"
            yield Probe("recall", question, code, "errors", fact.ref, entry)


def _error(fact: CommandFact) -> str:
    """Return the most telling line of a failed command's output, "" when none tells."""
    lines = [_DECORATION.sub("", line.strip(), count=1) for line in fact.errors]
    lines = [line for line in lines if line and not _NOTE.fullmatch(line)]
    for pattern in (_ERROR, _FAILURE):
        for line in reversed(lines):
            if match := pattern.search(line):
                return evidence.fact_at(line, match.start())
    return lines[-1][: evidence.MAX_FACT_CHARS] if lines else ""


def is_answered(probe: Probe, text: str) -> bool:
    """Return whether a rendered summary has the fact. It must be there verbatim but for blanks,
    quotation marks, emphasis and, in a sentence, case; a path, a word or a number never as a part
    of a longer one."""
    if probe.kind == "artifact":
        path = " ".join(probe.fact.split())
        forms = {path, path.replace(" ", "\0"), path.replace("\\|", "|")}
        return any(_is_named(form, text) for form in forms if form)
    fact = normalized(probe.fact).rstrip(IGNORED_FACT_ENDS)
    if " " in fact:
        return evidence.whole_words(fact.casefold()).search(_decoded(text).casefold()) is not None
    return bool(fact) and evidence.whole_words(fact).search(_decoded(text)) is not None


def normalized(text: str) -> str:
    """Return a text for comparison: no emphasis, single blanks, one form for exit codes."""
    return " ".join(_EXIT.sub("exit ", text.translate(_MARKS).replace("\\|", "|")).split())


def _is_named(path: str, text: str) -> bool:
    """Return whether a text names a path, and not as a part of a longer one."""
    if path in _paths(text) or _ONE_WORD.fullmatch(path):
        return path in _paths(text)
    listed = _with_paths(text)
    return path in listed and _path(path).search(listed) is not None


@lru_cache(maxsize=8)
def _paths(text: str) -> frozenset[str]:
    """Return the parts of a text that may be paths: words, without a full stop after one or `./`
    before it, and what it lists in backticks."""
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
    """Return the text with NULs for the blanks of paths that it lists in backticks."""
    listed = _LISTED_PATH.sub(lambda m: f"{m[1]}`{chr(0).join(m[2].split())}`", text)
    listed = _REFERENCE.sub(_character, listed).replace("\\|", "|")
    return " ".join(listed.split())


def _character(reference: re.Match[str]) -> str:
    return chr(int(reference[1]))
