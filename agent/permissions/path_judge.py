"""Judge paths: which files the file tools may read and edit, and which files commands may name."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config.settings import PermissionMode
from ..lazy import dataclass
from .objections import Answers, Objection, ObjectionKind, Verdict, by_rule, decide
from .paths import WorkFolders, is_within, path_forms, protected_name
from .rule_set import RuleSet
from .rules import Rule, exact_path
from .shell.reach import Programs

if TYPE_CHECKING:
    from ...tools.system.confinement import Confinement


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

    def _why_out_of_bounds(self, path: str, *, edits: bool) -> str:
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
        """Return the verdict on a tool's use of a path. A relative path starts at `base`."""
        what = f"{'editing' if edits else 'reading'} {text}"
        found, path = self.objections(tool, text, edits=edits, base=base)
        if out := self._why_out_of_bounds(path, edits=edits):
            found.append(Objection("bounds", out))
        answers = Answers(self.mode, bypass=self.mode == "bypass")
        return replace(decide(found, answers, what, f"{what} is allowed"), path=path)

    def objections(
        self, tool: str, text: str, *, edits: bool, base: str = ""
    ) -> tuple[list[Objection], str]:
        """Return the objections to a tool's use of a path, and the resolved path. A relative path
        starts at the folder `base`.
        """
        forms = path_forms(text or ".", base or self.folders.cwd)
        verb = f"{'editing' if edits else 'reading'} {text}"
        if not forms:
            reason = f"{text!r} is not a path that can be checked"
            return [Objection("unclear-file", reason, tool)], ""
        temporary = self._private_copy(forms[-1], edits=edits)
        found = list(self._ruled(tool, verb, forms))
        if tool == "Grep":
            found += self._searched(text, forms)
        for form in [temporary] if temporary else reversed(forms):
            covering = self._path_allowing_rule(tool, form, edits)
            wanted = self._path_rule(tool, form, edits)
            for kind, why in self._of_form(form, edits, is_temporary=bool(temporary)):
                found.append(Objection(kind, f"{verb}: {why}", wanted, covering))
        return found, temporary or forms[-1]

    def _ruled(self, tool: str, verb: str, forms: Sequence[str]) -> Iterator[Objection]:
        if rule := self.rules.matching_path(tool, forms, "deny"):
            yield by_rule("denied", verb, rule)
        if rule := self.rules.matching_path(tool, forms, "ask"):
            yield by_rule("ask-rule", verb, rule)

    def _searched(self, text: str, forms: Sequence[str]) -> Iterator[Objection]:
        """Yield the objection to a search by Grep over files that ask rules name."""
        if rule := self.rules.hiding_below(forms, "ask"):
            own = self.rules.covering("Grep", "allow", "session")
            found = (r for r, p in own if r.tool == "Grep" and (r.any or p.matches(forms[-1])))
            reason = f"{text or '.'} may contain files that the rule {rule} guards"
            wanted = self._path_rule("Grep", forms[0], edits=False)
            reason += "; search a narrower folder"
            yield Objection("search", reason, wanted, next(found, None))

    def _path_allowing_rule(self, tool: str, form: str, edits: bool) -> Rule | None:
        """Return the rule that allows this path. A rule allows editing a protected file only if it
        names the file.
        """
        for rule, matcher in self.rules.covering(tool, "allow", "session"):
            if rule.any or (
                matcher.matches(form) and not (edits and self._protected_name(form, rule.path))
            ):
                return rule
        return None

    def _of_form(
        self, form: str, edits: bool, *, is_temporary: bool
    ) -> Iterator[tuple[ObjectionKind, str]]:
        """Yield the objections to one form of a path, each with its reason. With `is_temporary`,
        the path is in the session's private temporary folder.
        """
        inside = is_temporary or is_within(form, self.folders)
        if not inside and (edits or not is_within(form, self.readable)):
            yield "outside", "outside the project"
        if not edits:
            return
        yield "edit", "mode `ask` requires approval for edits"
        if is_temporary:
            return
        if folder := self.programs.folder_of(form, (self.folders.cwd,)):
            yield "path-folder", f"commands find programs in {folder}, a folder of the PATH"
        if is_within(form, self.folders.pinned):
            yield "protected", "a hook, server or other program of this session runs it"
        elif name := self._protected_name(form):
            yield "protected", f"{name} is protected"

    def _protected_name(self, form: str, rule_path: str = "") -> str:
        own = (*self.own, *self.folders.pinned)
        return protected_name(form, self.folders, rule_path, own)

    def _path_rule(self, tool: str, form: str, edits: bool) -> str:
        family = "Edit" if edits else "Grep" if tool == "Grep" else "Read"
        root = next((root for root in self.folders.project if is_within(form, (root,))), "")
        path = os.path.relpath(form, root) if root else form
        return f"{family}({'./' * path.startswith('~')}{exact_path(path)})"
