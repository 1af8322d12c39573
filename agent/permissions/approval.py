"""Permissions: judge every tool call before it runs. Judging never raises.

Deny rules come first, then ask rules, allow rules, and last the mode. `ask` allows reading the
project; `accept-edits` also allows edits in it; `sandboxed` also allows sandboxed commands. `plan`
denies every change, despite allow rules; `bypass` allows everything that no deny rule matches. A
path is allowed if it is allowed both as written and with links resolved, and denied if either form
is. A shell command is allowed if every part is allowed or read-only, and denied if any part is.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.settings import PermissionMode
from .causes import Cause, Judged, causes_of
from .path_judge import PathJudge
from .paths import (
    all_path_forms,
    expand_glob,
    home_folders,
    is_in_project,
    is_plain_name,
    is_within,
    path_forms,
    protected_name,
)
from .rule_set import RuleKind, RuleSet
from .rules import Rule, allows_text, exact_command, narrowest_subject
from .shell import git
from .shell.command_table import keeps_history, known_command
from .shell.parser import Script, SimpleCommand, Word, parse
from .shell.programs import Programs
from .shell.reach import (
    FILE_WRITING_COMMANDS,
    may_write_repository,
    need_beyond_sandbox,
    paths_read,
)
from .shell.read_only import (
    changes_no_file,
    follows_links,
    has_read_only_form,
    is_plainly_read_only,
    is_read_only,
    passes_names_to_read_only,
    path_arguments,
    reads_files,
    searched_folders,
    stays_read_only,
)
from .verdict import (
    PLAN_MODE_REFUSAL,
    READ_ONLY_REFUSAL,
    Verdict,
    quoted_command,
    stricter,
    verdict_by_rule,
)
from .work_folders import WorkFolders

if TYPE_CHECKING:
    from ...tools.base import Confinement, Params, Tool

MAX_COMMAND_BYTES = 131_071  # Linux starts no program with a longer argument
MAX_GUARDED = 500  # guarded files in a sandbox; each costs a third of a millisecond
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
            return Verdict("deny", READ_ONLY_REFUSAL)
        if tool.effect in ("read", "edit"):
            verdict = self._paths.judge(tool.name, subject, edits=tool.effect == "edit")
            if out := self._paths.why_out_of_bounds(verdict.path, edits=tool.effect == "edit"):
                return Verdict("deny", out)
        elif tool.name == "Bash":
            verdict = self._judge_command(subject)
            if verdict.action != "deny" and not verdict.confined:
                opens = tuple(self._paths_to_open(subject, read_only=verdict.read_only))
                verdict = replace(verdict, opens=opens)
        elif tool.name == "Network":
            return self._judge_host(subject)
        else:
            verdict = self._judge_call(tool.name, subject, harmless=tool.effect == "none")
        if self.mode == "bypass" and verdict.action == "ask":
            return replace(verdict, action="allow", reason="bypass mode: no deny rule forbids it")
        if verdict.action == "ask" and tool.name == "Bash":
            shown = verdict.writes_repository or may_write_repository(parse(subject), self._cwd)
            return replace(verdict, writes_repository=shown)
        return verdict

    def causes(self, command: str) -> list[Cause]:
        """Return the parts of a command that need approval, dangerous parts first."""
        script = parse(command)
        return causes_of(script, self._judge_parts(script, self._base_folders(script)))

    def denies_reading(self, path: str) -> bool:
        """Return True if a deny rule forbids reading, finding or listing an absolute path."""
        if not self._rules.any_for("Read", "deny"):
            return False
        try:
            target = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114
        except OSError:  # the path was replaced meanwhile
            return True
        return self._rules.matching_path("Read", (path, target), "deny") is not None

    def _judge_call(self, tool: str, subject: str, *, harmless: bool) -> Verdict:
        """Judge a tool without files or commands. A rule matches an equal subject or a pattern."""
        part = SimpleCommand((Word(subject),), subject)
        shown = f"{tool} {subject}".strip()
        if rule := self._rules.matching(tool, part, "deny"):
            return verdict_by_rule("deny", shown, rule)
        if self.mode == "plan" and not harmless and tool != "WebFetch":
            return Verdict("deny", PLAN_MODE_REFUSAL, tool)
        if rule := self._rules.matching(tool, part, "ask"):
            return verdict_by_rule("ask", shown, rule)
        if rule := self._rules.matching(tool, part, "allow", "session"):
            return verdict_by_rule("allow", shown, rule)
        if harmless:
            return Verdict("allow", f"{tool} changes nothing")
        if tool in self._given:
            return Verdict("allow", f"{tool} was given to the session")
        if tool == "WebFetch":
            return Verdict("ask", f"it reaches {subject}", f"WebFetch({subject})")
        return Verdict("ask", f"{tool} may change something", tool)

    def _judge_host(self, host: str) -> Verdict:
        """Judge whether a sandboxed command may connect to a host that the settings do not list."""
        verdict = self._judge_call("Network", host, harmless=False)
        if verdict.action != "ask" or verdict.rule != "Network":
            return verdict
        if self.mode == "bypass":
            return Verdict(
                "deny", f"{host} is not in sandbox.network, and bypass asks about nothing"
            )
        return Verdict("ask", f"a command wants to reach {host}", f"Network({host})")

    def _paths_to_open(self, command: str, *, read_only: bool) -> list[str]:
        """Return the absolute paths that a command visibly reads outside its sandbox. For a
        read-only command: outside the project, including what git's own files refer to.
        """
        script = parse(command)
        bases = self._base_folders(script)
        if read_only:
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
        if len(text.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
            reason = f"no shell takes a command of more than {MAX_COMMAND_BYTES:,} bytes"
            return Verdict("deny", reason)
        script = parse(text)
        bases = self._base_folders(script)
        verdicts = [verdict for _, _, verdict in self._judge_parts(script, bases)]
        read_only = all(verdict.read_only for verdict in verdicts)
        if not read_only and any(verdict.receives_names for verdict in verdicts):
            reason = "it passes file names to another command and is not read-only"
            verdicts.append(self._doubtful(reason, script))
        verdict = reduce(stricter, verdicts or [Verdict("allow", "it does nothing")])
        verdict = replace(verdict, read_only=read_only and verdict.action == "allow")
        verdict = self._by_whole_command(text, script, bases, verdicts, verdict)
        # A command that may discard commits gets write access only after approval.
        kept = all(keeps_history(part) for part in script.parts if part.name == "git")
        by_rule = verdict.action == "allow" and not verdict.confined
        writes = (kept or by_rule) and self._is_plain_git(script, bases)
        return replace(verdict, writes_repository=writes)

    def _judge_parts(self, script: Script, bases: Sequence[str]) -> list[Judged]:
        """Judge all commands in a script, its redirections, and its doubtful syntax."""
        found: list[Judged] = [
            (part, part.source, self._judge_part(part, script, bases)) for part in script.parts
        ]
        for word in script.writes:
            found.append((None, word.text, self._judge_file(word, script, bases, edits=True)))
        for word in script.reads:
            verdict = self._judge_file(word, script, bases, edits=False)
            found.append((None, word.text, replace(verdict, read_only=True)))
        if script.doubt:
            found.append((None, "", self._doubtful(script.doubt, script)))
        return found

    def _by_whole_command(
        self,
        text: str,
        script: Script,
        bases: Sequence[str],
        verdicts: Sequence[Verdict],
        verdict: Verdict,
    ) -> Verdict:
        """Apply rules for the whole text, and the sandbox, to `verdict`, the strictest of
        `verdicts`.
        """
        ask_rules = self.rules()["ask"]
        by_ask_rule = any(v.action == "ask" and v.rule in ask_rules for v in verdicts)
        if verdict.action != "ask" or by_ask_rule:
            return verdict
        may_match = any(self._rules.answering(part, "maybe") for part in script.parts)
        for rule, _ in self._rules.covering("Bash", "allow", "session"):
            if allows_text(rule, text) and not (rule.any and may_match):
                return verdict_by_rule("allow", "the command", rule)
        unclear = bool(script.doubt) and self._rules.any_for("Bash", "deny", "ask")
        if self.sandboxed and not (unclear or any(v.guarded for v in verdicts)):
            return self._judge_confined(script, bases, verdict)
        return verdict

    def _judge_confined(self, script: Script, bases: Sequence[str], asked: Verdict) -> Verdict:
        """Allow a command that would otherwise need approval if the sandbox confines it."""
        sandbox = self.sandbox
        if sandbox is None or self.unconfined:
            why = self.unconfined.removesuffix(".")
            return replace(asked, reason=f"{asked.reason}; not sandboxed: {why}")
        if self.guarded_files() is None:
            return replace(asked, reason="rules guard more files than the sandbox can hide")
        for part in script.parts:
            if part.name == "git" and not keeps_history(part):
                reason = f"{quoted_command(part.source)} may discard commits or stashes"
                return replace(asked, reason=reason)
        protected = partial(protected_name, roots=self.folders, own=self.own)
        need = need_beyond_sandbox(script, bases, sandbox, protected)
        if need:
            return replace(asked, reason=f"the sandbox does not allow {need}")
        return Verdict("allow", "the sandbox confines it", asked.rule, confined=True)

    def _is_plain_git(self, script: Script, bases: Sequence[str]) -> bool:
        """Return True for git, alone or with mkdir, touch or read-only commands, without doubt."""
        if script.doubt or script.writes:
            return False
        names = [part.name for part in script.parts]
        return "git" in names and all(
            not part.doubt
            and self._is_known(part, script, bases)
            and (
                part.name in ("git", "mkdir", "touch") or part.wrapper or is_plainly_read_only(part)
            )
            and all(word.fixed or word.whole for word in part.words)
            for part in script.parts
        )

    def guarded_files(
        self, kinds: Sequence[RuleKind] = ("deny", "ask")
    ) -> tuple[list[str], list[str]] | None:
        """Return existing paths guarded from reading and editing; None if there are too many."""
        found: list[list[str]] = []
        for tool in ("Read", "Write"):
            rules = self._rules.covering(tool, *kinds)
            paths = [matcher.find(self.folders.real) for rule, matcher in rules if not rule.any]
            known = [path for each in paths for path in each or ()]
            if None in paths or len(known) > MAX_GUARDED:
                return None
            found.append(known)
        return found[0], found[1]

    def _base_folders(self, script: Script) -> list[str]:
        """Return the folders that relative paths may start from, including the folder of a leading
        `cd`.
        """
        first = script.parts[0] if script.parts else None
        if first and git.is_leading_cd(first, script) and len(first.words) == 2:
            return [self._cwd, *path_forms(first.words[1].text, self._cwd)[:1]]
        return [self._cwd]

    def _judge_part(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> Verdict:
        shown, wanted = quoted_command(part.source), f"Bash({narrowest_subject(part, script)})"
        if rule := self._deny_rule(part, bases):
            return verdict_by_rule("deny", shown, rule)
        plain, bases = self._without_folder_option(part, bases)
        known = self._is_known(part, script, bases)
        passes_names = known and passes_names_to_read_only(part) and self._can_confine_read_only()
        starts_only = passes_names or (part.wrapper and known)
        without = replace(plain, words=tuple(word for word in plain.words if not word.command))
        if without != plain and stays_read_only(without) and self._can_confine_read_only():
            plain, passes_names = without, True
        read_only = known and is_read_only(plain) and git.has_known_folder(part, script)
        read_only = read_only or starts_only
        if self.mode == "plan" and not read_only:
            return Verdict("deny", PLAN_MODE_REFUSAL, wanted)
        if rule := self._rules.answering(part, "yes", "ask"):
            return verdict_by_rule("ask", shown, rule)
        if rule := self._rules.answering(part, "maybe"):
            return self._guarded(f"the rule {rule} may apply to {shown}", script)
        if passes_names and part.name == "find":
            return self._judge_read_only(part, script, bases, receives_names=True)
        if starts_only:
            reason = f"{shown} only starts other commands"
            return Verdict("allow", reason, read_only=True, receives_names=passes_names)
        if part.doubt:
            return Verdict("ask", f"{shown}: {part.doubt}", wanted)
        git_looks = part.name == "git" and is_read_only(plain)
        if git_looks and (named := next(filter(None, map(git.program_git_runs, bases)), "")):
            return self._doubtful(f"the repository makes git run {named}", script)
        if git_looks and (objection := self._git_reads(bases, script)):
            return objection
        unconfined = part.name == "git" and not (git_looks and self.kernel_confines_read_only())
        if unconfined and (leaves := next(filter(None, map(git.index_path_outside, bases)), "")):
            return self._doubtful(f"the index of the repository names {leaves}", script)
        looking = Verdict("ask", f"{shown} may change something", wanted)
        if read_only:
            looking = self._judge_read_only(plain, script, bases, receives_names=passes_names)
        if (looking.action == "allow" and not passes_names) or looking.guarded:
            return looking
        if not known and has_read_only_form(part.name):
            reason = f"`{part.name}` resolves to a folder that commands can write to"
            return Verdict("ask", reason, wanted)
        # No rule allows `cd`: its folder decides, since later commands run there.
        inside = partial(is_in_project, bases=bases, project=self.folders)
        if part.name != "cd" and (
            rule := self._rules.matching("Bash", part, "allow", "session", inside=inside)
        ):
            if guarded := self._git_shows_guarded(part, bases, script):
                return guarded
            if hidden := self._unclear_path(part, bases):
                return self._doubtful(f"{hidden} may match a file that a rule guards", script)
            return verdict_by_rule("allow", shown, rule)
        if not read_only and (near := self._rules.nearly_matching(part, inside)):
            return Verdict("ask", f"the rule {near[0]} does not cover `{near[1]}`", wanted)
        return looking

    def _is_known(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> bool:
        """Return True if a command runs the program that its name suggests. For tables with
        `system`, a program in the user's home does not count: a project file may choose what it
        starts.
        """
        if not self._programs.is_known(part, script, bases):
            return False
        known = known_command(part)
        if known is None or not known.table.system:
            return True
        program = self._programs.find(part, script, bases) or ""
        return not any(is_within(form, home_folders()) for form in path_forms(program, "/"))

    def _can_confine_read_only(self) -> bool:
        """Return True if the kernel keeps read-only commands from opening guarded files."""
        return self.kernel_confines_read_only() and self.guarded_files() is not None

    def _git_reads(self, bases: Sequence[str], script: Script) -> Verdict | None:
        """Judge the files that git reads because its own files refer to them; None if all may be
        read.
        """
        for link in (link for base in bases for link in git.repository_outside_links(base)):
            read = self._paths.judge("Read", link.target, edits=False)
            reason = f"the repository makes git read {link.target}: {link.name} leads there"
            if read.action == "deny":
                return replace(read, reason=f"{reason}, and {read.reason}")
            if read.action == "ask":
                return self._doubtful(reason, script)
        return None

    def _without_folder_option(
        self, part: SimpleCommand, bases: Sequence[str]
    ) -> tuple[SimpleCommand, Sequence[str]]:
        """Return a git command without `-C FOLDER`, and FOLDER, if that is in the project."""
        plain, folder = git.without_folder(part)
        found = [form for base in bases for form in path_forms(folder, base)] if folder else []
        if not found or not all(is_within(form, self.folders) for form in found):
            return part, bases
        return plain, found

    def _deny_rule(self, part: SimpleCommand, bases: Sequence[str]) -> Rule | None:
        """Return a deny rule for the command, or for a file among its arguments."""
        if rule := self._rules.answering(part, "yes", "deny"):
            return rule
        writes = part.name.rpartition("/")[2] in FILE_WRITING_COMMANDS
        tools = [
            tool for tool in ("Read", "Write")[: 1 + writes] if self._rules.any_for(tool, "deny")
        ]
        if not tools:
            return None
        texts = {word.text for word in path_arguments(part)}
        texts |= {
            path
            for word in path_arguments(part)
            if word.fixed and word.glob
            for base in bases
            for path in expand_glob(word.text, base) or []
            if not os.path.isdir(os.path.join(base, path))  # noqa: PTH112, PTH118
        }
        seen = [
            (text, base) for base in bases for text in (*texts, *git.paths_in_commits(part, base))
        ]
        found = [form for text, base in seen for form in path_forms(text, base)]
        rules = (self._rules.matching_path(tool, found, "deny") for tool in tools)
        return next(filter(None, rules), None)

    def _unclear_path(self, part: SimpleCommand, bases: Sequence[str]) -> str:
        """Return a word that may expand to a guarded file, "" if there is none."""
        name = part.name.rpartition("/")[2]
        uses_files = name != "git" and (reads_files(name) or name in FILE_WRITING_COMMANDS)
        if not uses_files or not self._rules.any_for("Read", "deny", "ask"):
            return ""
        for word in path_arguments(part):
            if not word.fixed:
                return word.text
            if word.glob and any(expand_glob(word.text, base) is None for base in bases):
                return word.text
        return ""

    def _judge_read_only(
        self,
        part: SimpleCommand,
        script: Script,
        bases: Sequence[str],
        *,
        receives_names: bool = False,
    ) -> Verdict:
        """Judge a read-only command by the files and folders that it reads."""
        reason = f"{quoted_command(part.source)} is read-only"
        verdicts = [Verdict("allow", reason, read_only=True, receives_names=receives_names)]
        files = list(path_arguments(part))
        verdicts += [self._judge_file(word, script, bases, edits=False) for word in files]
        folders = searched_folders(part)
        verdicts += [self._judge_folder(word, script, base) for word in folders for base in bases]
        if guarded := self._git_shows_guarded(part, bases, script):
            verdicts.append(guarded)
        if follows_links(part, bases):
            verdicts.append(self._doubtful("it follows links, which may lead anywhere", script))
        return reduce(stricter, verdicts)

    def _git_shows_guarded(
        self, part: SimpleCommand, bases: Sequence[str], script: Script
    ) -> Verdict | None:
        """Judge a git command that may show or store guarded files; None if there are none."""
        if git.takes_ignored_files(part) and (self.guarded_files() or [True])[0]:
            return self._guarded("it stores ignored files, and rules guard some of them", script)
        rules = self._rules.covering("Read", "deny", "ask") if part.name == "git" else ()
        for rule, matcher in rules:
            guarded = bool if rule.any else matcher.matches
            if any(git.may_show_file(part, base, guarded) for base in bases):
                return self._guarded(f"it may show files that the rule {rule} guards", script)
        return None

    def _judge_file(
        self, word: Word, script: Script, bases: Sequence[str], *, edits: bool
    ) -> Verdict:
        """Judge a file named in a command, relative to each possible folder."""
        if not word.fixed or (word.glob and edits):
            return self._doubtful(f"the file {word.text} is known only at run time", script)
        tool = "Write" if edits else "Read"
        verdicts = []
        for base in bases:
            found = expand_glob(word.text, base) if word.glob else []
            if found is None:
                reason = f"{word.text} matches too many files to check"
                verdicts.append(self._doubtful(reason, script))
            texts = [word.text, *(found or [])]
            if word.split and not all(map(is_plain_name, texts)):
                verdicts.append(self._doubtful(f"{word.text} matches unusual file names", script))
            verdicts += [self._paths.judge(tool, text, edits=edits, base=base) for text in texts]
        return reduce(stricter, verdicts)

    def _judge_folder(self, word: Word, script: Script, base: str) -> Verdict:
        """Judge a folder whose files a command reads without naming them."""
        found = expand_glob(word.text, base) if word.glob else []
        folders = [form for text in (word.text, *(found or [])) for form in path_forms(text, base)]
        if rule := self._rules.hiding_below(folders, "deny", "ask"):
            return self._doubtful(f"it may read files that the rule {rule} guards", script)
        return Verdict("allow", f"no rule hides files in {word.text}")

    def _changes_nothing(self, tool: "Tool[Any]", subject: str) -> bool:
        if tool.name != "Bash":
            return tool.effect not in ("edit", "run")
        script = parse(subject)
        known = self._programs.all_known(script, self._base_folders(script))
        return known and changes_no_file(script)

    def _guarded(self, reason: str, script: Script) -> Verdict:
        """Judge a command that may do what a rule is meant to prevent."""
        return replace(self._doubtful(reason, script), guarded=True)

    def _doubtful(self, reason: str, script: Script) -> Verdict:
        rule = f"Bash({exact_command(script.text)})"
        if self.mode == "plan":
            return Verdict("deny", PLAN_MODE_REFUSAL, rule)
        return Verdict("ask", reason, rule)
