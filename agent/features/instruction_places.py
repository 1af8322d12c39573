"""Instruction files: their possible paths, their text, their imports, and whether a rule applies.

The files are the user's, the project's, and those of added directories. Only known paths are
checked, and all files below folders of rules. In each folder the order is `FILES`, then the rules,
then LOCAL_FILE. Files of nearer folders come later, so that the model reads the most specific text
last.

`@path` in a text imports another file. An imported file comes before its importer as a separate
text, so each file appears once, however many files import it. A rule (a file in `.claude/rules`)
may start with `paths:`, the patterns of the files it applies to.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from ...tools.project_encodings import text_of
from ...tools.text import NotText
from ..config.trust import doubt_about, is_file_trusted, is_trusted
from ..extensions.front_matter import MAX_HEAD_CHARS, split_front_matter
from ..launch import LaunchOptions
from ..lazy import dataclass, regex
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

    @classmethod
    def of(cls, options: LaunchOptions) -> "InstructionPlaces":
        """Return the folders for a session with these options."""
        trust_dir = options.places.trust_dir
        return cls(options.places.cwd, options.places.config_home, options.places.home, trust_dir)

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
        for path in (_below(roots, each) for each in paths):
            root = next((each for each in roots if path.is_relative_to(each)), None)
            if root and THIRD_PARTY.isdisjoint(path.relative_to(root).parts):
                folders |= {root / each for each in path.relative_to(root).parents} - always
        return self._in_folders(folders, roots)

    def in_folders(self, folders: Iterable[Path]) -> list[Candidate]:
        """Return the candidates in these folders of the project or of an added directory."""
        return self._in_folders(folders, self.roots)

    def _in_folders(self, folders: Iterable[Path], roots: Sequence[Path]) -> list[Candidate]:
        homes = {*filter(self._has_home, roots)}
        return [
            replace(each, is_scoped=True)
            for folder in sorted(set(folders), key=lambda each: each.parts)
            if (root := next((each for each in roots if folder.is_relative_to(each)), None))
            for each in self._in_folder(folder, folder if root in homes else root)
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
        return _below(self.roots, path)

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


def _below(roots: Iterable[Path], path: Path) -> Path:
    for root in roots:
        if not path.is_relative_to(root) and path.is_relative_to(real := root.resolve()):
            return root / path.relative_to(real)
    return path


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
    if not os.path.lexists(top.parent):  # spares most folders the resolution of links
        return
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


MAX_INSTRUCTION_CHARS = 100_000  # of one file
READ_BYTES = 8_000  # that show whether an import is text
MAX_IMPORT_DEPTH = 5  # length of a chain of imports
MAX_FILES = 500
MAX_GLOBS = 100  # per rule, after expansion of braces
MAX_GLOB_CHARS = 1_000
UNTRUSTED = "[not taken in: {why}. It counts once the user has read and trusted it]"
LINK_OUTSIDE = "[a link that leaves the project: not followed]"
NOT_IMPORTED = "[{name} is not imported: {why}]"

_FENCE = regex(
    r"^[ \t>]*(`{3,}|~{3,})[^\n]*$.*?(?:^[ \t>]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_SPAN = regex(r"<!--.*?(?:-->|\Z)|(?<!`)(`{1,9})(?!`).{1,300}?(?<!`)\1(?!`)", re.DOTALL)
_IMPORT = regex(r"(?:^|(?<=\s))@((?:\\ |[^\s\\])+)")
_TRAILING_PUNCTUATION = ".,;:!?'\")]}>*…"  # punctuation after a path
_FILE_LIKE = ("./", "../", "~/", "/")
_BARE_GLOB = regex(r"^([ \t]*(?:-|(?:paths|globs):)[ \t]+)([*{][^\n]*)$", re.MULTILINE)
_BETWEEN_COMMAS = regex(r"(?:[^,{]|\{[^{}]*\}|\{)+")
_BRACES = regex(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """An existing file and its text for the model."""

    path: Path
    text: str  # "" for an empty file
    same_as: Path | None = None  # the earlier file that has the same text
    folder: Path | None = None  # the folder it applies to; None for all work
    globs: tuple[str, ...] = ()  # patterns of the files it applies to; () for all
    by: Path | None = None  # the file that imports it
    counts: bool = True  # False if a note replaces the text of the file


@dataclass(slots=True)
class InstructionReader:
    """Reads instruction files, each once."""

    places: InstructionPlaces
    denies: Callable[[str], bool] = lambda path: False  # True if a rule forbids to read a file
    touched: Sequence[Path] = ()  # files to match with the patterns of rules
    in_context: Collection[str] = ()  # files that the model has; rules among them apply
    files: list[InstructionFile] = field(default_factory=list)
    waiting: list[InstructionFile] = field(default_factory=list)  # rules that do not apply yet
    problems: list[str] = field(default_factory=list)
    doubtful: dict[Path, str] = field(default_factory=dict)  # file that needs trust: reason
    _seen: set[Path] = field(default_factory=set)

    def read(self, candidates: Iterable[Candidate]) -> list[InstructionFile]:
        """Read the existing files and their imports. Return all files read so far."""
        for each in candidates:
            if each.path not in self._seen:
                self._seen.add(each.path)
                self.problems += [each.problem] if each.problem else []
                is_denied = each.is_scoped and self.denies(str(each.path))
                if _is_regular(each.path) and not is_denied:
                    self._take(each, ())
        first_with = dict[str, Path]()
        for place, file in enumerate(self.files):
            same = first_with.setdefault(file.text, file.path) if file.counts else file.path
            self.files[place] = replace(file, same_as=None if same == file.path else same)
        return self.files

    def _take(self, candidate: Candidate, importers: tuple[Path, ...]) -> None:
        """Read a file after its imports. Skip a file that cannot be read."""
        path, globs = candidate.path, tuple[str, ...]()
        try:
            text, counts = self._text_of(candidate, is_import=bool(importers))
            if candidate.is_rule and counts:
                globs, text = split_rule(text)
        except OSError:
            return
        except ValueError as error:
            what = "this rule" if candidate.is_rule else "this file"
            self.problems.append(f"{path}: {what} is left out: {error}")
            return
        if path in self.doubtful and not counts and (importers or candidate.is_scoped):
            self.problems.append(untrusted(path, self.doubtful[path]))
        file = InstructionFile(
            path,
            text,
            folder=candidate.folder if candidate.is_scoped else None,
            globs=globs,
            by=importers[-1] if importers else None,
            counts=counts,
        )
        if globs and not self._applies(candidate, globs):
            self.waiting.append(file)
            return
        if counts and "@" in text:
            notes = self._imports(candidate, text, (*importers, path))
            file = replace(file, text="\n\n".join([text, *notes]))
        self.files.append(file)

    def _applies(self, candidate: Candidate, globs: Iterable[str]) -> bool:
        is_known = str(candidate.path) in self.in_context
        return is_known or candidate.matches(globs, map(self.places.below_root, self.touched))

    def _imports(self, importer: Candidate, text: str, chain: tuple[Path, ...]) -> list[str]:
        """Read the imports of a text. Return a note for each import that failed."""
        notes = []
        for name in imported_names(text):
            path = self._path_of(name, chain[-1].parent)
            if path in chain:
                self.problems.append(f"{chain[-1]} imports {path}, which imports it: given once")
            elif path not in self._seen and (why := self._import(name, path, importer, chain)):
                notes.append(NOT_IMPORTED.format(name=f"@{name}", why=why))
                self.problems.append(f"{chain[-1]}: @{name} is not imported: {why}")
        return notes

    def _import(
        self, name: str, path: Path | None, importer: Candidate, chain: tuple[Path, ...]
    ) -> str:
        """Read an imported file. Return why it is not imported, or "". Also return "" for a name
        that does not look like a file.
        """
        if path is None or not _is_regular(path):
            is_meant = name.startswith(_FILE_LIKE) or name.endswith(".md")
            return "there is no such file" * (is_meant and not (path and path.is_dir()))
        if importer.root and path in self.places.own_files():
            return ""  # it applies to all work anyway
        if importer.root and not self._may_import(path, importer.root):
            return "it is outside of the project"
        if len(chain) > MAX_IMPORT_DEPTH:
            return f"it is more than {MAX_IMPORT_DEPTH} imports away"
        if len(self._seen) >= MAX_FILES:
            return f"there are more than {MAX_FILES} files"
        if self.denies(str(path)):
            return "a rule denies reading it"
        try:
            with path.open("rb") as file:
                data = file.read(READ_BYTES)
            text_of(path, data, whole=len(data) < READ_BYTES)
        except NotText:
            return "it is not text"
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        self._seen.add(path)
        project = self.places.root
        is_project = path.resolve().is_relative_to(project.resolve())
        root = importer.root or (project if is_project else None)
        self._take(replace(importer, path=path, root=root, is_rule=False), chain)
        return ""

    def _may_import(self, path: Path, root: Path) -> bool:
        """Return True if files of a project may import this file."""
        return path.resolve().is_relative_to(root.resolve()) or self.places.is_own(path)

    def _path_of(self, name: str, folder: Path) -> Path | None:
        """Return the path of an import in a file of `folder`, or None for an invalid name."""
        home = self.places.home
        path = home / name[2:] if name.startswith("~/") else folder / name
        return None if "\0" in name else Path(os.path.normpath(path))

    def _text_of(self, candidate: Candidate, *, is_import: bool) -> tuple[str, bool]:
        """Return the text for the model, and whether it is the file's own text. Raises OSError, and
        ValueError for a file that is not text.
        """
        path, root = candidate.path, candidate.root
        if root and not is_import and not path.resolve().is_relative_to(root.resolve()):
            return LINK_OUTSIDE, False  # it could expose any file that the user can read
        with path.open("rb") as file:  # limited, because the file may have any size
            data = file.read(4 * MAX_INSTRUCTION_CHARS + 1)
        is_shared = root is not None or is_import
        if why := doubt_about(path, self.places.trust_dir, is_shared=is_shared):
            self.doubtful[path] = why
            if not is_trusted(path, data, self.places.trust_dir):
                return UNTRUSTED.format(why=why), False
        try:
            text = text_of(path, data, whole=len(data) <= 4 * MAX_INSTRUCTION_CHARS).strip()
        except NotText:
            try:
                text = data.decode().strip()  # a NUL among plain text
            except UnicodeDecodeError:
                raise ValueError("it is not text in a known encoding") from None
        if len(text) > MAX_INSTRUCTION_CHARS:
            cut = f"[cut at {MAX_INSTRUCTION_CHARS:,} characters; read {path} for the rest]"
            text = f"{text[:MAX_INSTRUCTION_CHARS]}\n{cut}"
        return text, True


def imported_names(text: str) -> list[str]:
    """Return the unique names that a text imports, without names in code and comments."""
    prose = _SPAN.sub(" ", _FENCE.sub("", text))
    names = (
        found.replace("\\ ", " ").rstrip(_TRAILING_PUNCTUATION) for found in _IMPORT.findall(prose)
    )
    return list(dict.fromkeys(filter(None, names)))


def split_rule(text: str) -> tuple[tuple[str, ...], str]:
    """Return the file patterns of a rule, and its text. Raises ValueError for an invalid head."""
    head, mark, body = text.partition("\n---")
    if text.startswith("---") and len(head) <= MAX_HEAD_CHARS:  # a longer head is refused
        head = _BARE_GLOB.sub(_quoted, head)
    values, rest = split_front_matter(head + mark + body)
    given = values.get("paths") or values.get("globs")
    texts = (
        map(str, given) if isinstance(given, list) else _BETWEEN_COMMAS.findall(str(given or ""))
    )
    globs = dict[str, None]()
    for each in filter(None, map(str.strip, texts)):
        globs |= dict.fromkeys(without_braces(each, MAX_GLOBS - len(globs)))
    if any(len(glob) > MAX_GLOB_CHARS for glob in globs):
        raise ValueError(f"one of its patterns has more than {MAX_GLOB_CHARS} characters")
    return tuple(globs), rest


def without_braces(glob: str, most: int = MAX_GLOBS) -> list[str]:
    """Return the patterns that a pattern with alternatives in braces expands to. Raises ValueError
    for more than `most`.
    """
    done, left = list[str](), [glob]
    while left:
        pattern = left.pop(0)
        found = _BRACES.search(pattern)
        words = found[1].split(",") if found else []
        if len(done) + len(left) + max(1, len(words)) > most:
            raise ValueError(f"its patterns stand for more than {MAX_GLOBS}")
        if found:
            before, behind = pattern[: found.start()], pattern[found.end() :]
            left += [f"{before}{each}{behind}" for each in words]
        else:
            done.append(pattern)
    return list(dict.fromkeys(done))


def _quoted(found: re.Match[str]) -> str:
    value = found[2].rstrip().replace("'", "''")
    return f"{found[1]}'{value}'"


def _is_regular(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
