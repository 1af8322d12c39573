"""The permission rules in settings files: the user's file for all projects, and the project's file.

Edits keep comments, order and layout. A file is read again right before each edit and replaced as a
whole. A project file stays trusted after an edit if all its previous content was trusted or needed
no trust.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ..config.edit_file import (
    USER_FILE_MODE,
    read_settings_file,
    with_section,
    write_settings_file,
)
from ..config.load import PROJECT_FILE, LoadedSettings, keys_needing_trust, rules_in_file
from ..config.places import user_file
from ..config.trust import accept, is_trusted
from ..errors import ConfigError
from .rules import parse_rule

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
