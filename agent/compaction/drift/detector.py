"""Detects drift: whether the agent still does what was asked, for some turns after each summary.

A `DriftDetector` holds each reply against the summary, the ledger and the person's words, and knows
five indicators. It asks no model, names its evidence verbatim, reports each indicator once, and
says nothing in doubt. It only looks; the monitor tells others and searches the archive.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...context.tokens import estimate
from ...session.entries import Block
from ...session.ledger import Ledger
from ..document import SummaryDocument, render
from ..language import signs
from ..language.decisions import rejections_in
from .constraints import Constraint, breaks, constraints_in, is_lifted
from .decisions import adoption_evidence

Indicator = Literal["clarification", "complete", "unrelated", "contradiction", "constraint"]
Severity = Literal["MEDIUM", "HIGH", "CRITICAL"]

WATCHED_TURNS = 3  # after a summary
SEVERITIES: dict[Indicator, Severity] = {
    "clarification": "HIGH",
    "complete": "CRITICAL",
    "unrelated": "HIGH",
    "contradiction": "MEDIUM",
    "constraint": "HIGH",
}
RECOMMENDATIONS: dict[Indicator, str] = {
    "clarification": "Answer from the summary and the archive; ask only for what neither has.",
    "complete": "Compare with the intent; do what is still open, or name it as open.",
    "unrelated": "Read the request again, and go back to its next step.",
    "contradiction": "Look up why it was decided; keep to it, or ask before it is changed.",
    "constraint": "Do without it, or ask for permission first.",
}
MAX_EARLY_CALLS = 3  # a question after more of them does not come right after the compaction
UNRELATED_POINTS = 8  # of calls in a row; one that changes a file has 2, any other 1
MAX_READ_MESSAGES = 60  # of the person, the newest
MIN_TASK_TERMS = 3  # for anything to be unrelated to the task
MAX_CLARITY_CHARS = 2_000  # of what was asked that tell whether it is clear
MAX_SEARCH_TERMS = 8  # to search the archive for
MAX_REALIGNMENT_TOKENS = 600

_TASKS = {"Todo", "Plan"}  # calls that say what the task is
_READING = {"Read", "Grep", "Glob", "Recall", "Todo", "Job", "Plan"}


@dataclass(frozen=True, slots=True)
class Drift:
    """One indicator that was triggered."""

    indicator: Indicator
    severity: Severity
    detection: str  # what triggered it, in one line
    current: str  # what the agent is doing, in one line
    terms: str  # to search the archive for
    recommendation: str


class DriftDetector:
    """Holds the replies after one summary against what was asked."""

    def __init__(
        self,
        document: SummaryDocument,
        ledger: Ledger,
        turns: int = WATCHED_TURNS,
        *,
        since: int | None = None,
    ) -> None:
        """Watch for `turns` turns. `since` is the seq up to which the document knows: the newest
        entry when it was written, by default the newest that the ledger has now."""
        self._document, self._ledger, self._turns = document, ledger, turns
        self._since = _newest(ledger) if since is None else since
        self._first = turns >= WATCHED_TURNS  # fewer: a resumed session
        self._reported: set[Indicator] = set()
        self._new_messages: list[str] = []
        self._messages = [text for _, text in ledger.words][-MAX_READ_MESSAGES:]
        self._denied = list(ledger.denials)
        self._calls: list[Block] = []
        self._points, self._unrelated = 0, list[str]()
        self._goal = _union(_goal(document, ledger, self._messages))
        self._known = self._goal | _union(_context(document, ledger, self._messages))
        self._folders = {signs.folder_of(path) for path in (*ledger.files, *ledger.read)}
        self._rejections = rejections_in(document.decisions)
        self._constraints = list(_stated_constraints(document, ledger, self._messages))

    @property
    def armed(self) -> bool:
        return self._turns > 0

    def hear(self, words: str) -> None:
        """Take what the person said into the intent."""
        self._new_messages.append(words)
        self._goal |= signs.terms(words)
        self._known |= signs.terms(words)
        self._points, self._unrelated = 0, []
        place = len(self._messages) + len(self._new_messages)
        self._constraints += [(place, c, "the person's words") for c in constraints_in(words)]

    def turn_ended(self) -> None:
        self._turns -= 1
        self._first = False

    def check_reply(self, blocks: Sequence[Block], *, final: bool) -> list[Drift]:
        """Return what a reply shows, none of it reported before. A `final` reply ends the turn."""
        if not self.armed:
            return []
        text = "\n".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")
        calls = [b for b in blocks if b.get("type") == "tool_use"]
        seen = [
            self._clarification(text) if final else None,
            self._false_completion(text) if final else None,
            self._unrelated_work(text, calls),
            self._contradiction(blocks),
            self._broken_constraint(calls),
        ]
        self._calls += calls
        self._denied = list(self._ledger.denials)
        found = [drift for drift in seen if drift and drift.indicator not in self._reported]
        self._reported.update(drift.indicator for drift in found)
        return found

    def _clarification(self, text: str) -> Drift | None:
        """Detect a question right after a compaction that the summary or the ledger answers."""
        changed = any(call.get("name") in ("Edit", "Write", "Task") for call in self._calls)
        early = self._first and len(self._calls) <= MAX_EARLY_CALLS and not changed
        if not early or self._new_requests() or signs.INVITES.search("".join(self._messages[-1:])):
            return None
        said = signs.sentences(text)
        asked = [s for s in said if signs.ASKS_FOR_TASK.search(s) and self._has_answer(s)]
        rest = sum(len(s) for s in said if s not in asked and not signs.POLITE.search(s))
        if not asked or rest > 2 * sum(map(len, asked)):
            return None
        # With a report, after a call or where nothing is open, a question may be a courtesy.
        courtesy = rest or signs.COURTESY.search(asked[0])
        if (
            courtesy
            and (self._calls or not self._open_work())
            and not signs.LACKS_CONTEXT.search(text)
        ):
            return None
        what = f"it asks for what is known, right after a compaction: {signs.quote(asked[0])}"
        return _drift(
            "clarification", what, text, self._document.intent or " ".join(self._messages)
        )

    def _has_answer(self, question: str) -> bool:
        document, ledger = self._document, self._ledger
        if re.search(r"\b(?:errors?|traceback|stack|logs?|output)\b", question, re.I):
            return bool(document.errors or ledger.unresolved())
        if re.search(r"\b(?:code|function|module|snippet)\b", question, re.I):
            return bool(document.modified or document.read or ledger.files or ledger.read)
        return bool(document.intent.strip() or self._messages)

    def _open_work(self) -> list[str]:
        """Return what is still to be done, by the todo list and the summary."""
        todos = [t["content"] for t in self._ledger.todos if t["status"] != "completed"]
        done = {t["content"] for t in self._ledger.todos if t["status"] == "completed"}
        steps = (*self._document.in_progress, *self._document.next_steps)
        work = [step for step in steps if not signs.NO_WORK.search(step)]
        return [item for item in dict.fromkeys([*todos, *work]) if item not in done]

    def _false_completion(self, text: str) -> Drift | None:
        """Detect that the work is declared complete without a deliverable."""
        said = signs.sentences(text)
        claims = [s for s in said if signs.DONE.search(s) and not signs.NOT_DONE.search(s)]
        if not claims or any(signs.STILL_OPEN.search(s) for s in said):
            return None
        new = self._new_requests()
        asked = new or [
            self._document.intent, *self._document.next_steps, *self._messages[-1:],
            *_agreed_plan(self._ledger),
        ]  # fmt: skip
        missing = [path for path in signs.deliverables("\n".join(asked)) if not self._is_made(path)]
        left: list[str] = []
        if not new and any(signs.WORK.search(text) for text in asked):
            left = self._unstarted_steps(text)
        if not missing and not left:
            return None
        lacks = [f"{path} was never written" for path in missing]
        lacks = list(dict.fromkeys([*lacks, *(f"still open: {item}" for item in left)]))
        what = f"it says {signs.quote(claims[0])}, but {signs.fit_line('; '.join(lacks[:3]), 240)}"
        return _drift("complete", what, text, " ".join([*missing, *left]))

    def _new_requests(self) -> list[str]:
        """Return what the person said since, apart from telling the agent to go on."""
        return [text for text in self._new_messages if not signs.says_go_on(text)]

    def _unstarted_steps(self, text: str) -> list[str]:
        """Return planned steps that no later call relates to. After real work the steps of the
        summary may be outdated: then only todos count that are pending and that the reply does not
        mention."""
        ledger = self._ledger
        changed = [f.path for f in ledger.files.values() if f.ref > self._since]
        ran = [c.command for c in ledger.commands if c.ref > self._since]
        about = _union([*map(signs.call_subject, self._calls), *changed, *ran])
        acted = any(str(call.get("name")) not in _READING for call in self._calls)
        if not (acted or changed or ran):
            return [item for item in self._open_work() if not signs.terms(item) & about]
        pending = [t["content"] for t in ledger.todos if t["status"] == "pending"]
        about |= signs.terms(text)
        return [item for item in pending if signs.terms(item) and not signs.terms(item) & about]

    def _is_made(self, path: str) -> bool:
        base = path.rpartition("/")[2]
        ledger = self._ledger
        known = [*ledger.files, *ledger.read, *(c.command for c in ledger.commands)]
        return any(
            base in k for k in (*known, *self._document.done, *map(signs.call_subject, self._calls))
        )

    def _unrelated_work(self, text: str, calls: Sequence[Block]) -> Drift | None:
        """Detect calls in a row that share no word or folder with all that is known of the task.
        What a related call brings up is related from then on."""
        explained = len(signs.terms(text) & self._goal) > 1
        for call in calls:
            name = call.get("name")
            about = (
                str(call.get("input")) if name in _TASKS else self._shown(signs.call_subject(call))
            )
            words = signs.terms(about)
            near = {signs.folder_of(path) for path in signs.paths_in(about)} & self._folders
            if explained or near or words & self._known or name in _TASKS:
                self._known |= words
                self._folders |= {signs.folder_of(path) for path in signs.paths_in(about)}
                self._points, self._unrelated = 0, []
            elif words and name not in ("Recall", "Job"):
                self._points += 2 if name in ("Edit", "Write") else 1
                self._unrelated.append(signs.call_line(call))
        asked = [self._document.intent, *self._messages, *self._new_messages]
        if self._points < UNRELATED_POINTS * (2 if self._new_requests() else 1) or _unclear(asked):
            return None
        count, last = len(self._unrelated), "; ".join(self._unrelated[-3:])
        what = f"{count} calls in a row share nothing with the task: {signs.fit_line(last, 240)}"
        intent = " ".join([self._document.intent, *self._messages[-1:]])
        return _drift("unrelated", what, self._unrelated[-1], intent)

    def _shown(self, subject: str) -> str:
        cwd = self._ledger.cwd.rstrip("/")
        return subject.replace(f"{cwd}/", "").replace(cwd, ".") if cwd else subject

    def _contradiction(self, blocks: Sequence[Block]) -> Drift | None:
        """Detect that a reply takes up what an earlier decision ruled out."""
        newer = "\n".join(self._new_messages).lower()
        for rejection in self._rejections:
            evidence = None if rejection.name in newer else adoption_evidence(rejection, blocks)
            if evidence:
                decision = signs.quote(rejection.said)
                what = f"{signs.quote(evidence)} goes against the decision {decision}"
                return _drift("contradiction", what, evidence, rejection.said)
        return None

    def _broken_constraint(self, calls: Sequence[Block]) -> Drift | None:
        """Detect a call that breaks a stated constraint, also one that the summary lost."""
        said = [*self._messages, *self._new_messages]
        denied = [
            (len(self._messages), c, "a call that was not authorised")
            for text in self._denied
            for c in constraints_in(text)
        ]
        for call in calls:
            for place, constraint, where in (*self._constraints, *denied):
                broken = breaks(constraint, call, self._ledger.display_path)
                if broken and not is_lifted(constraint, said[place:]):
                    action = signs.call_line(call)
                    what = f"{signs.quote(action)} breaks {signs.quote(constraint.said)} ({where})"
                    return _drift("constraint", what, action, constraint.said)
        return None


def warning(drift: Drift, intent: str) -> str:
    """Return the warning that the person is shown."""
    return (
        "⚠ **Goal Drift Warning**\n\n"
        f"**Detection:** {drift.severity}: {drift.detection}\n"
        f"**Original Intent:** {signs.fit_line(intent, 400) or 'not recorded'}\n"
        f"**Current Action:** {drift.current}\n\n"
        f"**Recovery Action:**\nSearching the archive for: {drift.terms}\n\n"
        f"**Recommendation:** {drift.recommendation}"
    )


def realignment(
    drift: Drift, document: SummaryDocument, words: Sequence[str], found: Sequence[str]
) -> str:
    """Return what the model is told, in at most MAX_REALIGNMENT_TOKENS estimated tokens. It is the
    intent and the person's own words again, what the archive has, and to go on. `found` are lines
    of the archive with their refs."""
    text = ""
    for limit in (400, 200, 100, 50, 25):
        text = "\n".join(_notice(drift, document, words, found, limit))
        if estimate(text) <= MAX_REALIGNMENT_TOKENS:
            break
    return text


def _notice(
    drift: Drift, document: SummaryDocument, words: Sequence[str], found: Sequence[str], limit: int
) -> list[str]:
    said = [text for text in words if text.strip()]
    said = [*said[:1], *said[-2:]] if len(said) > 3 else said
    intent = signs.fit_line(document.intent, 2 * limit) or "see the words below"
    lines = [
        "[Goal check] This is a notice of the program, not the person's words.",
        f"Noticed after the summary: {signs.fit_line(drift.detection, 2 * limit)}",
        f"The intent of this session: {intent}",
    ]
    if said:
        lines += ["The person's own words:", *(f"> {signs.fit_line(text, limit)}" for text in said)]
    if document.next_steps:
        lines += [
            "Next steps:",
            *(f"- {signs.fit_line(s, limit // 2)}" for s in document.next_steps[:3]),
        ]
    if found:
        lines += [
            "From the archive:",
            *(f"- {signs.fit_line(item, limit // 2)}" for item in found[:6]),
        ]
    lines.append(
        f"{drift.recommendation} If the person's newest words ask for just this, say so in one "
        "sentence. Then go on with the task."
    )
    return lines


def _drift(indicator: Indicator, detection: str, current: str, about: str) -> Drift:
    return Drift(
        indicator,
        SEVERITIES[indicator],
        detection,
        signs.fit_line(current, 200),
        signs.search_words(about, MAX_SEARCH_TERMS),
        RECOMMENDATIONS[indicator],
    )


def prepare_reading(ledger: Ledger) -> Callable[[], None]:
    """Return a function that reads ahead what a `DriftDetector` needs of today's words. The
    function takes time and may run in a thread."""
    words = [text for _, text in ledger.words[-MAX_READ_MESSAGES:]]

    def read() -> None:
        for text in words:
            signs.terms(text)
            constraints_in(text)

    return read


def _newest(ledger: Ledger) -> int:
    facts = [f.ref for f in ledger.files.values()] + [c.ref for c in ledger.commands]
    return max([*facts, *ledger.read.values(), *(ref for ref, _ in ledger.words)], default=0)


def _goal(document: SummaryDocument, ledger: Ledger, words: Sequence[str]) -> list[str]:
    """Return the texts that say where the work is going."""
    todos = [t["content"] for t in ledger.todos]
    steps = (*document.in_progress, *document.next_steps)
    return [document.intent, *steps, *todos, *_agreed_plan(ledger), *words[-2:]]


def _agreed_plan(ledger: Ledger) -> list[str]:
    """Return the plan that the person agreed to, none where there is none."""
    return [ledger.plan.text] if ledger.plan and ledger.plan.agreed else []


def _context(document: SummaryDocument, ledger: Ledger, words: Sequence[str]) -> list[str]:
    """Return the other texts that tell of the task."""
    rows = [f"{row.path} {row.change}" for row in document.modified]
    return [
        *words, *rows, *(row.path for row in document.read), *document.decisions, document.phase,
        *document.done, *document.blocked, *document.facts, *document.errors,
        *ledger.files, *ledger.read, *(c.command[:300] for c in ledger.commands[-100:]),
        *ledger.pins.values(),
    ]  # fmt: skip


def _stated_constraints(
    document: SummaryDocument, ledger: Ledger, words: Sequence[str]
) -> Iterator[tuple[int, Constraint, str]]:
    """Yield each constraint, how many messages of the person it may be newer than, and its origin.
    What the person said before the summary is looked for in the summary."""
    known = " ".join(render(document).split()).lower()
    kept = [(text, "a critical fact") for text in document.facts]
    kept += [(text, "pinned") for text in ledger.pins.values()]
    kept += [(text, "the agreed plan") for text in _agreed_plan(ledger)]
    for text, where in kept:
        for constraint in constraints_in(text):
            # Which messages are newer than a fact is not known. An order to change only some files
            # stands until a newer message.
            yield len(words) if constraint.kind == "only" else 0, constraint, where
    for place, text in enumerate(words, 1):
        for constraint in constraints_in(text):
            lost = " ".join(constraint.said.split()).lower() not in known
            yield place, constraint, f"the person's words{', not in the summary' if lost else ''}"


def _union(texts: Iterable[str]) -> set[str]:
    return set[str]().union(*map(signs.terms, texts))


def _unclear(asked: Sequence[str]) -> bool:
    """Return whether the words do not show what is unrelated to them: they are too few, or in a
    script (such as Cyrillic) that shares no words with paths and commands."""
    letters = [c for c in "".join(asked)[:MAX_CLARITY_CHARS] if c.isalpha()]
    foreign = sum(not c.isascii() for c in letters) * 4 > len(letters)
    return foreign or len(_union(text[:MAX_CLARITY_CHARS] for text in asked[:6])) < MIN_TASK_TERMS
