"""The permission rules that a person keeps in settings files: theirs, for every project, or the
project's own. Files keep their comments, order and look; they are read again right before each
change and put in place whole. What a person's own hand adds to a project file is trusted with it,
but only where all that stood there before was trusted, or needed no trust.
"""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from . import toml
from .config import PROJECT_FILE, Loaded, loosening, rules_in, user_file
from .errors import ConfigError
from .record.lock import make_private
from .rules import parse_rule
from .trust import accept, content, is_trusted

Where = Literal["project", "user"]

_BOM = b"\xef\xbb\xbf"
_MODES: dict[Where, int] = {"project": 0o644, "user": 0o600}  # of files that are made


class RuleFiles:
    """`paths` are the files, which need not exist; one that counts as the person's own is not also
    the project's. `allow` are the rules that a session opened from now on begins with."""

    def __init__(self, loaded: Loaded, *, cwd: Path, environ: Mapping[str, str]) -> None:
        self.paths: dict[Where, Path] = {"user": user_file(environ)}
        project = loaded.project or cwd / PROJECT_FILE
        if os.path.realpath(project) != os.path.realpath(self.paths["user"]):
            self.paths = {"project": project, **self.paths}
        self.allow = loaded.settings.permissions.allow
        self._loaded = loaded
        self._cwd = cwd
        self._environ = environ

    def keep(self, rule: str, where: Where) -> str:
        """Add a rule that allows; the file it stands in.

        Raises ConfigError when it is not a settings file, or holds what the person has not
        trusted, or cannot be written, and where the rule would mean other files.
        """
        path = self.paths[where]
        if where == "project" and parse_rule(rule).relative:
            self._check_folder(path)
        data = _read(path)
        if where == "project" and data is not None:
            self._check_trust(path, data)
        changed = _changed(path, data or b"", lambda rules: _add(rules, rule))
        if changed != data:
            self._write(where, changed)
        self.allow = (*(r for r in self.allow if r != rule), rule)
        return str(path)

    def forget(self, rule: str) -> list[str]:
        """Take it out of the files in which it is in force; those files. Raises ConfigError."""
        self.allow = tuple(r for r in self.allow if str(parse_rule(r)) != rule)
        touched = []
        for where, path in self.paths.items():
            data = _read(path)
            if data is None or not self._in_force(where, data):
                continue
            changed = _changed(path, data, lambda rules: _remove(rules, rule))
            if changed != data:
                self._write(where, changed)
                touched.append(str(path))
        return touched

    def origin(self, kind: str, rule: str) -> str:
        """Where a rule comes from: `FILE:LINE`, a variable, the command line or this session.
        `kind` is allow, ask, deny or session."""
        key = "allow" if kind == "session" else kind
        for where, path in self.paths.items():
            with suppress(ConfigError):
                data = _read(path)
                if data is None or not (key != "allow" or self._in_force(where, data)):
                    continue
                for found, text, place in rules_in(path, data):
                    if found == key and str(parse_rule(text)) == rule:
                        return self._near(place)
        if kind == "session":
            return "this session"
        sources = self._loaded.origins[f"permissions.{kind}"].source.split(", ")
        given = [source for source in sources if "/" not in source]
        return ", ".join(given).replace("-c", "the command line") or "as the session began"

    def shown(self, where: Where) -> str:
        """The file as people write it here, and where it is if that is elsewhere."""
        path = self.paths[where]
        link = f", a link to {self._near(os.path.realpath(path))}" if path.is_symlink() else ""
        return self._near(str(path)) + link

    def _near(self, path: str) -> str:
        home = self._environ.get("HOME", "")
        for folder, mark in ((str(self._cwd), ""), (os.path.realpath(self._cwd), ""), (home, "~/")):
            if folder and path.startswith(f"{folder}/"):
                return mark + path[len(folder) + 1 :]
        return path

    def _check_folder(self, path: Path) -> None:
        """The paths of rules count from the folder that a session is opened in, not the file's."""
        if os.path.realpath(path.parent) != os.path.realpath(self._cwd):
            raise ConfigError(
                f"nothing was written, for in a session opened in {path.parent} the rule would "
                "mean other files",
                where=str(path),
                hint="Keep it elsewhere, or with an absolute path.",
            )

    def _check_trust(self, path: Path, data: bytes) -> None:
        if self._in_force("project", data):
            return
        if held := loosening(path, data):
            raise ConfigError(
                f"nothing was written, for it holds {', '.join(held)} that you have not trusted",
                where=str(path),
                hint="Read it and accept it with `ctxagent config --trust`, or keep the rule "
                "elsewhere.",
            )

    def _in_force(self, where: Where, data: bytes) -> bool:
        return where == "user" or is_trusted(self.paths[where], data, self._loaded.trust_dir)

    def _write(self, where: Where, data: bytes) -> None:
        path = self.paths[where]
        try:
            _replace(path, data, _MODES[where])
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", where=str(path)) from None
        if where == "project":
            accept(path, data, self._loaded.trust_dir)


def _read(path: Path) -> bytes | None:
    """What is in a file, None where there is none. Raises ConfigError."""
    try:
        return content(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError("is a link to a file that is not there", where=str(path)) from None
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Put a file in place whole, with the mode and the owner it had, or `mode`; a link stays."""
    target = Path(os.path.realpath(path))
    make_private(target.parent)
    handle, temporary = tempfile.mkstemp(prefix=f"{PROJECT_FILE}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(FileNotFoundError):
                was = target.stat()
                mode = stat.S_IMODE(was.st_mode)
                with suppress(PermissionError):
                    os.fchown(handle, was.st_uid, was.st_gid)
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        Path(temporary).replace(target)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _add(rules: Any, rule: str) -> None:
    if rule not in rules:
        rules.append(rule)


def _remove(rules: Any, rule: str) -> None:
    for place in reversed(range(len(rules))):
        if str(parse_rule(rules[place])) == rule:
            del rules[place]


def _changed(path: Path, data: bytes, change: Callable[[Any], None]) -> bytes:
    """The settings file with `permissions.allow` changed and all else as it stands. Raises
    ConfigError for one that is not sound."""
    import tomlkit

    wanted, _ = toml.parse(data, path)
    rules_in(path, data)  # nothing in it but settings
    allow = list(wanted.get("permissions", {}).get("allow", []))
    change(allow)
    if allow == wanted.get("permissions", {}).get("allow", []):
        return data
    wanted.setdefault("permissions", {})["allow"] = allow
    text = data.removeprefix(_BOM).decode()
    document = tomlkit.parse(text + "\n" * bool(text and not text.endswith("\n")))
    if "permissions" not in document:
        if text:
            document.add(tomlkit.nl())
        document.add("permissions", tomlkit.table())
    table: Any = document["permissions"]
    if "allow" not in table:
        table["allow"] = []
    change(table["allow"])
    written = tomlkit.dumps(document)
    if "\r\n" in text and not re.search(r"(?<!\r)\n", text):
        written = re.sub(r"(?<!\r)\n", "\r\n", written)
    changed = _BOM * data.startswith(_BOM) + written.encode()
    rules_in(path, changed)
    if toml.parse(changed, path)[0] != wanted:
        raise ConfigError(
            "its form does not let a rule be put in or taken out",
            where=str(path),
            hint="Do it by hand: `allow` below [permissions].",
        )
    return changed
