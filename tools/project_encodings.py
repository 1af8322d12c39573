"""What a project says about the encoding of its files: `.editorconfig`, `.gitattributes`, and the
other files of the same kind in a folder.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from .encoding.codec_names import codec_of
from .system.glob_patterns import compile_wildcard
from .system.ignore_rules import read_ignore_file
from .system.safe_open import open_regular
from .text import CHUNK_BYTES, Evidence, NotText, recognise

MAX_SIBLINGS = 40  # files that are read
MAX_NAMES = 2_000  # names that are looked at

_Rule = tuple[re.Pattern[str], str]  # paths below a folder, and their encoding


class ProjectEncodings:
    """Finds evidence about the encodings of files. Remembers what it has read."""

    def __init__(self) -> None:
        self._editor_rules: dict[Path, tuple[list[_Rule], bool]] = {}
        self._git_rules: dict[Path, list[_Rule]] = {}
        self._siblings: dict[tuple[Path, str], str] = {}

    def evidence(self, path: Path) -> Evidence:
        """Return the evidence about a file, besides its own bytes."""
        return Evidence(self.stated(path), lambda: self._of_siblings(path))

    def stated(self, path: Path) -> str:
        """Return the encoding that the project states for a file, with `-bom` if the file begins
        with a byte order mark; "" if it states none.
        """
        return self._by_editor(path) or self._by_git(path)

    def _by_editor(self, path: Path) -> str:
        for folder in path.parents:
            if folder not in self._editor_rules:
                self._editor_rules[folder] = _editor_rules(folder)
            rules, is_root = self._editor_rules[folder]
            if name := _last_match(rules, path, folder):
                return name
            if is_root:
                break
        return ""

    def _by_git(self, path: Path) -> str:
        for folder in path.parents:
            if folder not in self._git_rules:
                self._git_rules[folder] = _git_rules(folder)
            if name := _last_match(self._git_rules[folder], path, folder):
                return name
            if os.path.lexists(folder / ".git"):
                break
        return ""

    def _of_siblings(self, path: Path) -> str:
        """Return the encoding of the files in the same folder with the same suffix, if those whose
        own bytes are certain agree; else "".
        """
        key = path.parent, path.suffix
        if key not in self._siblings:
            found = {*_certain_encodings(path.parent, path.suffix)}
            self._siblings[key] = found.pop() if len(found) == 1 else ""
        return self._siblings[key]


def text_of(path: Path, data: bytes, *, whole: bool = True) -> str:
    """Return the text of a file's bytes, or of its first bytes if not `whole`. Bytes that are not
    valid become replacement characters. Raises NotText.
    """
    form = recognise(data, whole=whole, evidence=ProjectEncodings().evidence(path))
    return data[len(form.bom) :].decode(form.encoding, "replace")


def _certain_encodings(folder: Path, suffix: str) -> Iterator[str]:
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        names = [e.name for e in islice(entries, MAX_NAMES) if Path(e.name).suffix == suffix]
    for name in sorted(names)[:MAX_SIBLINGS]:
        with suppress(OSError, NotText):
            with os.fdopen(open_regular(folder / name), "rb") as file:
                data = file.read(CHUNK_BYTES)
            form = recognise(data, whole=len(data) < CHUNK_BYTES)
            if form.is_certain and not form.is_unicode:
                yield "cp1252" if form.encoding == "latin-1" else form.encoding


def _last_match(rules: Iterable[_Rule], path: Path, folder: Path) -> str:
    """Return the encoding of the last rule that matches; "" for none. "unset" resets it."""
    below = str(path.relative_to(folder))
    found = ""
    for pattern, name in rules:
        if pattern.fullmatch(below):
            found = name
    with suppress(ValueError):
        codec = codec_of(found)
        return codec + "-bom" * found.endswith("-bom") if found else ""
    return ""


def _editor_rules(folder: Path) -> tuple[list[_Rule], bool]:
    """Return the rules for `charset` in the `.editorconfig` of a folder, and whether it is the
    root.
    """
    rules, is_root, pattern = list[_Rule](), False, ""
    for line in read_ignore_file(str(folder / ".editorconfig")):
        key, mark, value = (part.strip().lower() for part in line.partition("="))
        if line.strip().startswith("["):
            pattern = line.strip()[1:].rpartition("]")[0]
        elif mark and key == "root" and not pattern:
            is_root = value == "true"
        elif mark and key == "charset" and pattern:
            rules += _rule(pattern, value)
    return rules, is_root


def _git_rules(folder: Path) -> list[_Rule]:
    """Return the rules for `working-tree-encoding` in the `.gitattributes` of a folder."""
    rules = list[_Rule]()
    for name in (".gitattributes", ".git/info/attributes"):
        for line in read_ignore_file(str(folder / name)):
            pattern, *attributes = line.split() or [""]
            for attribute in attributes if not pattern.startswith(("#", '"')) else ():
                key, _, value = attribute.partition("=")
                if key.lstrip("-!") == "working-tree-encoding":
                    rules += _rule(pattern, value.lower())
    return rules


def _rule(pattern: str, name: str) -> list[_Rule]:
    with suppress(ValueError, re.error):  # a pattern that is not valid matches nothing
        return [(compile_wildcard(pattern), name)]
    return []
