"""The permission rules: those of a session by kind, and those in settings files.

The files are the user's, for all projects, and the project's. Edits keep comments, order and
layout. A file is read again right before each edit and replaced as a whole. A project file stays
trusted after an edit if all its previous content was trusted or needed no trust.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Literal

from ..config.load import PROJECT_FILE, LoadedSettings, keys_needing_trust, rules_in_file
from ..config.places import user_file
from ..config.trust import accept, is_trusted
from ..config.user_settings import (
    USER_FILE_MODE,
    read_settings_file,
    with_section,
    write_settings_file,
)
from ..errors import ConfigError
from .paths import WorkFolders
from .rules import (
    PathMatcher,
    Rule,
    allows_part,
    forbids_part,
    parse_rule,
    path_matcher,
    uncovered_word,
)
from .shell.command_table import plainly_inside
from .shell.parser import SimpleCommand
from .shell.reach import RuleMatch

RulesFile = Literal["project", "user"]

SECTION = "permissions"
_NEW_FILE_MODES: dict[RulesFile, int] = {"project": 0o644, "user": USER_FILE_MODE}


class RuleFiles:
    """The settings files that rules are added to and removed from."""

    def __init__(self, loaded: LoadedSettings, *, cwd: Path, environ: Mapping[str, str]) -> None:
        # The files need not exist. The user's file is never also the project's file.
        self.paths: dict[RulesFile, Path] = {"user": user_file(environ)}
        project = loaded.project or cwd / PROJECT_FILE
        if os.path.realpath(project) != os.path.realpath(self.paths["user"]):
            self.paths = {"project": project, **self.paths}
        # The allow rules that a new session starts with.
        self.allow = loaded.settings.permissions.allow
        self._loaded = loaded
        self._cwd = cwd
        self._environ = environ

    def add(self, rule: str, where: RulesFile) -> str:
        """Add an allow rule and return the path of its file. Raises ConfigError if the file is not
        a settings file, contains untrusted settings or cannot be written. Also raises it for a
        relative rule if the file is in another folder, since the rule would then match other files.
        """
        path = self.paths[where]
        if where == "project" and parse_rule(rule).relative:
            self._check_folder(path)
        data = read_settings_file(path)
        if where == "project" and data is not None:
            self._check_trust(path, data)
        changed = with_section(path, data or b"", SECTION, lambda table: _add_rule(table, rule))
        if changed != data:
            self._write(where, changed)
        self.allow = (*(r for r in self.allow if r != rule), rule)
        return str(path)

    def allow_sandboxed(self) -> str:
        """Set `permissions.sandboxed = "allow"` in the user's file and return its path. Raises
        ConfigError if it is not a settings file or cannot be written.
        """
        return self._update_user_file("permissions", sandboxed="allow")

    def choose_model(self, id: str) -> str:
        """Set the model ID in the user's file and return its path. Raises ConfigError if it is not
        a settings file or cannot be written.
        """
        return self._update_user_file("model", id=id)

    def _update_user_file(self, section: str, **values: str) -> str:
        path = self.paths["user"]
        data = read_settings_file(path) or b""
        changed = with_section(path, data, section, lambda table: table.update(values))
        if changed != data:
            self._write("user", changed)
        return str(path)

    def remove(self, rule: str) -> list[str]:
        """Remove a rule from each file where it applies; return the paths. Raises ConfigError."""
        self.allow = tuple(r for r in self.allow if str(parse_rule(r)) != rule)
        touched = []
        for where, path in self.paths.items():
            data = read_settings_file(path)
            if data is None or not self._in_force(where, data):
                continue
            changed = with_section(path, data, SECTION, lambda table: _remove_rule(table, rule))
            if changed != data:
                self._write(where, changed)
                touched.append(str(path))
        return touched

    def origin(self, kind: str, rule: str) -> str:
        """Return the origin of a rule: `FILE:LINE`, a variable, the command line or this session.
        `kind` is allow, ask, deny or session.
        """
        key = "allow" if kind == "session" else kind
        for where, path in self.paths.items():
            with suppress(ConfigError):
                data = read_settings_file(path)
                if data is None or not (key != "allow" or self._in_force(where, data)):
                    continue
                for found, text, place in rules_in_file(path, data):
                    if found == key and str(parse_rule(text)) == rule:
                        return self._short_path(place)
        if kind == "session":
            return "this session"
        sources = self._loaded.origins[f"permissions.{kind}"].split(", ")
        given = [source for source in sources if "/" not in source]
        return ", ".join(given).replace("-c", "the command line") or "the start of the session"

    def describe_file(self, where: RulesFile) -> str:
        """Return the short path of a file, followed by its target if it is a link."""
        path = self.paths[where]
        shown = self._short_path(str(path))
        target = self._short_path(os.path.realpath(path))
        return f"{shown}, a link to {target}" if path.is_symlink() else shown

    def _short_path(self, path: str) -> str:
        home = self._environ.get("HOME", "")
        for folder, mark in ((str(self._cwd), ""), (os.path.realpath(self._cwd), ""), (home, "~/")):
            if folder and path.startswith(f"{folder}/"):
                return mark + path[len(folder) + 1 :]
        return path

    def _check_folder(self, path: Path) -> None:
        """Raise ConfigError if the file is not in the session's folder, where its relative rules
        start.
        """
        if os.path.realpath(path.parent) != os.path.realpath(self._cwd):
            raise ConfigError(
                f"nothing was written: in {path.parent} the relative path of the rule would match "
                "other files",
                where=str(path),
                hint="Save the rule in another file, or give it an absolute path.",
            )

    def _check_trust(self, path: Path, data: bytes) -> None:
        if self._in_force("project", data):
            return
        if held := keys_needing_trust(path, data):
            raise ConfigError(
                f"nothing was written: the file has untrusted settings: {', '.join(held)}",
                where=str(path),
                hint="Read it and accept it with `ctxagent config --trust`, or save the "
                "rule in another file.",
            )

    def _in_force(self, where: RulesFile, data: bytes) -> bool:
        return where == "user" or is_trusted(self.paths[where], data, self._loaded.trust_dir)

    def _write(self, where: RulesFile, data: bytes) -> None:
        path = self.paths[where]
        write_settings_file(path, data, new_mode=_NEW_FILE_MODES[where])
        if where == "project":
            accept(path, data, self._loaded.trust_dir)


def _add_rule(permissions: Any, rule: str) -> None:
    if "allow" not in permissions:
        permissions["allow"] = []
    if rule not in permissions["allow"]:
        permissions["allow"].append(rule)


def _remove_rule(permissions: Any, rule: str) -> None:
    rules = permissions.get("allow", [])
    for place in reversed(range(len(rules))):
        if str(parse_rule(rules[place])) == rule:
            del rules[place]


MAX_GUARDED = 500  # guarded files in a sandbox; each costs a third of a millisecond

RuleKind = Literal["deny", "ask", "allow", "session"]


class RuleSet:
    """Rules of four kinds: deny, ask, allow, and allow for the session only. Relative paths in
    rules start at the project; in deny and ask rules they start at each folder of the session.
    Malformed rules raise UsageError.
    """

    def __init__(self, folders: WorkFolders, given: Mapping[RuleKind, Sequence[str]]) -> None:
        self._folders, self._known_folders = folders, len(folders.added)
        self._rules: dict[RuleKind, list[tuple[Rule, PathMatcher]]] = {
            "deny": [], "ask": [], "allow": [], "session": [],
        }  # fmt: skip
        for kind, texts in given.items():
            for text in texts:
                self.add(kind, text)

    def add(self, kind: RuleKind, text: str) -> None:
        rule = parse_rule(text)
        self._rules[kind].append((rule, self._matcher(kind, rule)))

    def _matcher(self, kind: RuleKind, rule: Rule) -> PathMatcher:
        widely, added = kind in ("deny", "ask"), (*self._folders.names, *self._folders.added)
        return path_matcher(rule.path or "/", self._folders.cwd, widely=widely, added=added)

    def remove_allowing(self, rule: str) -> None:
        """Remove an allow rule."""
        for kind in ("allow", "session"):
            # In place, since views share the list.
            self._rules[kind][:] = [pair for pair in self._rules[kind] if str(pair[0]) != rule]

    def with_rule(self, rule: str) -> "RuleSet":
        """Return a copy with one more allow rule."""
        copied = copy(self)
        copied._rules = {**self._rules, "session": [*self._rules["session"]]}
        copied.add("session", rule)
        return copied

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the rule texts by kind, strongest kind first."""
        return {kind: [str(rule) for rule, _ in rules] for kind, rules in self._rules.items()}

    def covering(self, tool: str, *kinds: RuleKind) -> Iterator[tuple[Rule, PathMatcher]]:
        """Yield the rules for a tool, each with its path matcher."""
        if self._known_folders != (count := len(self._folders.added)):
            self._known_folders = count  # relative paths also apply to an added folder
            for kind, rules in self._rules.items():
                rules[:] = [(rule, self._matcher(kind, rule)) for rule, _ in rules]
        return (pair for kind in kinds for pair in self._rules[kind] if pair[0].covers(tool))

    def any_for(self, tool: str, *kinds: RuleKind) -> bool:
        return next(self.covering(tool, *kinds), None) is not None

    def matching(
        self,
        tool: str,
        part: SimpleCommand,
        *kinds: RuleKind,
        inside: Callable[[str], bool] = plainly_inside,
    ) -> Rule | None:
        """Return the first rule that allows a part of a command or has an equal subject. `inside`
        tests whether a path is in the project.
        """
        rules = self.covering(tool, *kinds)
        return next((rule for rule, _ in rules if allows_part(rule, part, inside)), None)

    def nearly_matching(
        self, part: SimpleCommand, inside: Callable[[str], bool]
    ) -> tuple[Rule, str] | None:
        """Return a rule that allows this kind of command, and the word that it does not cover."""
        for rule, _ in self.covering("Bash", "allow", "session"):
            word = uncovered_word(rule, part, inside)
            if word and word != part.name:
                return rule, word
        return None

    def answering(self, part: SimpleCommand, answer: RuleMatch, *kinds: RuleKind) -> Rule | None:
        """Return the first deny or ask rule that gives this answer for a part."""
        rules = self.covering("Bash", *(kinds or ("deny", "ask")))
        return next((rule for rule, _ in rules if forbids_part(rule, part) == answer), None)

    def matching_path(self, tool: str, paths: Iterable[str], *kinds: RuleKind) -> Rule | None:
        for rule, matcher in self.covering(tool, *kinds):
            if rule.any or any(matcher.matches(path) for path in paths):
                return rule
        return None

    def hiding_below(self, folders: Iterable[str], *kinds: RuleKind) -> Rule | None:
        """Return a rule that guards files below these folders from being read."""
        for rule, matcher in self.covering("Read", *kinds):
            if not rule.any and any(os.path.isdir(f) and matcher.below(f) for f in folders):  # noqa: PTH112
                return rule
        return None

    def guarded_files(
        self, kinds: Sequence[RuleKind] = ("deny", "ask")
    ) -> tuple[list[str], list[str]] | None:
        """Return existing paths guarded from reading and editing; None if there are too many."""
        found: list[list[str]] = []
        for tool in ("Read", "Write"):
            rules = self.covering(tool, *kinds)
            paths = [matcher.find(self._folders.real) for rule, matcher in rules if not rule.any]
            known = [path for each in paths for path in each or ()]
            if None in paths or len(known) > MAX_GUARDED:
                return None
            found.append(known)
        return found[0], found[1]
