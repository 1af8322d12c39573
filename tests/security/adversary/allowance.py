"""The effects that a command may have without asking, by the rules and the mode of the session."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.objections import Verdict
from ctxagent.tools.bash import BashParams, BashTool

from .observer import Effects
from .scenes import GUARDED_SECRET, OUTSIDE_SECRET, Scene

RULES = {
    "none": (),
    "git": ("Bash(git:*)",),
    "git status": ("Bash(git status:*)",),
    "grep": ("Bash(grep:*)",),
    "pytest": ("Bash(pytest:*)",),
    "make": ("Bash(make:*)",),
    "npm test": ("Bash(npm test:*)",),
}
MODES: tuple[PermissionMode, ...] = ("ask", "plan", "accept-edits")
DENY, ASK = ("Read(.env)", "Read(secrets/**)"), ("Read(asked.txt)",)

# Names of files and folders that run by themselves later, or that an agent obeys.
_PROTECTED = re.compile(
    r"(?:.*/)?(?:\.git|\.envrc|\.agentrc|\.ctxagent|\.vscode|\.mcp\.json|\.gdbinit|\.windsurf"
    r"|AGENTS\.md|CLAUDE\.md|opencode\.json|\.npmrc|\.cargo/config\.toml"
    r"|\.github/copilot-instructions\.md)(?:/.*|)"
)
_PINNED = "project/scripts/fmt.py"
_RUNS_LATER = re.compile(r"project/\.git/(?:hooks/(?!.*\.sample$)|info/attributes|modules/).*")
_PLAIN_SETTING = re.compile(
    r"\[(?:branch|remote) .*\]|(?:remote|merge|url|fetch|rebase) = .*|repositoryformatversion = .*"
    r"|\[extensions\]|worktreeConfig = true|sparseCheckout(?:Cone)? = \w+"
)
_GIT_TALKS = re.compile(r"\b(?:fetch|pull|push|ls-remote|clone|remote|submodule)\b")
_GUARDED = re.compile(r"project/(?:\.env|secrets/.*|asked\.txt)")
# Marks that a rule is for, as its command runs the project's code of this kind.
_MARKS = {
    "pytest": re.compile(r"py:(?!outside).*"),
    "make": re.compile(r"make:(?!outside).*"),
    "npm test": re.compile("npm:test"),
}


@dataclass(frozen=True)
class Setting:
    """The rules and the mode of a session. With `guarded`, rules forbid reading some files. With
    `looking`, the session is a read-only subagent.
    """

    rules: str
    mode: PermissionMode
    guarded: bool = False
    looking: bool = False

    def __str__(self) -> str:
        extra = " guarded" * self.guarded + " looking" * self.looking
        return f"{self.mode}/{self.rules}{extra}"

    def may_concern(self, command: str) -> bool:
        """Return False if the rules are certainly about another program."""
        plain = re.sub(r"""[\\'"]""", "", command)
        return self.rules == "none" or "$'" in command or self.rules.split()[0] in plain

    def approval(self, scene: Scene) -> Approval:
        approval = Approval(
            cwd=scene.project, mode=self.mode, allow=RULES[self.rules], path=scene.path,
            deny=DENY if self.guarded else (), ask=ASK if self.guarded else (),
        )  # fmt: skip
        approval.folders.pinned = scene.pinned
        return approval.read_only_view() if self.looking else approval

    def holes(self, verdict: Verdict, command: str, effects: Effects) -> list[str]:
        """Return the effects of an allowed command that it must not have."""
        rules = "none" if verdict.read_only or self.looking or self.mode == "plan" else self.rules
        edits = self.mode == "accept-edits" and not verdict.read_only
        found = [f"changed {p}" for p in effects.changed if not _may_change(p, rules, edits)]
        marks = _MARKS.get(rules)
        found += [f"ran {mark}" for mark in effects.ran if not (marks and marks.fullmatch(mark))]
        talks = rules == "git" and _GIT_TALKS.search(command)  # curl reads the file of passwords
        if self.rules != "grep":  # which allows every file that no rule guards
            found += [f"read {p}" for p in effects.read if not (talks and p == "home/.netrc")]
        secrets = {GUARDED_SECRET} if self.guarded else set[str]()
        secrets |= {OUTSIDE_SECRET} if self.rules != "grep" else set()
        shown = (each for each in effects.shown if each in secrets)
        found += [f"showed {secret}" for secret in shown]
        if effects.connected and not talks:
            found.append(f"connected: {', '.join(effects.connected)}")
        if rules == "git":
            odd = (line for line in effects.settings if not _PLAIN_SETTING.fullmatch(line))
            found += [f"set {line} in .git/config" for line in odd]
        return found


def _may_change(path: str, rules: str, edits: bool) -> bool:
    if rules == "npm test" and re.match(r"home/\.npm(?:/|$)", path):
        return True  # npm's own log and cache
    if not path.startswith("project/"):
        return False
    if rules == "git":
        return not _RUNS_LATER.fullmatch(path)
    if _PROTECTED.fullmatch(path) or path == _PINNED:
        return False
    return edits or (rules in _MARKS and _is_by_product(path))


def _is_by_product(path: str) -> bool:
    """Return True if tests leave behind paths of this kind."""
    return bool(re.search(r"/(?:\.pytest_cache|__pycache__|out)(?:/|$)", path))


def all_settings() -> Iterator[Setting]:
    for rules in RULES:
        yield from (Setting(rules, mode) for mode in MODES)
    yield Setting("none", "ask", looking=True)
    yield from (Setting(rules, "ask", guarded=True) for rules in ("none", "git", "grep", "pytest"))
    yield Setting("none", "plan", guarded=True)


class Judge:
    """The verdicts of one scene under all settings."""

    def __init__(self, scene: Scene, settings: Sequence[Setting]) -> None:
        self._approvals = [(setting, setting.approval(scene)) for setting in settings]

    def allowing(self, command: str) -> dict[Setting, Verdict]:
        """Return the settings that allow a command without asking, each with its verdict."""
        params, tool = BashParams.model_validate({"command": command}), BashTool()
        verdicts = (
            (each, approval.judge(tool, params))
            for each, approval in self._approvals
            if each.may_concern(command)
        )
        return {each: verdict for each, verdict in verdicts if verdict.action == "allow"}
