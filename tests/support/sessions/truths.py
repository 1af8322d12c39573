"""Invariants of a session, checked against its log alone, whatever happened to it.

Messages, replies, outputs and errors of a test have marks (`word12`, `error7`), so that the log
alone shows what the context must and must not contain. User messages need no mark: each must be
present in full, or by its ref if all together exceed the budget.

    for fault in Truths(entries, folder).faults(view): ...
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from ctxagent.agent.compaction.document import SummaryDocument, render
from ctxagent.agent.compaction.summary.user_messages import MIN_BUDGET_TOKENS
from ctxagent.agent.context.items import SUMMARY_SOURCE, shown_blocks
from ctxagent.agent.context.request import build_messages
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.context.view import View
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Note,
    Revert,
    Session,
    Summary,
    ToolResult,
    User,
    reverted_seqs,
)
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.store import content_text

FRAME_TOKENS = 25  # maximum overhead of a message in a summary
KINDS = {  # kinds of faults with their descriptions
    "views": "the live view is not the one that the log folds to",
    "rejected": "a request was refused by the validator",
    "crash": "a fault of the program's own",
    "summaries": "more than one summary stands in the view",
    "span": "a summary covers what it cannot",
    "conversation": "conversation.md is not the log's conversation",
    "resolved": "a resolved error stands in the newest summary",
    "error": "an open error is not in the newest summary",
    "step": "a replaced next step stands in the newest summary",
    "todo": "a finished item of the todo list stands among the next steps",
    "words": "a message of the user that fits the budget is not whole in the context",
    "ref": "a message of the user is neither in the context nor named there",
    "rule": "a rule left the summary though no later message of the user was quoted",
    "pin": "what is pinned is not in the newest summary",
    "path": "a changed file is not in the newest summary",
    "state": "the state block lacks a fact of the log, or has one that is not true",
    "tag": "a tag or fence of the answer stands in the newest summary",
}
_MARK = re.compile(r"\b(?:word|reply|output)\d+\b")
_ERROR = re.compile(r"\berror\d+\b")
_STEP = re.compile(r"\bstep\d+\b")
_TODO = re.compile(r"\btodo\d+\b")
_TAG = re.compile(r"</?summary>|^```", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str  # one of KINDS
    text: str

    def __str__(self) -> str:
        return f"{KINDS[self.kind]}: {self.text}"


@dataclass(slots=True)
class Facts:
    """The facts in the log up to some entry."""

    # The run of each command that started last: its start, ref and error, "" if none is open.
    runs: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    resolved: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)  # all errors of commands, open or not
    finished: set[str] = field(default_factory=set)  # finished items of the todo list
    _started: dict[str, int] = field(default_factory=dict)  # jobs of this process
    _ended: set[str] = field(default_factory=set)  # jobs whose end was reported

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Session):
            self._started, self._ended = {}, set()  # jobs ended with the previous process
        elif isinstance(entry, ToolResult):
            self._add_outcome(entry)
            if isinstance(todos := entry.details.get("todos"), list):
                done = [str(t["content"]) for t in todos if t["status"] == "completed"]
                self.finished = {mark for text in done for mark in _TODO.findall(text)}

    @property
    def open_errors(self) -> list[tuple[str, int]]:
        """The open errors, each with the ref of its command."""
        return [(mark, ref) for _, ref, mark in self.runs.values() if mark]

    def claim(self, mark: str, *, is_resolved: bool) -> None:
        """Record what a model claims about an error. An error that the log does not know is open
        again if the model says so.
        """
        for command, (start, ref, known) in self.runs.items() if is_resolved else ():
            if known == mark:
                self.runs[command] = start, ref, ""
        if is_resolved:
            self.resolved.add(mark)
        elif mark not in self.failed:
            self.resolved.discard(mark)

    def _add_outcome(self, entry: ToolResult) -> None:
        """Add the outcome of a command. A background command ends when Job first reports its end;
        runs that started later count instead of it.
        """
        details, since = entry.details, entry.seq
        command, code, job = (details.get(name) for name in ("command", "exit_code", "job"))
        if not isinstance(command, str) or details.get("interrupted") or job in self._ended:
            return
        if "running" in details:
            if job not in self._started:
                self._started[job] = entry.seq
                return
            since = self._started[job]
            self._ended |= {job} if code is not None and not details["running"] else set()
        if code is None or details.get("running"):
            return
        mark = "".join(_ERROR.findall(content_text(entry.content))[-1:]) if code else ""
        self.failed |= {mark} - {""}
        start, _, known = self.runs.get(command, (0, 0, ""))
        if start > since:
            self.resolved |= {mark} - {known, ""}
            return
        self.resolved |= {known} - {""}
        self.resolved.discard(mark)
        self.runs[command] = since, entry.seq, mark


class Truths:
    """The invariants of one session: its log so far, and its folder."""

    def __init__(self, entries: Sequence[Entry], folder: Path) -> None:
        self.entries, self.folder = entries, folder

    def faults(self, view: View) -> Iterator[Fault]:
        """Yield the faults of the context, the newest summary and the files next to the log."""
        context = _context_text(view)
        standing = [item for item in view.items if item.source == SUMMARY_SOURCE]
        if len({item.seq for item in standing}) > 1:
            yield Fault("summaries", f"{[item.seq for item in standing]}")
        for entry in self.entries[-20:]:
            if isinstance(entry, Note) and "traceback" in entry.data:
                yield Fault("crash", "".join(entry.data["traceback"][-3:]))
        yield from self._word_faults(view, context)
        yield from self._rule_faults()
        if view.summary:
            yield from self._summary_faults(view.summary, view)
        yield from self._state_faults(view)
        yield from self._conversation_faults()

    def _state_faults(self, view: View) -> Iterator[Fault]:
        """Yield the facts that the state block lacked when it was recorded, and its untrue ones."""
        blocks = [item.state for item in view.items if item.state]
        if len(blocks) > 1:
            yield Fault("state", f"{len(blocks)} blocks")
        masks = [e for e in self.entries if isinstance(e, Mask) and [e.state] == blocks]
        if not masks:
            return
        ledger, state = Ledger(), masks[0].state
        for entry in self.entries:
            if entry.seq < masks[0].seq:
                ledger.add(entry)
        known = [*ledger.files, *(todo["content"] for todo in ledger.todos)]
        refs = {f"#{fact.ref}" for fact in ledger.unresolved()}
        named = set(re.findall(r"#\d+", "".join(re.findall(r"(?m)^Still failing: .*", state))))
        yield from (Fault("state", f"lacks {fact}") for fact in known if fact not in state)
        yield from (Fault("state", f"lacks or has {ref}") for ref in refs ^ named)

    def _word_faults(self, view: View, context: str) -> Iterator[Fault]:
        """Yield the user messages that are missing from the context or incomplete there."""
        staying = {item.seq for item in view.items}
        said = [
            (entry.seq, content_text(entry.content))
            for entry in self.entries
            if isinstance(entry, User) and entry.source == "person" and entry.seq not in staying
        ]
        size = sum(estimate(text) + FRAME_TOKENS for _, text in said)
        for seq, text in said:
            if text not in context:
                if size <= MIN_BUDGET_TOKENS / view.ratio:
                    yield Fault("words", f"#{seq}: {text[:80]}")
                elif not re.search(rf"#{seq}\b", context) and not _in_range(seq, context):
                    yield Fault("ref", f"#{seq}: {text[:80]}")

    def _rule_faults(self) -> Iterator[Fault]:
        """Yield the rules of a summary that the next one neither contains nor lifts."""
        standing: list[Summary] = []
        later = [
            (entry.seq, content_text(entry.content))
            for entry in self.entries
            if isinstance(entry, User) and entry.source == "person"
        ]
        for entry in self.entries:
            if isinstance(entry, Revert):
                standing = [summary for summary in standing if summary.seq != entry.target]
            if not isinstance(entry, Summary):
                continue
            before = standing[-1].document.get("rules", []) if standing else []
            kept = {(rule["ref"], rule["text"]) for rule in entry.document["rules"]}
            refs = {ref for ref, text in kept if not text}
            texts = {text for _, text in kept}
            lifted = {row["text"]: row["why"] for row in entry.superseded}
            for rule in before:
                why = lifted.get(rule["text"], "")
                quoted = any(seq > rule["ref"] and f"#{seq}" in why for seq, _ in later)
                if rule["text"] not in texts and rule["ref"] not in refs and not quoted:
                    yield Fault("rule", f"#{rule['ref']}: {rule['text']}")
            standing.append(entry)

    def _facts(self, before: float = float("inf")) -> Facts:
        """Return the facts in the log before an entry, including the claims of valid summaries made
        from a model's answer.
        """
        facts, reverted = Facts(), reverted_seqs(self.entries)
        claims = dict(self._claims(reverted))
        for entry in self.entries:
            if entry.seq >= before:
                break
            facts.add(entry)
            for mark, is_resolved in claims.get(entry.seq, {}).items():
                facts.claim(mark, is_resolved=is_resolved)
        return facts

    def _claims(self, reverted: set[int]) -> Iterator[tuple[int, dict[str, bool]]]:
        """Yield the seq of the last answer from which a valid summary was made, with the errors
        that its answers name: true if resolved. A long span is asked about in parts, one answer
        for each.
        """
        asked: dict[tuple[object, object], list[Assistant]] = {}  # by attempt
        for entry in self.entries:
            if isinstance(entry, Assistant) and entry.purpose == "summary":
                attempt = entry.request.get("upto"), entry.request.get("asked")
                asked.setdefault(attempt, []).append(entry)
            elif isinstance(entry, Summary):
                steps = set(_STEP.findall(" ".join(entry.document["next_steps"])))
                for answers in asked.values() if entry.seq not in reverted else ():
                    texts = [content_text(answer.content) for answer in answers]
                    if steps & set(_STEP.findall("\n".join(texts))):
                        yield answers[-1].seq, _claimed(texts)
                asked = {}

    def _summary_faults(self, summary: Summary, view: View) -> Iterator[Fault]:
        document, facts = summary.document, self._facts(summary.seq)
        first, last = summary.covers
        if not 0 < first <= last < summary.seq:
            yield Fault("span", f"#{first} to #{last}")
        errors = (text for text in document["errors"] if not text.startswith("Failed earlier: "))
        still = "\n".join(errors)
        told = set(_ERROR.findall(still))
        yield from (Fault("resolved", mark) for mark in told & facts.resolved)
        for mark, seq in facts.open_errors:
            named = mark in told or re.search(rf"#{seq}\b", still)
            if not named and view.position(seq) is None:
                yield Fault("error", f"#{seq}: {mark}")
        new = {m for e in self._answers(summary) for m in _STEP.findall(content_text(e.content))}
        for section in ("next_steps", "in_progress"):
            for mark in _STEP.findall("\n".join(document[section])):
                if mark not in new:
                    yield Fault("step", f"{mark} in {section}")
        for mark in _TODO.findall("\n".join(document["next_steps"])):
            if mark in facts.finished:
                yield Fault("todo", mark)
        ledger = Ledger()
        for entry in self.entries:
            if entry.seq < summary.seq:
                ledger.add(entry)
        for ref, text in ledger.pins.items():
            if text not in summary.whole_text:
                yield Fault("pin", f"#{ref}: {text[:80]}")
        for path in ledger.files:
            if path not in summary.whole_text:
                yield Fault("path", path)
        # The intent and the next steps may quote the user, who may write a fence.
        bare = replace(SummaryDocument.from_json(document), intent="", rules=(), next_steps=())
        written = render(bare)
        if found := _TAG.search(written):
            yield Fault("tag", written[found.start() : found.start() + 60])

    def _answers(self, summary: Summary) -> Iterator[Assistant]:
        """Yield the answers from which a summary may have been made."""
        earlier = (e.seq for e in self.entries if isinstance(e, Summary) and e.seq < summary.seq)
        start = max(earlier, default=0)
        for entry in self.entries:
            asked = isinstance(entry, Assistant) and entry.purpose == "summary"
            if asked and start < entry.seq < summary.seq:
                yield entry

    def _conversation_faults(self) -> Iterator[Fault]:
        path = self.folder / "conversation.md"
        written = path.read_text("utf-8") if path.exists() else ""
        found = _MARK.findall(written)
        expected = [mark for text in _said(self.entries) for mark in _MARK.findall(text)]
        if found == expected:
            return
        counts, wanted = Counter(found), Counter(expected)
        parts = {"missing": wanted - counts, "too often": counts - wanted}
        told = [f"{name}: {sorted(marks)[:5]}" for name, marks in parts.items() if marks]
        yield Fault("conversation", "; ".join(told) or "not in order")


def _claimed(texts: Iterable[str]) -> dict[str, bool]:
    """Return the errors that answers name, true if the last answer about it only calls it
    resolved.
    """
    claimed: dict[str, bool] = {}
    for text in texts:
        claimed |= dict.fromkeys(re.findall(r"Resolved: .*?(error\d+)", text), True)
        claimed |= dict.fromkeys(re.findall(r"Open: .*?(error\d+)", text), False)
    return claimed


def _in_range(seq: int, context: str) -> bool:
    ranges = re.findall(r"from #(\d+) to #(\d+),", context)
    return any(int(first) <= seq <= int(last) for first, last in ranges)


def messages_digest(view: View) -> str:
    """Return a digest of the messages built from a view."""
    return sha256(json.dumps(build_messages(view.items)).encode()).hexdigest()


def digest_of_fresh_process(log: Path) -> str:
    """Return the `messages_digest` of a log from a new process that reads only the log."""
    code = (
        "import sys; from pathlib import Path; from ctxagent.agent.context.view import fold; "
        "from ctxagent.agent.session.log import read_log; "
        f"from {__name__} import messages_digest; "
        "print(messages_digest(fold(read_log(Path(sys.argv[1])).entries)))"
    )
    command = [sys.executable, "-c", code, str(log)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _said(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the texts that the model received and wrote, in order."""
    for entry in entries:
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            yield content_text([b for b in entry.content if b.get("type") == "text"])
        elif isinstance(entry, User | ToolResult):
            yield content_text(entry.content)


def _context_text(view: View) -> str:
    return "\n".join(
        text for item in view.items for block in shown_blocks(item) for text in _texts(block)
    )


def _texts(block: Mapping[str, object]) -> Iterator[str]:
    yield str(block.get("text", ""))
    content = block.get("content")
    if isinstance(content, str | list):
        yield content_text(content)
