"""Permissions: judge every tool call before it runs, and show why it needs approval.

Judging never raises. The objections to a call are collected first (`command_objections.py`,
`path_judge.py`). Rules, the mode and the sandbox then lift those that the table in `objections.py`
lets them lift. A path is allowed if it is allowed both as written and with links resolved, and
denied if either form is. A shell command is allowed if every part is allowed or read-only, and
denied if any part is. A question names the parts that no rule allows, dangerous parts first.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.settings import PermissionMode
from ..lazy import regex
from .command_objections import Collected, CommandObjections
from .objections import (
    READ_ONLY_REFUSAL,
    Answers,
    Objection,
    Verdict,
    by_rule,
    decide,
    quoted_command,
)
from .path_judge import PathJudge
from .paths import WorkFolders, all_path_forms, is_within, path_forms, protected_name
from .rule_set import RuleKind, RuleSet
from .rules import Rule, allows_text
from .shell import git
from .shell.command_table import keeps_history
from .shell.parser import Script, SimpleCommand, Word, parse
from .shell.reach import Programs, may_write_repository, need_beyond_sandbox, paths_read
from .shell.read_only import changes_no_file

if TYPE_CHECKING:
    from ...tools.base import Params, Tool
    from ...tools.system.confinement import Confinement

Cause = tuple[str, str]  # the text of a part, and why it needs approval
# The part (None for a file), its text, and its verdict.
Judged = tuple[SimpleCommand | None, str, Verdict]

MAX_TEXT_LINES = 20  # dangerous lines shown from an embedded script
# Calls that delete, overwrite or change privileges, in bash or in an embedded script.
_DANGEROUS = regex(
    r"(?<![\w.-])(?:(?:rm|rmdir|shred|dd|mkfs(?:\.\w+)?|wipefs|unlink|truncate|sudo|doas|chmod|chown)"
    r"\s+[-/~$.\w\"']|find\s[^\n]*-delete\b|git\s[^\n;&|]*(?:\s-f\b|--(?:force|hard|delete|mirror)))"
    r"|(?:rmtree|os\.(?:remove|unlink|system|removedirs)|subprocess\.\w+|rmSync|unlinkSync|execSync)\("
)
_HOLDS_TEXT = regex(r"\n|\s-\w*[ce]\s|<<")  # a script for a shell or another program


def causes_of(script: Script, judged: Sequence[Judged]) -> list[Cause]:
    """Return the parts that need approval, and dangerous lines in a text that is passed to a
    program. The shell does not run these lines, but the program may.
    """
    asked = [
        (_is_dangerous(part, text), text, verdict.reason)
        for part, text, verdict in judged
        if verdict.action == "ask"
    ]
    named = [text for _, text, _ in asked]
    asked += [(True, line, reason) for line, reason in _dangerous_lines(script.text, named)]
    asked.sort(key=lambda each: not each[0])
    return list(dict.fromkeys((text, reason) for _, text, reason in asked))


def _is_dangerous(part: SimpleCommand | None, text: str) -> bool:
    throws_away = part is not None and part.name == "git" and not keeps_history(part)
    return throws_away or _DANGEROUS.match(text) is not None


def _dangerous_lines(text: str, named: Sequence[str]) -> Iterator[Cause]:
    """Yield lines with a dangerous command that is not already among the named commands."""
    if not _HOLDS_TEXT.search(text):
        return
    count = 0
    for line in text.split("\n"):
        for found in _DANGEROUS.finditer(line):
            if count < MAX_TEXT_LINES and not any(each.startswith(found[0]) for each in named):
                count += 1
                shown = line[found.start() :].strip()
                yield shown, f"a program may run {quoted_command(shown)}"
                break


MAX_COMMAND_BYTES = 131_071  # Linux starts no program with a longer argument
MAX_ASKED = 50  # calls kept for rule suggestions


class Approval:
    """The rules and the mode of a session. Malformed rules raise UsageError. `readable` folders
    outside the project are read without asking. `own` are the agent's own files and folders, which
    no mode allows to edit. `given` names the host's tools, which run without asking except in plan
    mode. With `sandboxed`, sandboxed commands run without asking in the modes `ask` and
    `accept-edits`. `path` is the PATH (None: the process's).
    """

    def __init__(
        self,
        *,
        mode: PermissionMode = "ask",
        sandboxed: bool = False,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        cwd: Path,
        readable: Sequence[Path] = (),
        own: Sequence[Path] = (),
        given: Sequence[str] = (),
        path: str | None = None,
    ) -> None:
        self.first_mode = mode  # at program start
        self._mode: list[PermissionMode] = [mode]  # a list, so that views share it
        self._sandboxed = [sandboxed]
        self.sandbox: Confinement | None = None  # of the session's commands
        # Whether the kernel confines read-only commands to the project and the system folders.
        self.kernel_confines_read_only: Callable[[], bool] = lambda: False
        # The newest calls that the user was asked about.
        self.asked: deque[tuple[Tool[Any], Params]] = deque(maxlen=MAX_ASKED)
        self._read_only = False
        self.folders = WorkFolders(cwd)
        self._cwd = self.folders.cwd
        self._readable = all_path_forms(readable)
        self.own = all_path_forms(own)
        self._given = frozenset(given)
        search = os.environ.get("PATH", os.defpath) if path is None else path
        self._programs = Programs(search, self.folders)
        self._rules = RuleSet(self.folders, {"deny": deny, "ask": ask, "allow": allow})

    @property
    def mode(self) -> PermissionMode:
        return self._mode[0]

    @mode.setter
    def mode(self, mode: PermissionMode) -> None:
        self._mode[0] = mode

    @property
    def sandboxed(self) -> bool:
        """Whether sandboxed commands run without asking in the current mode."""
        asks = self._sandboxed[0] and self.mode in ("ask", "accept-edits")
        return asks or self.mode == "sandboxed"

    @sandboxed.setter
    def sandboxed(self, chosen: bool) -> None:
        self._sandboxed[0] = chosen

    @property
    def unconfined(self) -> str:
        """Why even sandboxed commands need approval; "" if they can run without asking."""
        return self.sandbox.unasked_absent if self.sandbox else "the sandbox is off."

    def would_confine(self, tool: "Tool[Any]", params: "Params") -> bool:
        """Return True if the `sandboxed` setting would let this call run without asking."""
        view = copy(self)
        view._sandboxed = [True]
        return not self.sandboxed and view.judge(tool, params).confined

    def in_mode(self, mode: PermissionMode) -> "Approval":
        """Return a view with the same rules in another mode."""
        view = copy(self)
        view._mode = [mode]
        return view

    def read_only_view(self) -> "Approval":
        """Return a view with the same rules that denies every call that may change something."""
        view = copy(self)
        view._read_only = True
        return view

    def allow_for_session(self, rule: str) -> None:
        """Allow the calls that `rule` matches for the rest of the session."""
        if rule not in self.rules()["session"]:
            self._rules.add("session", rule)

    def revoke(self, rule: str) -> bool:
        """Remove an allow rule. Return True if it existed."""
        before = self.rules()
        self._rules.remove_allowing(rule)
        return before != self.rules()

    def with_rule(self, rule: str) -> "Approval":
        """Return a copy with the same mode and one more allow rule. Raises UsageError."""
        copied = copy(self)
        copied._rules = self._rules.with_rule(rule)
        return copied

    def names_host(self, tool: str, host: str) -> bool:
        """Return True if an allow rule names this host for a tool."""
        rules = self.rules()
        return f"{tool}({host})" in (*rules["allow"], *rules["session"])

    def rules(self) -> Mapping[str, Sequence[str]]:
        """Return the rule texts by kind, strongest kind first, for display."""
        return self._rules.texts()

    def judge(self, tool: "Tool[Any]", params: "Params") -> Verdict:
        """Return the verdict on a call: allow, ask or deny."""
        subject = tool.subject(params)
        if self._read_only and not self._changes_nothing(tool, subject):
            return self._decide([Objection("looks", READ_ONLY_REFUSAL)], tool.name)
        if tool.effect in ("read", "edit"):
            return self._paths.judge(tool.name, subject, edits=tool.effect == "edit")
        if tool.name == "Bash":
            return self._judge_command(subject)
        shown = f"{tool.name} {subject}".strip()
        found = list(self._of_call(tool.name, subject, harmless=tool.effect == "none"))
        given = tool.name in self._given
        answers = Answers(self.mode, host=given, bypass=self.mode == "bypass")
        allowed = "was given to the session" if given else "changes nothing"
        return decide(found, answers, shown, f"{tool.name} {allowed}")

    def _decide(self, found: Sequence[Objection], what: str, allowed: str = "") -> Verdict:
        return decide(found, Answers(self.mode, bypass=self.mode == "bypass"), what, allowed)

    def causes(self, command: str) -> list[Cause]:
        """Return the parts of a command that need approval, dangerous parts first."""
        script = parse(command)
        judged = [
            (each.part, each.text, self._decide(each.objections, each.text))
            for each in self._command(script, self._base_folders(script)).collect()
        ]
        return causes_of(script, judged)

    def effects(self, command: str, env: Mapping[str, str]) -> dict[str, str]:
        """Return what each part of a command destroys or publishes, by the source of the part."""
        from .effects import CommandEffects

        script = parse(command)
        base = self._base_folders(script)[-1]
        return CommandEffects(script, base, self.folders, env).by_part()

    def denies_tool(self, tool: str) -> bool:
        """Return True if a deny rule forbids every call of a tool."""
        return any(rule.any for rule, _ in self._rules.covering(tool, "deny"))

    def denies_reading(self, path: str) -> bool:
        """Return True if a deny rule forbids reading, finding or listing an absolute path."""
        if not self._rules.any_for("Read", "deny"):
            return False
        try:
            target = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114
        except OSError:  # the path was replaced meanwhile
            return True
        return self._rules.matching_path("Read", (path, target), "deny") is not None

    def _of_call(self, tool: str, subject: str, *, harmless: bool) -> Iterator[Objection]:
        """Yield the objections to a tool without files or commands. A rule matches an equal subject
        or a pattern.
        """
        part = SimpleCommand((Word(subject),), subject)
        shown = f"{tool} {subject}".strip()
        if rule := self._rules.matching(tool, part, "deny"):
            yield by_rule("denied", shown, rule)
        if rule := self._rules.matching(tool, part, "ask"):
            yield by_rule("ask-rule", shown, rule)
        covering = self._rules.matching(tool, part, "allow", "session")
        if harmless:
            return
        if tool == "WebFetch":
            yield Objection("page", f"it reaches {subject}", f"WebFetch({subject})", covering)
        elif tool == "Network":
            reason = f"a command wants to reach {subject}"
            if self.mode == "bypass":
                reason = f"{subject} is not in sandbox.network, and bypass asks about nothing"
            yield Objection("network-host", reason, f"Network({subject})", covering)
        else:
            yield Objection("call", f"{tool} may change something", tool, covering)

    def _paths_to_open(self, script: Script, bases: Sequence[str], verdict: Verdict) -> list[str]:
        """Return the absolute paths that a command visibly reads outside its sandbox. For a
        read-only command: outside the project, including what git's own files refer to.
        """
        if verdict.read_only:
            found = paths_read(script, bases)
            if any(part.name == "git" for part in script.parts):
                links = (link for base in bases for link in git.repository_outside_links(base))
                found += [link.target for link in links]
            return [path for path in found if not is_within(path, self.folders)]
        if self.sandbox is None or self.sandbox.absent:
            return []
        return [path for path in paths_read(script, bases) if not self.sandbox.can_read(path)]

    @property
    def _paths(self) -> PathJudge:
        return PathJudge(
            self._rules, self.mode, self.folders, self._readable, self.own, self._programs,
            self.sandbox,
        )  # fmt: skip

    def _judge_command(self, text: str) -> Verdict:
        """Judge a command: with the rules, then in the sandbox, and last by the mode `bypass`."""
        if len(text.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
            reason = f"no shell takes a command of more than {MAX_COMMAND_BYTES:,} bytes"
            return self._decide([Objection("impossible", reason)], "")
        script = parse(text)
        bases = self._base_folders(script)
        command = self._command(script, bases)
        collected = command.collect()
        found = [objection for each in collected for objection in each.objections]
        verdict, answers = self._decide_by_rules(script, collected, found)
        kept = all(keeps_history(part) for part in script.parts if part.name == "git")
        by_rule = verdict.action == "allow"
        if verdict.action == "ask" and self.sandboxed:
            verdict = self._decide_in_sandbox(script, bases, found, answers)
        if verdict.action != "allow" and self.mode == "bypass":
            verdict = decide(found, replace(answers, bypass=True), "", "")
        # A command that may discard commits gets write access only after approval.
        writes = (kept or by_rule) and command.is_plain_git()
        if verdict.action == "ask":
            writes = writes or may_write_repository(script, self._cwd)
        verdict = replace(verdict, writes_repository=writes)
        if verdict.action == "deny" or verdict.confined:
            return verdict
        return replace(verdict, opens=tuple(self._paths_to_open(script, bases, verdict)))

    def _command(self, script: Script, bases: Sequence[str]) -> CommandObjections:
        return CommandObjections(
            script, bases, self._rules, self._paths, self.folders, self._programs,
            self.kernel_confines_read_only(),
        )  # fmt: skip

    def _decide_by_rules(
        self, script: Script, collected: Sequence[Collected], found: Sequence[Objection]
    ) -> tuple[Verdict, Answers]:
        """Return the verdict by rules and mode alone, and the answers that led to it."""
        read_only = all(each.read_only for each in collected)
        shown = quoted_command(script.text)
        allowed = f"{shown} is read-only" if collected else "it does nothing"
        hiding = any("hiding" in each.row.lifted_by for each in found) and self._hides_denied()
        answers = Answers(self.mode, hiding=hiding)
        verdict = decide(found, answers, shown, allowed)
        if verdict.action == "ask" and (rule := self._whole_rule(script.text)):
            read_only, answers = False, replace(answers, whole=rule)
            verdict = decide(found, answers, "the command", "")
        return replace(verdict, read_only=read_only and verdict.action == "allow"), answers

    def _whole_rule(self, text: str) -> Rule | None:
        """Return the allow rule for the whole text of a command. One with the exact text comes
        first, since it answers more than a rule for every command.
        """
        rules = [rule for rule, _ in self._rules.covering("Bash", "allow", "session")]
        found = [rule for rule in rules if allows_text(rule, text)]
        return min(found, key=lambda rule: rule.any, default=None)

    def _hides_denied(self) -> bool:
        """Return True if the kernel hides from commands the files that deny rules name."""
        there = self.sandbox is not None and not self.sandbox.absent
        return there and self._rules.guarded_files(["deny"]) is not None

    def _decide_in_sandbox(
        self, script: Script, bases: Sequence[str], found: Sequence[Objection], answers: Answers
    ) -> Verdict:
        """Return the verdict on a command that the sandbox may confine without a question."""
        confining = replace(answers, sandbox=True)
        left = [each for each in found if not answers.lift(each)]
        if all(map(confining.lift, left)):
            asked = left[0]
            found = [*found, *self._of_sandbox(script, bases, asked)]
        return decide(found, confining, "the command", "")

    def _of_sandbox(
        self, script: Script, bases: Sequence[str], asked: Objection
    ) -> Iterator[Objection]:
        """Yield the objections to an answer by the sandbox. `asked` is what it would answer."""
        beyond = partial(Objection, "beyond-sandbox", rule=asked.rule)
        sandbox = self.sandbox
        if sandbox is None or self.unconfined:
            yield beyond(f"{asked.reason}; not sandboxed: {self.unconfined.removesuffix('.')}")
            return
        if self.guarded_files() is None:
            yield beyond("rules guard more files than the sandbox can hide")
        for part in script.parts:
            if part.name == "git" and not keeps_history(part):
                reason = f"{quoted_command(part.source)} may discard commits or stashes"
                yield Objection("history", reason, asked.rule)
        own = [*self.own, *self.folders.pinned]
        protected = partial(protected_name, roots=self.folders, own=own)
        if need := need_beyond_sandbox(script, bases, sandbox, protected):
            yield beyond(f"the sandbox does not allow {need}")

    def guarded_files(
        self, kinds: Sequence[RuleKind] = ("deny", "ask")
    ) -> tuple[list[str], list[str]] | None:
        """Return existing paths guarded from reading and editing; None if there are too many."""
        return self._rules.guarded_files(kinds)

    def _base_folders(self, script: Script) -> list[str]:
        """Return the folders that relative paths may start from, including the folder of a leading
        `cd`.
        """
        first = script.parts[0] if script.parts else None
        if first and git.is_leading_cd(first, script) and len(first.words) == 2:
            return [self._cwd, *path_forms(first.words[1].text, self._cwd)[:1]]
        return [self._cwd]

    def _changes_nothing(self, tool: "Tool[Any]", subject: str) -> bool:
        if tool.name != "Bash":
            return tool.effect not in ("edit", "run")
        script = parse(subject)
        known = self._programs.all_known(script, self._base_folders(script))
        return known and changes_no_file(script)
