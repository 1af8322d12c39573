"""Detect drift: signs that the agent has left the task, in the turns after a summary.

A `DriftDetector` compares each reply with the summary, the ledger and the user's messages, and
checks five indicators. It uses structure only: calls, files, exit codes, todo items, question
marks. It does not interpret language and calls no model. Each indicator is reported once, with its
evidence.

Calls are checked against calls that the user denied and against rules that name a path. The code
does not decide whether a rule forbids or demands something, since that depends on the language. So
a path is only checked when a call changes a file there for the first time.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from ...lazy import dataclass
from ...session.entries import Block
from ...session.ledger import DENIAL_REASON, FileFact, Ledger
from ..document import SummaryDocument
from ..words import (
    ends_with_question,
    fit_line,
    is_brief,
    named_paths,
    only_asks,
    quote,
    search_words,
    terms,
)
from .scope import (
    CHANGING,
    CallMemory,
    TaskScope,
    agreed_plan,
    all_terms,
    alternatives_in,
    brought_in,
    call_line,
    call_subject,
    command_of,
    path_argument,
    simple_commands,
    written_paths,
)

DENIED = "not authorised: "  # prefix of a denied call in the ledger


@dataclass(frozen=True, slots=True)
class PathRule:
    """A rule of the user that names paths."""

    ref: int  # of its message
    text: str
    paths: tuple[str, ...]  # files, folders and patterns


def path_rules(rules: Iterable[tuple[int, str]]) -> list[PathRule]:
    """Return the rules that name a path. The input rules are (ref, text) pairs."""
    named = ((ref, text, named_paths(text)) for ref, text in rules)
    return [PathRule(ref, text, paths) for ref, text, paths in named if paths]


def changed_under(call: Block, names: Sequence[str], shown: Callable[[str], str]) -> str | None:
    """Return the first path that a call changes and that matches `names`, else None. `shown`
    converts a path to the session's notation.
    """
    paths = (shown(path) for path in written_paths(call))
    return next((path for path in paths if is_under(path, names)), None)


def is_under(path: str, names: Sequence[str]) -> bool:
    """Return True if a path equals one of the names, is in one of the folders, or matches one of
    the patterns.
    """
    base = path.rpartition("/")[2]
    for name in names:
        bare = name.rstrip("/*") if name.endswith(("/", "/**", "/*")) else name
        if path == bare or path.startswith(f"{bare}/"):
            return True
        if "*" in name and (fnmatchcase(path, name) or fnmatchcase(base, name)):
            return True
    return False


def is_denied_again(
    denial: str, call: Block, made: Callable[[Block], bool], shown: Callable[[str], str]
) -> bool:
    """Return True if a call does what the user denied.

    A command matches if it runs all parts of the denied command, even with more arguments or other
    commands. An edit, or a command of several lines, only matches if the same call was `made`
    before.
    """
    tool, _, title = denial.removeprefix(DENIED).partition(DENIAL_REASON)[0].partition(" ")
    if call.get("name") != tool or not title:
        return False
    if tool in CHANGING:
        return shown(path_argument(call)) == shown(title) and made(call)
    command = command_of(call).strip()
    if title.endswith(" …"):
        return made(call) and command.startswith(f"{title.removesuffix(' …')}\n")
    run = simple_commands(command)
    return bool(command) and all(_covers(run, words) for words in simple_commands(title))


def _covers(run: Collection[Sequence[str]], denied: Sequence[str]) -> bool:
    return any(words[0] == denied[0] and set(denied) <= set(words) for words in run)


Indicator = Literal["clarification", "complete", "unrelated", "contradiction", "constraint"]
Severity = Literal["LOW", "MEDIUM", "HIGH", "CRITICAL"]

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
    "unrelated": "Look at the request again, and go back to its next step.",
    "contradiction": "Look up why it was decided; keep to it, or ask before it is changed.",
    "constraint": "Do without it, or ask for permission first.",
}
MAX_EARLY_CALLS = 3  # a question after more calls is not "right after the compaction"
MAX_READ_MESSAGES = 60  # the user's newest messages
MAX_SEARCH_TERMS = 8  # to search the archive for

_READING = ("Read", "Grep", "Glob", "Recall", "Todo", "Job", "Plan")


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
    """Compares the replies after one summary with the task."""

    def __init__(
        self,
        document: SummaryDocument,
        ledger: Ledger,
        turns: int = WATCHED_TURNS,
        *,
        since: int | None = None,
        earlier: CallMemory | None = None,
        rules: Iterable[tuple[int, str]] = (),
    ) -> None:
        """Watch for `turns` turns.

        `since` is the seq of the newest entry that the document covers (default: the newest entry
        in the ledger). `earlier` has the earlier calls. `rules` has the user's rules, each with the
        ref of its message.
        """
        self._document, self._ledger, self._turns = document, ledger, turns
        self._since = newest_ref(ledger) if since is None else since
        self._is_after_summary = turns >= WATCHED_TURNS  # fewer: a resumed session or a new plan
        self._reported: set[Indicator] = set()
        self._was_continued = False  # this turn was continued because of drift, at most once
        self._messages = [text for _, text in ledger.typed_messages][-MAX_READ_MESSAGES:]
        self._new_messages: list[str] = []
        self._earlier = earlier.copy() if earlier else CallMemory()
        self._all_calls = self._earlier.copy()
        self._calls: list[Block] = []
        self._made_scope: TaskScope | None = None
        self._changed = tuple(ledger.files)
        self._deleted = {path for path, fact in ledger.files.items() if _is_removed(fact)}
        self._rules = path_rules(rules)
        self._alternatives = alternatives_in(document.decisions)

    @property
    def armed(self) -> bool:
        return self._turns > 0

    @property
    def _scope(self) -> TaskScope:
        """The scope of the task. It is made for the first reply, since the request before that
        reply should not wait for it.
        """
        if self._made_scope is None:
            self._made_scope = TaskScope(self._document, self._ledger, self._messages)
            for text in self._new_messages:
                self._made_scope.add_message(text)
        return self._made_scope

    def add_message(self, text: str) -> None:
        """Add a user message to the task."""
        self._new_messages.append(text)
        if self._made_scope is not None:
            self._made_scope.add_message(text)

    def turn_ended(self) -> None:
        self._turns -= 1
        self._is_after_summary = self._was_continued = False

    def check_reply(self, blocks: Sequence[Block], *, final: bool) -> list[Drift]:
        """Return the drift in a reply, without drift that was reported before. A `final` reply ends
        the turn.
        """
        if not self.armed:
            return []
        text = "\n".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")
        calls = [b for b in blocks if b.get("type") == "tool_use"]
        ends = final and not self._was_continued
        seen = [
            self._clarification(text) if ends else None,
            self._false_completion(text) if ends else None,
            self._unrelated_work(text, calls),
            self._contradiction(calls) or self._other_alternative(calls),
            self._broken_constraint(calls),
        ]
        self._calls += calls
        self._all_calls.add(calls, newest_ref(self._ledger))
        found = [drift for drift in seen if drift and drift.indicator not in self._reported]
        self._reported.update(drift.indicator for drift in found)
        self._was_continued = self._was_continued or (final and bool(found))
        return found

    def _new_requests(self) -> list[str]:
        """Return the new user messages that may be requests. Messages of a word or two usually mean
        "continue" and do not count.
        """
        return [text for text in self._new_messages if not is_brief(text)]

    def _open_work(self) -> list[str]:
        """Return the open todo items and summary steps. Steps that repeat a user message are left
        out.
        """
        todos = [t["content"] for t in self._ledger.todos if t["status"] != "completed"]
        done = {t["content"] for t in self._ledger.todos if t["status"] == "completed"}
        steps = (*self._document.in_progress, *self._document.next_steps)
        known = [step for step in steps if not any(m and m in step for m in self._messages)]
        return [item for item in dict.fromkeys([*todos, *known]) if item not in done]

    def _clarification(self, text: str) -> Drift | None:
        """Detect a question right after a compaction although the next steps are known. AskUser
        does not count: it asks for decisions of the user.
        """
        acted = any(call.get("name") in (*CHANGING, "Task", "AskUser") for call in self._calls)
        early = self._is_after_summary and len(self._calls) <= MAX_EARLY_CALLS and not acted
        if not early or self._new_requests() or self._earlier.asked_user or not only_asks(text):
            return None
        if self._failed_since(self._since) or self._denied_since(self._newest_message_ref()):
            return None
        if self._document.blocked or not self._open_work():
            return None
        what = f"it asks, right after a compaction, though the next steps are known: {quote(text)}"
        return _drift("clarification", what, text, self._document.intent)

    def _newest_message_ref(self) -> int:
        """Return the ref of the newest user message."""
        return max((ref for ref, _ in self._ledger.typed_messages), default=0)

    def _failed_since(self, ref: int) -> bool:
        """Return True if a command failed or a call was denied after the entry `ref`."""
        failed = any(fact.errors for fact in self._ledger.commands if fact.ref > ref)
        return failed or self._denied_since(ref)

    def _denied_since(self, ref: int) -> bool:
        return any(at > ref for at, _ in self._denials())

    def _false_completion(self, text: str) -> Drift | None:
        """Detect a turn that ends without a question, although open work is left that neither a
        call nor the reply mentions. Does not apply after a question or a new request of the user,
        since the reply is the answer to it.
        """
        asked = any(map(ends_with_question, self._messages[-1:])) or self._new_requests()
        if asked or ends_with_question(text) or self._document.blocked:
            return None
        if self._denied_since(self._newest_message_ref()):
            return None
        if not (left := self._untouched_work(text)):
            return None
        what = f"the turn ends, but still open: {fit_line('; '.join(left[:3]), 240)}"
        return _drift("complete", what, text, " ".join(left))

    def _untouched_work(self, text: str) -> list[str]:
        """Return open todos and steps that no later call and no word of the reply mentions.

        Steps count only if they name a file that the session never changed. They do not count if
        any file changed since the summary, or since the newest user message if that is older. After
        real work, todos in progress do not count, since they may be done.
        """
        ledger = self._ledger
        since = min(self._newest_message_ref(), self._since)
        changed = [fact.path for fact in ledger.files.values() if fact.ref > since]
        ran = [fact.command for fact in ledger.commands if fact.ref > self._since]
        about = all_terms([text, *map(call_subject, self._calls), *changed, *ran])
        acted = changed or ran or any(c.get("name") not in _READING for c in self._calls)
        todos = {t["content"]: t["status"] for t in ledger.todos if t["status"] != "completed"}
        work = [item for item in todos if todos[item] == "pending" or not acted]
        if not changed:
            steps = (step for step in self._open_work() if step not in todos)
            work += filter(self._names_new_file, steps)
        return [item for item in work if terms(item) and not terms(item) & about]

    def _names_new_file(self, step: str) -> bool:
        """Return True if a step names a file, and no file that the session has changed."""
        files = [path.rpartition("/")[2] for path in named_paths(step)]
        known = {path.rpartition("/")[2] for path in self._ledger.files}
        return any("." in base for base in files) and known.isdisjoint(files)

    def _unrelated_work(self, text: str, calls: Sequence[Block]) -> Drift | None:
        """Detect consecutive calls that share no terms with the task."""
        found = self._scope.unrelated_calls(text, calls)
        if not found:
            return None
        last = fit_line("; ".join(found[-3:]), 240)
        calls_said = "1 call shares" if len(found) == 1 else f"{len(found)} calls in a row share"
        about = " ".join([self._document.intent, *self._messages[-1:]])
        return _drift("unrelated", f"{calls_said} nothing with the task: {last}", found[-1], about)

    def _contradiction(self, calls: Sequence[Block]) -> Drift | None:
        """Detect a call that reverts an edit from before the summary, or recreates a file that the
        session deleted. Does not apply after a failure or if a new message names the file.
        """
        for call in calls:
            path = path_argument(call)
            shown = self._ledger.display_path(path)
            if not path or call.get("name") not in CHANGING or self._is_asked_for(shown):
                continue
            if shown in self._deleted:
                why = f"makes {shown} again, which was deleted before the summary"
            elif self._is_unrequested_revert(call):
                why = f"takes back an edit of {shown} from before the summary"
            else:
                continue
            action = call_line(call)
            return _drift("contradiction", f"{quote(action)} {why}", action, shown)
        return None

    def _other_alternative(self, calls: Sequence[Block]) -> Drift | None:
        """Detect a call that brings in a name of a decision for the first time, unless it is the
        decision's first name or somebody asked for it.
        """
        for call in calls if self._alternatives else ():
            names = brought_in(call) - self._all_calls.names
            for decision in self._alternatives:
                new = (name for name in decision.names if name in names)
                if name := next((name for name in new if not self._is_named(name)), None):
                    action, said = call_line(call), quote(decision.text)
                    what = f"check the decision {said}: {quote(action)} brings in “{name}”"
                    return _drift("contradiction", what, action, decision.text, "LOW")
        return None

    def _is_named(self, name: str) -> bool:
        """Return True if a message, the intent, the plan, an open item, an earlier command or a
        known file has a name.
        """
        ledger = self._ledger
        texts = [
            *self._messages, *self._new_messages, self._document.intent, *self._open_work(),
            *agreed_plan(ledger), *(f.command for f in ledger.commands), *self._changed,
            *ledger.read,
        ]  # fmt: skip
        return any(name in text.casefold() for text in texts)

    def _is_unrequested_revert(self, call: Block) -> bool:
        """Return True if a call reverts an edit although, since that edit, nothing failed and the
        user sent no message.
        """
        ref = self._earlier.find_reverted_edit(call)
        return ref is not None and not (self._failed_since(ref) or self._newer_messages(ref))

    def _is_asked_for(self, path: str, since: int | None = None) -> bool:
        """Return True if a newer message, the plan or an open item names the file."""
        newer = self._newer_messages(self._since if since is None else since)
        asked = [*newer, *self._open_work(), *agreed_plan(self._ledger)]
        base = path.rpartition("/")[2].casefold()
        return any(base in text.casefold() for text in asked)

    def _newer_messages(self, ref: int) -> list[str]:
        return [*(t for at, t in self._ledger.typed_messages if at > ref), *self._new_messages]

    def _broken_constraint(self, calls: Sequence[Block]) -> Drift | None:
        """Detect a call that repeats a denied call, or that changes a path named by a rule for the
        first time.
        """
        for call in calls:
            for ref, denial in self._denials():
                if self._is_denied(ref, denial, call):
                    action = call_line(call)
                    what = f"{quote(action)} does what was {quote(denial)}"
                    return _drift("constraint", what, action, denial)
            for rule in self._rules:
                path = changed_under(call, rule.paths, self._ledger.display_path)
                if path is None or any(is_under(p, rule.paths) for p in self._changed):
                    continue
                if not self._is_asked_for(path, rule.ref):
                    action, said = call_line(call), quote(rule.text)
                    what = f"check rule #{rule.ref}, {said}: it names what {quote(action)} changes"
                    return _drift("constraint", what, action, rule.text, "LOW")
        return None

    def _denials(self) -> list[tuple[int, str]]:
        """Return the denied calls, each with its ref."""
        return [row for row in self._ledger.constraints if row[1].startswith(DENIED)]

    def _is_denied(self, ref: int, denial: str, call: Block) -> bool:
        """Return True if a call repeats a denied call. It does not count if the user sent a newer
        message or gave a reason, which may allow the call in another form.
        """
        if not is_denied_again(denial, call, self._all_calls.has, self._ledger.display_path):
            return False
        return DENIAL_REASON not in denial and not self._newer_messages(ref)


def _is_removed(fact: FileFact) -> bool:
    """Return True if the file was deleted, and the deletion is the session's only change of it."""
    return fact.action == "deleted" and fact.times == 1


def _drift(
    indicator: Indicator, detection: str, current: str, about: str, severity: Severity | None = None
) -> Drift:
    return Drift(
        indicator,
        severity or SEVERITIES[indicator],
        detection,
        fit_line(current, 200),
        search_words(about, MAX_SEARCH_TERMS),
        RECOMMENDATIONS[indicator],
    )


def terms_preloader(ledger: Ledger) -> Callable[[], None]:
    """Return a function that preloads the terms of the current user messages for a `DriftDetector`.
    The function is slow and may run in a thread.
    """
    messages = [text for _, text in ledger.typed_messages[-MAX_READ_MESSAGES:]]

    def read() -> None:
        for text in messages:
            terms(text)

    return read


def newest_ref(ledger: Ledger) -> int:
    facts = [f.ref for f in ledger.files.values()] + [c.ref for c in ledger.commands]
    return max(
        [*facts, *ledger.read.values(), *(ref for ref, _ in ledger.typed_messages)], default=0
    )
