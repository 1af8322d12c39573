"""The possible paths of instruction files: the user's, the project's, and those of added
directories.

Only known paths are checked, and all files below folders of rules. In each folder the order is
`FILES`, then the rules, then LOCAL_FILE. Files of nearer folders come later, so that the model
reads the most specific text last.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..config.trust import doubt_about, is_file_trusted
from ..lazy import dataclass
from ..permissions.rules import path_matcher

FILES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md")
RULES_FOLDER = ".claude/rules"
LOCAL_FILE = "CLAUDE.local.md"
OTHER_AGENT_FOLDERS = (".claude", ".codex")  # their folders in the home directory
MAX_RULES = 200  # per folder of rules
MAX_RULE_FOLDERS = 200  # per folder of rules
# Folders of third-party content, whose instruction files are not the project's.
THIRD_PARTY = frozenset(("node_modules", "site-packages", "dist-packages", ".git"))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible path of an instruction file."""

    path: Path
    folder: Path  # the folder that the instructions apply to
    root: Path | None  # of symlinks and imports; None for a file of the user
    is_scoped: bool = False  # applies only to work in the folder
    is_rule: bool = False  # may have a head with file patterns
    problem: str = ""  # a problem with a folder of rules; then there is no file

    def matches(self, globs: Iterable[str], paths: Iterable[Path]) -> bool:
        """Return True if one of a rule's patterns matches one of the files."""
        texts = [*map(str, paths)]
        matchers = (path_matcher(glob, str(self.folder), widely=False) for glob in globs)
        return any(matcher.matches(text) for matcher in matchers for text in texts)


@dataclass(frozen=True, slots=True)
class InstructionPlaces:
    """The folders with instruction files of a session."""

    cwd: Path
    config_home: Path
    home: Path
    trust_dir: Path
    added: tuple[Path, ...] = ()  # directories that the user has added

    @property
    def root(self) -> Path:
        """The root of the project: the repository, or the working directory outside of a
        repository. A repository at or above the home directory does not count.
        """
        way = (self.cwd, *self.cwd.parents)
        root = next((each for each in way if (each / ".git").exists()), self.cwd)
        return self.cwd if self._has_home(root) else root

    @property
    def roots(self) -> list[Path]:
        """The folders below which files can have instruction files."""
        return [self.root, *self.added]

    @property
    def own_folders(self) -> list[Path]:
        """The folders of the user's own instruction files."""
        return [*(self.home / name for name in OTHER_AGENT_FOLDERS), self.config_home]

    def for_all_work(self) -> list[Candidate]:
        """Return the candidates that apply to all work, and those of added directories."""
        root = self.root
        found = [*self._own(root)]
        for folder in (*reversed(self.cwd.parents), self.cwd):
            found += self._in_folder(folder, root if folder.is_relative_to(root) else folder)
        for folder in self.added:
            found += [replace(each, is_scoped=True) for each in self._in_folder(folder, folder)]
        once = dict[Path, Candidate]()
        for each in found:
            once.setdefault(each.path, each)
        return [*once.values()]

    def for_files(self, paths: Iterable[Path]) -> list[Candidate]:
        """Return the candidates that apply to work on these files and are not in `for_all_work`."""
        roots, folders = self.roots, set[Path]()
        always = {self.cwd, *self.cwd.parents, *self.added}
        for path in map(self.below_root, paths):
            root = next((each for each in roots if path.is_relative_to(each)), None)
            if root and THIRD_PARTY.isdisjoint(path.relative_to(root).parts):
                folders |= {root / each for each in path.relative_to(root).parents} - always
        return self.in_folders(folders)

    def in_folders(self, folders: Iterable[Path]) -> list[Candidate]:
        """Return the candidates in these folders of the project or of an added directory."""
        roots = self.roots
        return [
            replace(each, is_scoped=True)
            for folder in sorted(set(folders), key=lambda each: each.parts)
            if (root := next((each for each in roots if folder.is_relative_to(each)), None))
            for each in self._in_folder(folder, folder if self._has_home(root) else root)
        ]

    def is_own(self, path: Path) -> bool:
        """Return True for Markdown directly in a folder of the user. Subfolders may have
        third-party text, such as plugins.
        """
        real = path.resolve()
        return real.suffix == ".md" and real.parent in [each.resolve() for each in self.own_folders]

    def own_files(self) -> list[Path]:
        """Return the paths of the user's own files, which apply to all work."""
        return [each.path for each in self._own(self.root)]

    def _has_home(self, root: Path) -> bool:
        return self.home.resolve().is_relative_to(root.resolve())

    def below_root(self, path: Path) -> Path:
        """Return the path below a root of the session for a path below the target of this root, if
        the root is a symlink. Return other paths unchanged.
        """
        for root in self.roots:
            if not path.is_relative_to(root) and path.is_relative_to(real := root.resolve()):
                return root / path.relative_to(real)
        return path

    def _in_folder(self, folder: Path, root: Path) -> list[Candidate]:
        """Return the candidates of a folder, in order. Rules in the home directory are the
        user's own.
        """
        return [
            *(Candidate(folder / name, folder, root) for name in FILES),
            *(() if folder == self.home else _rules(folder, folder, root)),
            Candidate(folder / LOCAL_FILE, folder, root),
        ]

    def _own(self, root: Path) -> Iterator[Candidate]:
        """Yield the candidates of the user's own files. Include Codex's file only if there is no
        other.
        """
        claude = self.home / ".claude" / "CLAUDE.md"
        ours = [self.config_home / name for name in FILES[:2]]
        if not any(map(_is_file, (claude, *ours))):
            yield Candidate(self.home / ".codex" / "AGENTS.md", root, None)
        yield Candidate(claude, root, None)
        yield from _rules(self.home, root, None)
        for path in ours:
            yield Candidate(path, root, None)


def instruction_warnings(places: InstructionPlaces) -> list[str]:
    """Return a warning for each file for all work that is ignored until the user trusts it."""
    found = []
    for each in places.for_all_work():
        with suppress(OSError):
            is_shared = each.root is not None
            why = _is_file(each.path) and doubt_about(
                each.path, places.trust_dir, is_shared=is_shared
            )
            if why and not is_file_trusted(each.path, places.trust_dir):
                found.append(untrusted(each.path, why))
    return found


def untrusted(path: Path, why: str) -> str:
    """Return the warning about a file that the user has not accepted yet."""
    return f"{path} is ignored: {why}. Read it, then accept it with `ctxagent config --trust`."


def _rules(folder: Path, scope: Path, root: Path | None) -> Iterator[Candidate]:
    """Yield the rules of a folder, which apply to work in `scope`, and a problem if some are
    left out.
    """
    top = folder / RULES_FOLDER
    if root and not top.resolve().is_relative_to(root.resolve()):
        problem = f"{top} is a link that leaves the project: its rules are left out"
        yield Candidate(top, scope, root, problem=problem)
        return
    found, is_cut = list[Path](), False
    for count, (at, below, names) in enumerate(os.walk(top)):
        if is_cut := count > MAX_RULE_FOLDERS or len(found) > MAX_RULES:
            break
        below.sort()  # makes the order of os.walk stable
        found += (Path(at, name) for name in sorted(names) if name.endswith(".md"))
    for path in sorted(found[:MAX_RULES]):
        yield Candidate(path, scope, root, is_rule=True)
    if is_cut or len(found) > MAX_RULES:
        problem = f"{top} has more than {MAX_RULES} rules or {MAX_RULE_FOLDERS} folders"
        yield Candidate(top, scope, root, problem=f"{problem}: the others are left out")


def _is_file(path: Path) -> bool:
    with suppress(OSError):
        return path.is_file()
    return False
