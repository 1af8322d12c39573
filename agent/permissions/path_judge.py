"""Judge paths: which files the file tools may read and edit, and which files commands may name."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config.settings import PermissionMode
from ..lazy import dataclass
from .paths import is_within, path_forms, protected_name
from .rule_set import RuleSet
from .rules import Rule, exact_path
from .shell.programs import Programs
from .verdict import PLAN_MODE_REFUSAL, Verdict, verdict_by_rule
from .work_folders import WorkFolders

if TYPE_CHECKING:
    from ...tools.base import Confinement


@dataclass(frozen=True, slots=True)
class PathJudge:
    """A snapshot of a session's rules and folders that judges paths. All paths are absolute."""

    rules: RuleSet
    mode: PermissionMode
    folders: WorkFolders
    readable: Sequence[str]  # folders that are read without asking
    own: Sequence[str]  # the agent's files and folders, which no mode allows to edit
    programs: Programs
    sandbox: "Confinement | None"

    def why_out_of_bounds(self, path: str, *, edits: bool) -> str:
        """Return why a file tool may not use a path when the sandbox is required; "" if it may."""
        sandbox = self.sandbox
        if not path or sandbox is None or not sandbox.required:
            return ""
        if (sandbox.can_write if edits else sandbox.can_read)(path):
            return ""
        doing = "edited" if edits else "read"
        return f'{path} may not be {doing} here: it is outside of the sandbox, which is "require"'

    def _private_copy(self, path: str, *, edits: bool) -> str:
        """Return the session's private copy of a temporary path, "" if the path has none."""
        moved = self.sandbox.moved(path) if self.sandbox else path
        found = moved != path and (edits or os.path.lexists(moved) or not os.path.lexists(path))
        return moved if found and os.path.realpath(moved) == moved else ""

    def judge(self, tool: str, text: str, *, edits: bool, base: str = "") -> Verdict:
        """Return whether a tool may use a path. A relative path starts at the folder `base`."""
        found = path_forms(text or ".", base or self.folders.cwd)
        own = self._private_copy(found[-1], edits=edits) if found else ""
        verdict = self._judge_forms(tool, text, found, edits=edits, temporary=own)
        return replace(verdict, path=own or (found[-1] if found else ""))

    def _judge_forms(
        self, tool: str, text: str, found: Sequence[str], *, edits: bool, temporary: str
    ) -> Verdict:
        """Judge a path by its forms. `temporary` is the path in the session's private temporary
        folder, "" if there is none.
        """
        verb = "editing" if edits else "reading"
        if not found:
            return Verdict("ask", f"{text!r} is not a path that can be checked", tool)
        if rule := self.rules.matching_path(tool, found, "deny"):
            return verdict_by_rule("deny", f"{verb} {text}", rule)
        wanted = self._path_rule(tool, found[0], edits)
        if edits and self.mode == "plan":
            return Verdict("deny", PLAN_MODE_REFUSAL, wanted)
        if rule := self.rules.matching_path(tool, found, "ask"):
            return verdict_by_rule("ask", f"{verb} {text}", rule)
        if tool == "Grep" and (rule := self.rules.hiding_below(found, "ask")):
            own = self.rules.covering("Grep", "allow", "session")
            if not any(r.tool == "Grep" and (r.any or p.matches(found[-1])) for r, p in own):
                reason = f"{text or '.'} may contain files that the rule {rule} guards"
                return Verdict("ask", f"{reason}; search a narrower folder", wanted)
        deciding = ""
        for form in [temporary] if temporary else reversed(found):
            if rule := self._path_allowing_rule(tool, form, edits):
                deciding = str(rule)
            elif temporary and not (edits and self.mode == "ask"):
                continue
            elif why := self._mode_objection(form, edits):
                return Verdict("ask", f"{verb} {text}: {why}", self._path_rule(tool, form, edits))
        return Verdict("allow", f"{verb} {text} is allowed", deciding)

    def _path_allowing_rule(self, tool: str, form: str, edits: bool) -> Rule | None:
        """Return the rule that allows this path. A rule allows editing a protected file only if it
        names the file.
        """
        for rule, matcher in self.rules.covering(tool, "allow", "session"):
            if rule.any or (
                matcher.matches(form)
                and not (edits and protected_name(form, self.folders, rule.path, self.own))
            ):
                return rule
        return None

    def _mode_objection(self, form: str, edits: bool) -> str:
        """Return why the mode forbids reading or editing this path without asking, "" if it does
        not.
        """
        if not edits:
            return "" if is_within(form, (*self.folders, *self.readable)) else "outside the project"
        if not is_within(form, self.folders):
            return "outside the project"
        if self.mode not in ("accept-edits", "sandboxed"):
            return "mode `ask` requires approval for edits"
        if folder := self.programs.folder_of(form, (self.folders.cwd,)):
            return f"commands find programs in {folder}, a folder of the PATH"
        name = protected_name(form, self.folders, own=self.own)
        return f"{name} is protected" if name else ""

    def _path_rule(self, tool: str, form: str, edits: bool) -> str:
        family = "Edit" if edits else "Grep" if tool == "Grep" else "Read"
        root = next((root for root in self.folders.project if is_within(form, (root,))), "")
        path = os.path.relpath(form, root) if root else form
        return f"{family}({'./' * path.startswith('~')}{exact_path(path)})"
