"""Objections to a call, and the answers that lift each kind.

A call collects all its objections first. The decision depends only on them and on the answers that
were given (rules, mode, sandbox). So no order of checks can skip an objection. What lifts a kind is
in `TABLE` alone.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from ...tools.system.phrasing import shorten
from ..config.settings import PermissionMode
from ..lazy import dataclass
from .rules import Rule

VerdictAction = Literal["allow", "ask", "deny"]

MAX_QUOTED_COMMAND_CHARS = 80  # of a command in a reason
PLAN_MODE_REFUSAL = (
    "plan mode is on: nothing may be edited, and only commands that look may run. Finish the plan "
    "and propose it"
)
READ_ONLY_REFUSAL = (
    "this subagent only looks: it edits nothing and runs only commands that plainly read"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one call."""

    action: VerdictAction
    reason: str  # for the user and the model
    # The rule that decided. If the call needs approval, is confined, or is denied by plan mode: the
    # narrowest rule that would allow it.
    rule: str = ""
    # The call is allowed without asking only because it runs in the sandbox.
    confined: bool = False
    # A read-only command. If the kernel supports it, the command runs without network, writes
    # nothing, and reads only the project and the system folders.
    read_only: bool = False
    # The command may write to the project's repository (.git): it is a plain git command, or the
    # user was shown that it writes there.
    writes_repository: bool = False
    path: str = ""  # the resolved path of the call, if it has one
    opens: tuple[str, ...] = ()  # files outside the sandbox that the command visibly reads


MAY_CHANGE = " may change something"  # after the command, in a reason


def quoted_command(source: str) -> str:
    """Return a command as one quoted and shortened line for a reason."""
    return f"`{shorten(' '.join(source.split()), MAX_QUOTED_COMMAND_CHARS)}`"


AnswerKind = Literal[
    "rule", "hiding", "exact", "every", "edits", "host", "sandbox", "bypass", "user"
]
ObjectionKind = Literal[
    "denied", "impossible", "bounds", "looks", "ask-rule", "rule-may-match", "denied-files",
    "asked-files", "git-content", "git-programs", "git-outside", "unclear", "unclear-rules",
    "unclear-file", "links", "names", "program", "option", "change", "outside", "edit",
    "path-folder", "protected", "search", "call", "page", "network-host", "beyond-sandbox",
    "history",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ObjectionRow:
    """What one kind of objection means, and what lifts it. An empty `lifted_by` means never."""

    meaning: str
    lifted_by: frozenset[AnswerKind]
    plan_refuses: bool  # plan mode denies the call; no answer lifts the objection there


# What each answer is, for the guide.
ANSWERS: Mapping[AnswerKind, str] = {
    "rule": "an allow rule that covers the part of the command, the path, or the call",
    "hiding": "such a rule, while the sandbox hides the files that deny rules name",
    "exact": "an allow rule with the exact text of the whole command",
    "every": "the allow rule `Bash`",
    "edits": "the modes `accept-edits` and `sandboxed`",
    "host": "the program that runs the agent gave the tool to the session",
    "sandbox": "a command without a question in the sandbox",
    "bypass": "the mode `bypass`",
    "user": "your own answer",
}


def _row(meaning: str, *lifted_by: AnswerKind, plan_refuses: bool = True) -> ObjectionRow:
    return ObjectionRow(meaning, frozenset(lifted_by), plan_refuses)


# The last resorts for a command whose text does not show enough for a rule with other words.
_UNCLEAR: tuple[AnswerKind, ...] = ("exact", "every", "sandbox", "bypass", "user")

TABLE: Mapping[ObjectionKind, ObjectionRow] = {
    "denied": _row("A deny rule matches."),
    "impossible": _row("The command is too long for a shell."),
    "bounds": _row('`sandbox.mode` is `"require"`, and the path is outside the sandbox.'),
    "looks": _row("A subagent that only looks would change something."),
    "ask-rule": _row("An ask rule matches.", "bypass", "user", plan_refuses=False),
    "rule-may-match": _row(
        "A deny or ask rule for commands may match a word that only the running shell knows.",
        "exact", "bypass", "user",
    ),
    "denied-files": _row(
        "The command may read files that deny rules name, without naming them.",
        "hiding", "exact", "sandbox", "bypass", "user",
    ),
    "asked-files": _row(
        "The command may read files that ask rules name, without naming them.",
        "exact", "sandbox", "bypass", "user",
    ),
    "git-content": _row(
        "Git may show stored content of files that deny or ask rules name.",
        "exact", "bypass", "user",
    ),
    "git-programs": _row(
        "The repository's settings or hooks make git run programs.", *_UNCLEAR
    ),
    "git-outside": _row("The repository's own files lead git out of it.", *_UNCLEAR),
    "unclear": _row("The text does not show what the command does.", *_UNCLEAR),
    "unclear-rules": _row(
        "The same, and there are deny or ask rules for commands.",
        "exact", "every", "bypass", "user",
    ),
    "unclear-file": _row(
        "The text does not show which files the command uses.", "rule", *_UNCLEAR
    ),
    "links": _row("A search follows links, which may lead anywhere.", *_UNCLEAR),
    "names": _row(
        "The command gives file names to another one, and is not read-only as a whole.",
        "rule", *_UNCLEAR,
    ),
    "program": _row("The program is in a folder that commands can write to.", *_UNCLEAR),
    "option": _row(
        "A rule names the program, but does not cover an option or path.",
        "exact", "sandbox", "bypass", "user",
    ),
    "change": _row("The command may change something.", "rule", *_UNCLEAR),
    "outside": _row("A path is outside the project.", "rule", *_UNCLEAR, plan_refuses=False),
    "edit": _row("A file is edited.", "rule", "edits", *_UNCLEAR),
    "path-folder": _row("A file in a folder of the PATH is edited.", "rule", *_UNCLEAR),
    "protected": _row("A protected name is edited.", "rule", *_UNCLEAR),
    "search": _row(
        "Grep may find text in files that ask rules name.",
        "rule", "bypass", "user", plan_refuses=False,
    ),
    "call": _row("A tool may change something.", "rule", "host", "bypass", "user"),
    "page": _row("A tool reaches a web host.", "rule", "bypass", "user", plan_refuses=False),
    "network-host": _row(
        "A command reaches a host that `sandbox.network` does not list.", "rule", "user"
    ),
    "beyond-sandbox": _row(
        "Only the sandbox would allow the command, and it needs more: the network, the rights of "
        "another user, a service of the system, a protected file, or a path outside the project.",
        "user",
    ),
    "history": _row(
        "Only the sandbox would allow the command, and git may delete commits or stashes.", "user"
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Objection:
    """One reason why a call may need approval or is denied."""

    kind: ObjectionKind
    reason: str  # for the user and the model
    rule: str = ""  # the rule that raised it, else the narrowest rule that would lift it
    covered_by: Rule | None = None  # the allow rule for the part, the path or the call

    @property
    def row(self) -> ObjectionRow:
        return TABLE[self.kind]


def by_rule(kind: Literal["denied", "ask-rule"], what: str, rule: Rule) -> Objection:
    """Return the objection of a deny or ask rule to `what`, a description for the user."""
    how = "is denied by" if kind == "denied" else "needs approval due to"
    return Objection(kind, f"{what} {how} the rule {rule}", str(rule))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers that a call has before anyone is asked."""

    mode: PermissionMode
    whole: Rule | None = None  # the allow rule for the whole text of the command
    hiding: bool = False  # the sandbox hides the files that deny rules name
    host: bool = False  # the program that runs the agent gave the tool to the session
    sandbox: bool = False  # the command may run in the sandbox without a question
    bypass: bool = False

    def to(self, objection: Objection) -> frozenset[AnswerKind]:
        """Return the answers that apply to one objection."""
        whole: AnswerKind = "every" if self.whole and self.whole.any else "exact"
        covered = objection.covered_by is not None
        given: dict[AnswerKind, bool] = {
            "rule": covered,
            "hiding": covered and self.hiding,
            whole: self.whole is not None,
            "edits": self.mode in ("accept-edits", "sandboxed"),
            "host": self.host,
            "sandbox": self.sandbox,
            "bypass": self.bypass,
        }
        return frozenset(answer for answer, is_given in given.items() if is_given)

    def lift(self, objection: Objection) -> bool:
        """Return True if an answer lifts the objection."""
        return not self.refuse(objection) and bool(objection.row.lifted_by & self.to(objection))

    def refuse(self, objection: Objection) -> bool:
        """Return True if plan mode denies the call because of the objection."""
        return self.mode == "plan" and objection.row.plan_refuses

    def deny(self, objection: Objection) -> bool:
        """Return True if an objection that these answers do not lift denies the call."""
        return "user" not in objection.row.lifted_by or self.refuse(objection) or self.bypass


def decide(objections: Sequence[Objection], answers: Answers, what: str, allowed: str) -> Verdict:
    """Return the verdict on a call with these objections and answers. `what` describes the call for
    the user. `allowed` is the reason if no answer was needed.
    """
    left = [each for each in objections if not answers.lift(each)]
    if denied := next(filter(answers.deny, left), None):
        by_mode = bool(denied.row.lifted_by) and answers.refuse(denied)
        return Verdict("deny", PLAN_MODE_REFUSAL if by_mode else denied.reason, denied.rule)
    if left:
        return Verdict("ask", left[0].reason, left[0].rule)
    if answers.bypass and objections:
        reason = "bypass mode: no deny rule forbids it"
        return Verdict("allow", reason, objections[0].rule)
    if answers.sandbox:
        reason = "the sandbox confines it"
        return Verdict("allow", reason, objections[0].rule, confined=True)
    rule = answers.whole or next((e.covered_by for e in objections if e.covered_by), None)
    reason = f"{what} is allowed by the rule {rule}" if rule else allowed
    return Verdict("allow", reason, str(rule or ""))
