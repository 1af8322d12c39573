"""Drift: whether the agent still does what was asked, watched for some turns after each summary.

A `Watch` holds each reply against the summary, the ledger and the person's words, and knows S0's
five indicators. It asks no model, names its evidence verbatim, tells each indicator once, and in
doubt says nothing. It only looks: who is told, and what is searched for, is the loop's affair.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...context.tokens import estimate
from ...record.entries import Block
from ...record.ledger import Ledger
from ..document import Document, render
from . import signs
from .constraints import Constraint, breaks, constraints, lifted
from .decisions import rejections, taken_up
from .signs import (
    act,
    deliverables,
    folder,
    go_on,
    line,
    paths,
    quote,
    searched,
    sentences,
    subject,
    terms,
)

Indicator = Literal["clarification", "complete", "unrelated", "contradiction", "constraint"]
Severity = Literal["MEDIUM", "HIGH", "CRITICAL"]

TURNS = 3  # that are watched after a summary
SEVERITY: dict[Indicator, Severity] = {  # S0 "Drift Indicators"
    "clarification": "HIGH",
    "complete": "CRITICAL",
    "unrelated": "HIGH",
    "contradiction": "MEDIUM",
    "constraint": "HIGH",
}
RECOMMENDATION: dict[Indicator, str] = {
    "clarification": "Answer from the summary and the archive; ask only for what neither has.",
    "complete": "Compare with the intent; do what is still open, or name it as open.",
    "unrelated": "Read the request again, and go back to its next step.",
    "contradiction": "Look up why it was decided; keep to it, or ask before it is changed.",
    "constraint": "Do without it, or ask for permission first.",
}
FEW = 3  # calls after which a question comes no longer right after the summary
ASTRAY = 8  # points of calls in a row that share nothing; a change has 2, any other call 1
MOST_WORDS = 60  # of the person's messages, the newest, that are read
LEAST_TERMS = 3  # of the task, for anything to be unrelated to it
LETTERS = 2_000  # of what was asked that tell whether it is clear
MOST_TERMS = 8  # to search the archive for
NOTICE = 600  # tokens of a realignment

_READING = {"Read", "Grep", "Glob", "Recall", "Todo", "Job"}


@dataclass(frozen=True, slots=True)
class Drift:
    """One indicator: what triggered it, what the agent is doing (a line each), what to search the
    archive for, and what to do about it."""

    indicator: Indicator
    severity: Severity
    detection: str
    current: str
    terms: str
    recommendation: str


class Watch:
    """Of one summary. `since` is the seq up to which its document knows: the newest entry when it
    was written, by default the newest that the ledger has now."""

    def __init__(
        self, document: Document, ledger: Ledger, turns: int = TURNS, *, since: int | None = None
    ) -> None:
        self._document, self._ledger, self._turns = document, ledger, turns
        self._since = _newest(ledger) if since is None else since
        self._first = turns >= TURNS  # fewer: a session that goes on
        self._told: set[Indicator] = set()
        self._heard: list[str] = []
        self._words = [text for _, text in ledger.words][-MOST_WORDS:]
        self._denied = list(ledger.denials)
        self._calls: list[Block] = []
        self._points, self._astray = 0, list[str]()
        self._goal = _union(_goal(document, ledger, self._words))
        self._known = self._goal | _union(_context(document, ledger, self._words))
        self._folders = {folder(path) for path in (*ledger.files, *ledger.read)}
        self._rejections = rejections(document.decisions)
        self._constraints = list(_stated(document, ledger, self._words))

    @property
    def armed(self) -> bool:
        return self._turns > 0

    def heard(self, words: str) -> None:
        """The person said something new: it is part of the intent from now on."""
        self._heard.append(words)
        self._goal |= terms(words)
        self._known |= terms(words)
        self._points, self._astray = 0, []
        place = len(self._words) + len(self._heard)
        self._constraints += [(place, c, "the person's words") for c in constraints(words)]

    def turn_ended(self) -> None:
        self._turns -= 1
        self._first = False

    def reply(self, blocks: Sequence[Block], *, final: bool) -> list[Drift]:
        """What a reply shows, none of it told before. `final` is one that ends the turn."""
        if not self.armed:
            return []
        text = "\n".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")
        calls = [b for b in blocks if b.get("type") == "tool_use"]
        seen = [
            self._asks(text) if final else None,
            self._declares(text) if final else None,
            self._strays(text, calls),
            self._contradicts(blocks),
            self._breaks(calls),
        ]
        self._calls += calls
        self._denied = list(self._ledger.denials)
        found = [drift for drift in seen if drift and drift.indicator not in self._told]
        self._told.update(drift.indicator for drift in found)
        return found

    def _asks(self, text: str) -> Drift | None:
        """S0: asking for clarification at once, for what stands in the summary or the ledger."""
        changed = any(call.get("name") in ("Edit", "Write", "Task") for call in self._calls)
        early = self._first and len(self._calls) <= FEW and not changed
        if not early or self._new_words() or self._wants_questions():
            return None
        said = sentences(text)
        asked = [s for s in said if signs.ASKS.search(s) and self._has_answer(s)]
        rest = sum(len(s) for s in said if s not in asked and not signs.POLITE.search(s))
        if not asked or rest > 2 * sum(map(len, asked)):
            return None
        # With a report, after a call or where nothing is open, a question may be a courtesy.
        courtesy = rest or signs.COURTESY.search(asked[0])
        if courtesy and (self._calls or not self._open()) and not signs.LOST.search(text):
            return None
        what = f"it asks for what is known, right after the summary: {quote(asked[0])}"
        return _drift("clarification", what, text, self._document.intent or " ".join(self._words))

    def _wants_questions(self) -> bool:
        return any(signs.INVITES.search(text) for text in self._words[-1:])

    def _has_answer(self, question: str) -> bool:
        document, ledger = self._document, self._ledger
        if re.search(r"\b(?:errors?|traceback|stack|logs?|output)\b", question, re.I):
            return bool(document.errors or ledger.unresolved())
        if re.search(r"\b(?:files?|code|function|module|snippet)\b", question, re.I):
            return bool(document.modified or document.read or ledger.files or ledger.read)
        return bool(document.intent.strip() or self._words)

    def _open(self) -> list[str]:
        """What is still to be done, by the todo list and the summary."""
        todos = [t["content"] for t in self._ledger.todos if t["status"] != "completed"]
        steps = (*self._document.in_progress, *self._document.next_steps)
        work = [s for s in steps if not signs.NO_WORK.search(s)]
        done = {t["content"] for t in self._ledger.todos if t["status"] == "completed"}
        return [item for item in dict.fromkeys([*todos, *work]) if item not in done]

    def _declares(self, text: str) -> Drift | None:
        """S0: declaring the work complete without a deliverable."""
        said = sentences(text)
        claims = [s for s in said if signs.DONE.search(s) and not signs.NOT_DONE.search(s)]
        if not claims or any(signs.LEFT.search(s) for s in said):
            return None
        new = self._new_words()
        asked = new or [self._document.intent, *self._document.next_steps, *self._words[-1:]]
        missing = [path for path in deliverables("\n".join(asked)) if not self._made(path)]
        left: list[str] = []
        if not new and any(signs.WORK.search(text) for text in asked):
            left = self._untouched(text)
        if not missing and not left:
            return None
        lacks = [f"{path} was never written" for path in missing]
        lacks = list(dict.fromkeys([*lacks, *(f"still open: {item}" for item in left)]))
        what = f"it says {quote(claims[0])}, but {line('; '.join(lacks[:3]), 240)}"
        return _drift("complete", what, text, " ".join([*missing, *left]))

    def _new_words(self) -> list[str]:
        """What the person said since, apart from telling it to go on."""
        return [text for text in self._heard if not go_on(text)]

    def _untouched(self, text: str) -> list[str]:
        """Of what was to be done, what no call since has to do with. After real work the steps of
        the summary may be outdated: then only todos nobody began, and nobody speaks of, count."""
        ledger = self._ledger
        changed = [f.path for f in ledger.files.values() if f.ref > self._since]
        ran = [c.command for c in ledger.commands if c.ref > self._since]
        about = _union([*map(subject, self._calls), *changed, *ran])
        acted = any(str(call.get("name")) not in _READING for call in self._calls)
        if not (acted or changed or ran):
            return [item for item in self._open() if not terms(item) & about]
        pending = [t["content"] for t in ledger.todos if t["status"] == "pending"]
        about |= terms(text)
        return [item for item in pending if terms(item) and not terms(item) & about]

    def _made(self, path: str) -> bool:
        base = path.rpartition("/")[2]
        ledger = self._ledger
        known = [*ledger.files, *ledger.read, *(c.command for c in ledger.commands)]
        return any(base in k for k in (*known, *self._document.done, *map(subject, self._calls)))

    def _strays(self, text: str, calls: Sequence[Block]) -> Drift | None:
        """S0: working on something unrelated: calls in a row that share no word or folder with all
        that is known of the task. What a related call brings up is related from then on."""
        explained = len(terms(text) & self._goal) > 1
        for call in calls:
            name = call.get("name")
            about = str(call.get("input")) if name == "Todo" else self._shown(subject(call))
            words = terms(about)
            near = {folder(path) for path in paths(about)} & self._folders
            if explained or near or words & self._known or name == "Todo":  # a plan is a task
                self._known |= words
                self._folders |= {folder(path) for path in paths(about)}
                self._points, self._astray = 0, []
            elif words and name not in ("Recall", "Job"):
                self._points += 2 if name in ("Edit", "Write") else 1
                self._astray.append(act(call))
        asked = [self._document.intent, *self._words, *self._heard]
        if self._points < ASTRAY * (2 if self._new_words() else 1) or _unclear(asked):
            return None
        count, last = len(self._astray), "; ".join(self._astray[-3:])
        what = f"{count} calls in a row share nothing with the task: {line(last, 240)}"
        intent = " ".join([self._document.intent, *self._words[-1:]])
        return _drift("unrelated", what, self._astray[-1], intent)

    def _shown(self, subject: str) -> str:
        cwd = self._ledger.cwd.rstrip("/")
        return subject.replace(f"{cwd}/", "").replace(cwd, ".") if cwd else subject

    def _contradicts(self, blocks: Sequence[Block]) -> Drift | None:
        """S0: going for what an earlier decision ruled out."""
        newer = "\n".join(self._heard).lower()
        for rejection in self._rejections:
            evidence = None if rejection.name in newer else taken_up(rejection, blocks)
            if evidence:
                what = f"{quote(evidence)} goes against the decision {quote(rejection.said)}"
                return _drift("contradiction", what, evidence, rejection.said)
        return None

    def _breaks(self, calls: Sequence[Block]) -> Drift | None:
        """S0: a stated constraint that is missed, also one that the summary lost."""
        said = [*self._words, *self._heard]
        denied = [
            (len(self._words), c, "a call that was not authorised")
            for text in self._denied
            for c in constraints(text)
        ]
        for call in calls:
            for place, constraint, where in (*self._constraints, *denied):
                if breaks(constraint, call, self._ledger.shown) and not lifted(
                    constraint, said[place:]
                ):
                    what = f"{quote(act(call))} breaks {quote(constraint.said)} ({where})"
                    return _drift("constraint", what, act(call), constraint.said)
        return None


def warning(drift: Drift, intent: str) -> str:
    """What the person is told, in the format of S1's "Goal Drift Warning"."""
    return (
        "⚠ **Goal Drift Warning**\n\n"
        f"**Detection:** {drift.severity}: {drift.detection}\n"
        f"**Original Intent:** {line(intent, 400) or 'not recorded'}\n"
        f"**Current Action:** {drift.current}\n\n"
        f"**Recovery Action:**\nSearching the archive for: {drift.terms}\n\n"
        f"**Recommendation:** {drift.recommendation}"
    )


def realignment(
    drift: Drift, document: Document, words: Sequence[str], found: Sequence[str]
) -> str:
    """What the model is told, in at most 600 estimated tokens: the intent and the person's own
    words again, what the archive has, and to go on. `found` are lines with their refs."""
    text = ""
    for limit in (400, 200, 100, 50, 25):
        text = "\n".join(_notice(drift, document, words, found, limit))
        if estimate(text) <= NOTICE:
            break
    return text


def _notice(
    drift: Drift, document: Document, words: Sequence[str], found: Sequence[str], limit: int
) -> list[str]:
    said = [text for text in words if text.strip()]
    said = [*said[:1], *said[-2:]] if len(said) > 3 else said
    lines = [
        "[Goal check] This is a notice of the program, not the person's words.",
        f"Noticed after the summary: {line(drift.detection, 2 * limit)}",
        f"The intent of this session: {line(document.intent, 2 * limit) or 'see the words below'}",
    ]
    if said:
        lines += ["The person's own words:", *(f"> {line(text, limit)}" for text in said)]
    if document.next_steps:
        lines += ["Next steps:", *(f"- {line(s, limit // 2)}" for s in document.next_steps[:3])]
    if found:
        lines += ["From the archive:", *(f"- {line(item, limit // 2)}" for item in found[:6])]
    lines.append(
        f"{drift.recommendation} If the person's newest words ask for just this, say so in one "
        "sentence. Then go on with the task."
    )
    return lines


def _drift(indicator: Indicator, detection: str, current: str, about: str) -> Drift:
    return Drift(
        indicator,
        SEVERITY[indicator],
        detection,
        line(current, 200),
        searched(about, MOST_TERMS),
        RECOMMENDATION[indicator],
    )


def reading(ledger: Ledger) -> Callable[[], None]:
    """Reads what a `Watch` will read of the words that are there now, so that it has them at hand.
    Takes time, and may run in a thread."""
    words = [text for _, text in ledger.words[-MOST_WORDS:]]

    def read() -> None:
        for text in words:
            terms(text)
            constraints(text)

    return read


def _newest(ledger: Ledger) -> int:
    facts = [f.ref for f in ledger.files.values()] + [c.ref for c in ledger.commands]
    return max([*facts, *ledger.read.values(), *(ref for ref, _ in ledger.words)], default=0)


def _goal(document: Document, ledger: Ledger, words: Sequence[str]) -> list[str]:
    """What says where the work is going."""
    todos = [t["content"] for t in ledger.todos]
    return [document.intent, *document.in_progress, *document.next_steps, *todos, *words[-2:]]


def _context(document: Document, ledger: Ledger, words: Sequence[str]) -> list[str]:
    """What else is known of the task."""
    rows = [f"{row.path} {row.change}" for row in document.modified]
    return [
        *words, *rows, *(row.path for row in document.read), *document.decisions, document.phase,
        *document.done, *document.blocked, *document.facts, *document.errors,
        *ledger.files, *ledger.read, *(c.command[:300] for c in ledger.commands[-100:]),
        *ledger.pins.values(),
    ]  # fmt: skip


def _stated(
    document: Document, ledger: Ledger, words: Sequence[str]
) -> Iterator[tuple[int, Constraint, str]]:
    """Each constraint with the number of the person's messages it may be older than, and where it
    stands. What the person said before the summary is looked for in the summary."""
    known = " ".join(render(document).split()).lower()
    kept = [(text, "a critical fact") for text in document.facts]
    kept += [(text, "pinned") for text in ledger.pins.values()]
    for text, where in kept:
        for constraint in constraints(text):
            # Which words are newer than a fact is not known; an order to keep to some files stands.
            yield len(words) if constraint.kind == "only" else 0, constraint, where
    for place, text in enumerate(words, 1):
        for constraint in constraints(text):
            lost = " ".join(constraint.said.split()).lower() not in known
            yield place, constraint, f"the person's words{', not in the summary' if lost else ''}"


def _union(texts: Iterable[str]) -> set[str]:
    return set[str]().union(*map(terms, texts))


def _unclear(asked: Sequence[str]) -> bool:
    """Whether too little was asked to tell what is unrelated to it, or it is asked in a script
    whose words paths and commands do not share."""
    letters = [c for c in "".join(asked)[:LETTERS] if c.isalpha()]
    foreign = sum(not c.isascii() for c in letters) * 4 > len(letters)
    return foreign or len(_union(text[:LETTERS] for text in asked[:6])) < LEAST_TERMS
