"""The rules of ignore files, as ripgrep applies them.

A rule of `.rgignore` overrides one of `.ignore`, which overrides `.gitignore`, then
`.git/info/exclude` and the user's own file. Among files of one kind, the deepest one decides.
Whether a folder is a repository makes no difference. A rule for a folder holds for everything in
it, because nobody enters an ignored folder.
"""

import codecs
import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress

from .glob_patterns import compile_wildcard

# Ignore files, those that override others first.
NOT_GIT = (".rgignore", ".ignore")  # unknown to git
IGNORE_FILES = (*NOT_GIT, ".gitignore", ".git/info/exclude")
MAX_IGNORE_FILE_BYTES = 1 << 22

_EXCLUDES_FILE = r'^[ \t]*excludesfile[ \t]*=[ \t]*"?[ \t]*(\S+?)[ \t]*"?[ \t\r]*$'
_WILD = frozenset("*?[]{}\\/")

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

ReadLines = Callable[[str], Iterable[str]]  # returns the lines of a file in a folder
# A file, the start that the paths it knows have and others lack, the length that they lack.
_Placed = tuple["_IgnoreFile", str, int]
_Found = tuple[int, str, "_IgnoreFile"]  # a file, with its kind and folder


class _IgnoreFile:
    """The rules of one file."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[tuple[bool, bool]] = []  # whether it keeps paths; whether only folders
        # The places of the rules in the list: by the path, by the name, by the part of the name
        # behind the last dot, and of all others.
        self._paths: dict[str, list[int]] = {}
        self._names: dict[str, list[int]] = {}
        self._endings: dict[str, list[tuple[int, str]]] = {}
        self._patterns: list[tuple[int, re.Pattern[str]]] = []
        for line in lines:
            self._add(line)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Return True if the last matching rule ignores a path, False if it keeps it."""
        name = path.rpartition("/")[2]
        found = [*self._paths.get(path, ()), *self._names.get(name, ())]
        for place, ending in self._endings.get(name.rpartition(".")[2], ()):
            if name.endswith(ending):
                found.append(place)
        found += [place for place, pattern in self._patterns if pattern.fullmatch(path)]
        for place in sorted(found, reverse=True):
            keeps, only_folders = self._rules[place]
            if is_folder or not only_folders:
                return not keeps
        return None

    def _add(self, line: str) -> None:
        if line.startswith("#"):
            return
        pattern = line if line.endswith("\\ ") else line.rstrip()
        keeps = pattern.startswith("!")
        if keeps or pattern.startswith(("\\!", "\\#")):
            pattern = pattern[1:]
        only_folders = pattern.endswith("/")
        if only_folders:
            pattern = pattern[:-1].removesuffix("\\")
        with suppress(ValueError, re.error):  # one bad line must not disable the others
            if pattern:
                self._place(pattern, len(self._rules))
                self._rules.append((keeps, only_folders))

    def _place(self, pattern: str, place: int) -> None:
        rest = pattern.removeprefix("**/")
        pattern = rest if "/" not in rest else pattern
        ending = pattern.removeprefix("*.")
        if not _WILD & {*pattern}:
            table = self._paths if "/" in pattern else self._names
            table.setdefault(pattern.removeprefix("/"), []).append(place)
        elif ending != pattern and not _WILD & {*ending} and "/" not in ending:
            key = ending.rpartition(".")[2]
            self._endings.setdefault(key, []).append((place, f".{ending}"))
        else:
            self._patterns.append((place, compile_wildcard(pattern)))


class IgnoreRules:
    """The rules that apply in a folder, for paths relative to the root of a walk."""

    def __init__(self, names: Sequence[str], kinds: tuple[tuple[_Placed, ...], ...]) -> None:
        self._names = names  # of the files to read
        self._kinds = kinds  # for each name, the files from the deepest one on; then the user's own

    def __bool__(self) -> bool:
        return any(self._kinds)

    def ignores(self, path: str, is_folder: bool) -> bool:
        for files in self._kinds:
            for file, start, cut in files:
                verdict = file.verdict(start + path[cut:], is_folder)
                if verdict is not None:
                    return verdict
        return False

    def below(self, prefix: str, names: Container[str], read: ReadLines) -> "IgnoreRules":
        """Return the rules in a folder with these names, whose paths begin with `prefix`."""
        kinds = list(self._kinds)
        for place, name in enumerate(self._names):
            if name.partition("/")[0] in names and (file := _IgnoreFile(read(name))):
                kinds[place] = ((file, "", len(prefix)), *kinds[place])
        return self if kinds == [*self._kinds] else IgnoreRules(self._names, tuple(kinds))


def rules_above(
    root: str, environ: Mapping[str, str], names: Sequence[str] = IGNORE_FILES
) -> tuple[IgnoreRules, bool]:
    """Return the rules that hold in the folder of an absolute real path: those of the user, and of
    the files with these names in the folders above it. Also return whether these folders ignore
    it. If they do, their rules are left out: a search in an ignored folder is intentional.
    """
    found: list[_Found] = []
    parts = [part for part in root.split("/") if part]
    is_ignored = False
    for depth in range(len(parts)):
        folder = "".join(f"/{part}" for part in parts[:depth])
        for kind, name in enumerate(names):
            if file := _IgnoreFile(read_ignore_file(f"{folder}/{name}")):
                found.append((kind, folder, file))
        if _rules_at(f"{folder}/{parts[depth]}", found, names).ignores("", True):
            found, is_ignored = [], True
            break
    own = _IgnoreFile(_lines_of_user(environ))
    return _rules_at(f"{root.rstrip('/')}/", found, names, own), is_ignored


def _rules_at(
    start: str, found: Sequence[_Found], names: Sequence[str], own: _IgnoreFile | None = None
) -> IgnoreRules:
    """Return rules for paths that follow `start`, from the files of the folders above."""
    kinds: list[tuple[_Placed, ...]] = [() for _ in names]
    for kind, folder, file in found:
        kinds[kind] = ((file, start[len(folder) + 1 :], 0), *kinds[kind])
    return IgnoreRules(names, (*kinds, ((own, "", 0),) if own else ()))


def read_ignore_file(name: str) -> list[str]:
    """Return the lines of an ignore file; [] if it cannot be read. As in ripgrep, a line that is
    not UTF-8 ends the file.
    """
    data = b""
    with suppress(OSError):
        descriptor = os.open(name, _READ)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):  # a pipe would be waited for
                data = os.read(descriptor, MAX_IGNORE_FILE_BYTES)
        finally:
            os.close(descriptor)
    lines: list[str] = []
    with suppress(UnicodeDecodeError):
        for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n"):
            lines.append(line.removesuffix(b"\r").decode())
    return lines


def _lines_of_user(environ: Mapping[str, str]) -> list[str]:
    """Return the lines of the file that git's `core.excludesFile` names, or of the default file."""
    home = environ.get("HOME", "")
    settings = environ.get("XDG_CONFIG_HOME") or (home and f"{home}/.config")
    for file in (home and f"{home}/.gitconfig", settings and f"{settings}/git/config"):
        text = "\n".join(read_ignore_file(file)) if file else ""
        if found := re.search(_EXCLUDES_FILE, text, re.MULTILINE | re.IGNORECASE):
            return read_ignore_file(found[1].replace("~", home))
    return read_ignore_file(f"{settings}/git/ignore") if settings else []
