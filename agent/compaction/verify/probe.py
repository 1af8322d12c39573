"""Probes: questions about facts that a summary must still answer (S2 "Validate with Probes").

`probes` takes them from the records alone, before any summary is looked at: every changed file that
has room by its name (`folding`), and as much else as is worth its place. A summary has a cap, so
what may be asked has one too: SHARE of it, the most important of each sort first. `answered` looks
one up in a rendered summary.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ...context.tokens import estimate
from ...context.view import Item
from ...record.ledger import CommandFact, Ledger
from ..document import Document
from ..folding import TABLE, standing
from ..summarize import PINNED_MOST
from . import evidence

Kind = Literal["recall", "artifact", "continuation", "decision"]

SHARE = 0.6  # of the cap: the rest is for the summary's own words
FRAME = 120  # tokens of a document without content
ITEM = 4  # tokens of what stands around an item
SHORTEST = 2  # characters of a fact
LONGEST_COMMAND = 120  # characters of it that stand beside its error
ENDS = " .,;:"  # of a fact: they do not count
RECENT = 100  # of the person's texts, beside the first

_REFERENCE = re.compile(r"&#(\d{1,6});")
_LISTED = re.compile(r"^(\| |- )`([^`\n]*)`", re.MULTILINE)  # a path that has blanks, as rendered
_ONE_WORD = re.compile(r"[\w\0/.@+~-]+")  # a path of plain characters, its blanks as in `_LISTED`
_EXIT = re.compile(r"\bexit(?:ed|s)?(?: with)?(?: code| status)?[ :=]*(?=\d)", re.IGNORECASE)
_MARKS = str.maketrans("“”‘’", "\"\"''", "`*")
_ORNAMENT = re.compile(r"(?:E\s+|>\s+|\[\d[\d:., TZ-]*\]\s*)+")
_ERROR = re.compile(r"\w*(?:Error|Exception)\b|\berror\b|\bassert|\bpanic|\bfatal", re.IGNORECASE)
_FAILURE = re.compile(r"fail|denied|refused|not found|no such|undefined|timed out", re.IGNORECASE)
_NOTE = re.compile(r"\[[^\]]*\]|(?:exit code|exit)[: ]*\d+", re.IGNORECASE)
_SAID = re.compile(r"The person(?: \(#\d+\)| said): ")  # before words that a summary quotes
_FROM = re.compile(r" \(#(\d+)\)$")  # after them
_JOINED = re.compile(r"&&|;|\n")
_PREPARES = re.compile(r"(?:cd|export|source|set|mkdir)\b|\w+=\S*$")
_ASKING = {"grep", "rg", "diff", "test", "[", "which", "ls", "cat", "find", "head", "pgrep"}


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that a summary must answer with `fact`, verbatim.

    If it does not, `entry` is added to `section`, a field of the document: words with the fact in
    them, or, for a path, what is said of it beside. `ref` is where the fact is from.
    """

    kind: Kind
    question: str
    fact: str
    section: str
    ref: int | None
    entry: str


def probes(
    evicted: Sequence[Item], ledger: Ledger, previous: Document | None, cap_tokens: int
) -> list[Probe]:
    """What a summary of `evicted`, at most `cap_tokens` long beside its table of changed files,
    should still say; the most important first. What is pinned is not asked for: it stays in the
    context anyway."""
    changed = list(_changed(ledger, cap_tokens))
    room = int(SHARE * (cap_tokens - FRAME))
    said = _said(evicted, ledger)
    lists = [list(some) for some in _sorts(evicted, said, ledger, previous)]
    return [*changed, *_chosen(lists, room, [probe.fact for probe in changed], ledger)]


def reading(evicted: Sequence[Item], ledger: Ledger) -> Callable[[], None]:
    """Reads what `probes` will read of the texts that are there now, so that it has them at hand.
    Takes time, and may run in a thread."""
    here = {item.seq for item in evicted}
    said, texts = _said(evicted, ledger), _texts(evicted)

    def read() -> None:
        for ref, text in said:
            evidence.constraints(text)
            if ref in here:
                evidence.names(text)
        for _, text in texts:
            evidence.decisions(text)

    return read


def _texts(evicted: Sequence[Item]) -> list[tuple[int, str]]:
    """The assistant's texts with refs, the newest first."""
    return [
        (item.seq, str(block.get("text", "")))
        for item in reversed(evicted)
        if item.role == "assistant"
        for block in reversed(item.blocks)
        if block.get("type") == "text"
    ]


def _sorts(
    evicted: Sequence[Item],
    said: Sequence[tuple[int, str]],
    ledger: Ledger,
    previous: Document | None,
) -> Iterator[Iterator[Probe]]:
    """The candidates by sort, the most important sort first."""
    texts = _texts(evicted)
    here = {item.seq for item in evicted}
    yield _intent(said)
    yield _errors(ledger)
    yield _constraints(said, ledger)
    yield _going_on(here, texts, ledger, previous)
    yield _decisions(texts, previous)
    yield _readings(here, ledger)
    yield _names([(ref, text) for ref, text in said if ref in here])


def _chosen(
    lists: Sequence[Sequence[Probe]], room: int, known: Sequence[str], ledger: Ledger
) -> list[Probe]:
    """The first of each list, then the second of each, and so on while their entries have room; in
    the order of the lists. What another one or a pin says already is left out."""
    facts = [
        *(path.casefold() for path in known),
        *(plain(t).casefold() for t in ledger.pins.values() if estimate(t) <= PINNED_MOST),
    ]
    entries: set[str] = set()
    kept: list[list[Probe]] = [[] for _ in lists]
    for turn in range(max(map(len, lists), default=0)):
        for probe, mine in [(s[turn], kept[n]) for n, s in enumerate(lists) if turn < len(s)]:
            fact = plain(probe.fact).casefold().rstrip(ENDS)
            price = 0 if probe.entry in entries else estimate(probe.entry) + ITEM
            part = probe.kind != "artifact" and any(fact in other for other in facts)
            if price > room or part or len(fact) < SHORTEST or fact in facts:
                continue
            room -= price
            facts.append(fact)
            entries.add(probe.entry)
            mine.append(probe)
    return [probe for mine in kept for probe in mine]


def _changed(ledger: Ledger, cap_tokens: int) -> Iterator[Probe]:
    files = ledger.files
    for row in standing(files, TABLE * cap_tokens):
        if fact := files.get(row.path):
            question = f"Which files were {fact.action} in this session?"
            yield Probe("artifact", question, row.path, "modified", fact.ref, fact.action)


def _readings(here: set[int], ledger: Ledger) -> Iterator[Probe]:
    for path, ref in [row for row in ledger.read.items() if row[1] in here][:-5:-1]:
        question = "Which files were read last, and not changed?"
        yield Probe("artifact", question, path, "read", ref, f"#{ref}")


def _said(evicted: Sequence[Item], ledger: Ledger) -> list[tuple[int, str]]:
    """The person's words, with refs, that do not stay in the context: those evicted now or
    before, the newest first, of many the first and the RECENT ones."""
    here = {item.seq for item in evicted if item.source == "person"}
    start = min((item.seq for item in evicted if item.source != "summary"), default=0)
    said = [(ref, text) for ref, text in ledger.words if ref in here or ref < start]
    return [*said[: -RECENT - 1 : -1], *(said[:1] if len(said) > RECENT else ())]


def _intent(said: Sequence[tuple[int, str]]) -> Iterator[Probe]:
    for ref, text in said[-1:]:
        fact = evidence.opening(text)
        yield Probe("recall", "What did the person first ask for?", fact, "intent", ref, fact)


def _constraints(said: Sequence[tuple[int, str]], ledger: Ledger) -> Iterator[Probe]:
    """What was not authorised last, then the strict ones of the newest texts before the others; of
    each text the first before its second."""
    asked = "What did the person demand, rule out or not authorise? Quote each."
    for denial in ledger.denials[:-3:-1]:
        fact = evidence.fact(re.sub("^not authorised: ", "", denial, flags=re.IGNORECASE))
        yield Probe("decision", asked, fact, "facts", None, f"Not authorised: {fact}")
    rows = [
        (rank, turn, ref, fact)
        for ref, text in said
        for turn, (rank, fact) in enumerate(evidence.constraints(text)[:4])
    ]
    for _, _, ref, fact in sorted(rows, key=lambda row: row[:2])[:8]:
        yield Probe("decision", asked, fact, "facts", ref, f"The person (#{ref}): {fact}")


def _names(said: Sequence[tuple[int, str]]) -> Iterator[Probe]:
    for ref, name, words in [(r, n, w) for r, text in said for n, w in evidence.names(text)[:3]][
        :6
    ]:
        question = f"What stands in the gap? “{words.replace(name, '____')}”"
        yield Probe("recall", question, name, "facts", ref, f"The person (#{ref}): {words}")


def _decisions(texts: Sequence[tuple[int, str]], previous: Document | None) -> Iterator[Probe]:
    """Those of the summary before, then those of the evicted span, in turns; of each the newest."""
    old = [_remembered(text) for text in (previous.decisions[:-5:-1] if previous else ())]
    rows = [(rank, ref, fact) for ref, text in texts for rank, fact in evidence.decisions(text)]
    rows.sort(key=lambda row: row[0])
    new = [(ref, fact, f"{fact} (#{ref})") for _, ref, fact in rows[:4]]
    for n in range(4):
        for ref, fact, entry in (*old[n : n + 1], *new[n : n + 1]):
            topic = " ".join(fact.split()[:6])
            question = f"What was decided, and why: “{topic} …”?"
            yield Probe("decision", question, fact, "decisions", ref, entry)


def _remembered(decision: str) -> tuple[int | None, str, str]:
    """Ref, fact and entry of a decision in the summary before."""
    said = _SAID.match(decision)
    rest = decision[said.end() :] if said else decision
    made = _FROM.search(rest)
    fact = evidence.fact(rest[: made.start()] if made else rest)
    ref = int(made[1]) if made else None
    return ref, fact, decision if len(decision) <= 2 * evidence.LONGEST else fact


def _going_on(
    here: set[int],
    texts: Sequence[tuple[int, str]],
    ledger: Ledger,
    previous: Document | None,
) -> Iterator[Probe]:
    """The person's newest words if they go, what is in progress and pending, what was planned."""
    following = "What should be done next?"
    for ref, text in ledger.words[-1:]:
        if ref in here and (fact := evidence.opening(text)):
            entry = f"The person (#{ref}): {fact}"
            yield Probe(
                "continuation", "What did the person ask for last?", fact, "next_steps", ref, entry
            )
    todos = [(t["status"], evidence.fact(t["content"])) for t in ledger.todos]
    for fact in [text for status, text in todos if status == "in_progress"][:3]:
        yield Probe("continuation", "What is being worked on?", fact, "in_progress", None, fact)
    for fact in [text for status, text in todos if status == "pending"][:4]:
        yield Probe("continuation", following, fact, "next_steps", None, fact)
    plans = [(ref, fact) for ref, text in texts[:5] for fact in evidence.plans(text)[-1:]][:1]
    for ref, fact in plans:
        yield Probe("continuation", following, fact, "next_steps", ref, f"{fact} (#{ref})")
    if previous and not plans and not ledger.todos:
        for text in previous.next_steps[:2]:
            fact = evidence.fact(text)
            yield Probe("continuation", following, fact, "next_steps", None, fact)


def _errors(ledger: Ledger) -> Iterator[Probe]:
    """The exact error and the exit code of the newest commands that still fail."""
    latest = {_family(c.command): c.exit_code for c in ledger.commands if c.exit_code is not None}
    found = 0
    for fact in reversed(ledger.unresolved()):
        line = _error(fact)
        asks = fact.exit_code == 1 and (not line or _family(fact.command)[0] in _ASKING)
        if asks or latest.get(_family(fact.command)) == 0 or found == 3:
            continue
        found += 1
        command = evidence.fact(fact.command)[:LONGEST_COMMAND].rstrip()
        code = f"exit {fact.exit_code}"
        entry = f"`{command}` failed ({code}, #{fact.ref})" + (f":\n{line}" if line else "")
        if line:
            question = f"Which error does `{command}` still give, exactly?"
            yield Probe("recall", question, line, "errors", fact.ref, entry)
        if fact.exit_code is not None:
            question = f"With which exit code does `{command}` fail?"
            yield Probe("recall", question, code, "errors", fact.ref, entry)


def _error(fact: CommandFact) -> str:
    """The most telling line of a failed command's output; "" when none tells."""
    lines = [_ORNAMENT.sub("", line.strip(), count=1) for line in fact.errors]
    lines = [line for line in lines if line and not _NOTE.fullmatch(line)]
    for pattern in (_ERROR, _FAILURE):
        for line in reversed(lines):
            if match := pattern.search(line):
                return evidence.fact(line, match.start())
    return lines[-1][: evidence.LONGEST] if lines else ""


def _family(command: str) -> tuple[str, ...]:
    """The program and its subcommand: what a later, successful run of has made good."""
    parts = [part.strip() for part in _JOINED.split(command[:1_000])]
    work = next((part for part in parts if part and not _PREPARES.match(part)), command)
    words = work.split()[:2] or [""]
    return (words[0], *(word for word in words[1:] if not word.startswith("-")))


# Whether it is answered


def answered(probe: Probe, text: str) -> bool:
    """Whether a rendered summary has the fact, verbatim but for blanks, quotation marks, emphasis
    and, in a sentence, case; a path, a word or a number never as a part of a longer one."""
    if probe.kind == "artifact":
        path = " ".join(probe.fact.split())
        forms = {path, path.replace(" ", "\0"), path.replace("\\|", "|")}
        return any(_is_named(form, text) for form in forms if form)
    fact = plain(probe.fact).rstrip(ENDS)
    if " " in fact:
        return _words(fact.casefold()).search(_decoded(text).casefold()) is not None
    return bool(fact) and _words(fact).search(_decoded(text)) is not None


def plain(text: str) -> str:
    """A text as it is compared: without emphasis, in single blanks, one form for exit codes."""
    return " ".join(_EXIT.sub("exit ", text.translate(_MARKS).replace("\\|", "|")).split())


def _is_named(path: str, text: str) -> bool:
    """Whether a text names a path as it stands, and not as a part of a longer one."""
    if path in _paths(text) or _ONE_WORD.fullmatch(path):
        return path in _paths(text)
    listed = _with_paths(text)
    return path in listed and _path(path).search(listed) is not None


@lru_cache(maxsize=8)
def _paths(text: str) -> frozenset[str]:
    """What of a text may be a path: its words, without a full stop after one or `./` before it, and
    what it lists in backticks."""
    cells = (_REFERENCE.sub(_character, found[2]) for found in _LISTED.finditer(text))
    listed = {" ".join(cell.replace("\\|", "|").split()) for cell in cells}
    words = {word.removeprefix("./") for word in _ONE_WORD.findall(_with_paths(text))}
    ended = {word.rstrip(".") for word in words}
    return frozenset(listed | words | ended)


@lru_cache(maxsize=1_024)
def _path(path: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w\0/.@+~-])(?:\./)?{re.escape(path)}(?![\w\0/@+~-]|\.[\w/])")


@lru_cache(maxsize=1_024)
def _words(fact: str) -> re.Pattern[str]:
    before = r"(?<!\w)(?<!\d[.,])" if fact[0].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if fact[-1].isalnum() else ""
    return re.compile(f"{before}{re.escape(fact)}{after}")


@lru_cache(maxsize=8)
def _decoded(text: str) -> str:
    return plain(_REFERENCE.sub(_character, text))


@lru_cache(maxsize=8)
def _with_paths(text: str) -> str:
    """The text with no blanks in the paths that it lists in backticks."""
    listed = _LISTED.sub(lambda m: f"{m[1]}`{chr(0).join(m[2].split())}`", text)
    listed = _REFERENCE.sub(_character, listed).replace("\\|", "|")
    return " ".join(listed.split())


def _character(reference: re.Match[str]) -> str:
    return chr(int(reference[1]))
