"""What a command destroys or publishes, where, and whether /rewind restores it: for the question.

Everything is computed: paths are resolved and their files counted, git lists commits and changed
files. An effect that cannot be computed is named as such. Nothing is changed, and the work is
bounded.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...tools.system.phrasing import count_of
from ..errors import conceal
from ..lazy import dataclass
from .objections import MAY_CHANGE, quoted_command
from .paths import WorkFolders, expand_glob, is_within, path_forms
from .shell.git import without_folder
from .shell.parser import Script, SimpleCommand, Word
from .shell.reach import is_publishing
from .shell.read_only import path_arguments, touched_paths

if TYPE_CHECKING:
    from ..worktree.git import GitRunner

MAX_COUNTED_FILES = 10_000
MAX_LISTED_PATHS = 3
COUNTING_S = 1.0  # of all paths of a command
GIT_S = 3.0  # for one call of git
AT_RUN_TIME = "deletes files that are known only at run time; cannot be undone"
NOT_UNDONE = "cannot be undone"
RESTORED = "/rewind restores {}"

NONE = "0 commits"

_RECURSIVE = re.compile(r"-[a-zA-Z]*[rR]|--r")
_LETTERS = re.compile(r"-[a-zA-Z]+")
_ALL_REFS = {"--mirror": "all branches and tags", "--all": "all branches", "--tags": "all tags"}
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_EXPANDED = re.compile(r"""[^'"`\\]*""")  # apart from variables, and outer quotes


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """Computes the effects of one command that starts in `base`, in an environment."""

    script: Script
    base: str
    folders: WorkFolders
    env: Mapping[str, str]

    def by_part(self) -> dict[str, str]:
        """Return the effects by the source of the part. A part in a loop may have several."""
        found = dict[str, str]()
        for part in self.script.parts:
            effect = self._effect(part)
            if effect and effect not in found.get(part.source, ""):
                found[part.source] = " and ".join(filter(None, (found.get(part.source), effect)))
        return found

    def _effect(self, part: SimpleCommand) -> str:
        if is_publishing(part):
            return f"publishes a package; {NOT_UNDONE}"
        find = _EFFECTS.get(part.name.rpartition("/")[2])
        return find(self, part) if find else ""

    def _removal(self, part: SimpleCommand) -> str:
        """Return the effect of rm, unlink or shred."""
        found = [self._paths(word) for word in path_arguments(part)]
        if None in found or (not found and part is not self.script.parts[0]):  # find | xargs rm
            return AT_RUN_TIME
        paths = [path for each in found for path in each or () if os.path.lexists(path)]
        if not any(_RECURSIVE.match(word.text) for word in part.words[1:]):
            paths = [path for path in paths if _is_file(path)]
        return self._deletes(paths)

    def _find(self, part: SimpleCommand) -> str:
        """Return the effect of `find … -delete`: at most, it deletes all files below its path."""
        words = [word.text for word in part.words]
        if "-delete" not in words:
            return ""
        paths = self._paths(Word(".") if words[1][0] in "-(!" else part.words[1])
        return AT_RUN_TIME if paths is None else self._deletes(paths, at_most=True)

    def _git(self, part: SimpleCommand) -> str:
        """Return the effect of git on the remote repository or on the work tree."""
        from ..worktree.git import GitRunner

        plain, folder = without_folder(part)
        place = os.path.realpath(os.path.join(self.base, folder))  # noqa: PTH118
        name, *words = [*(word.text for word in plain.words[1:]), ""]
        if name == "push" and not all(word.fixed for word in plain.words):
            return f"publishes commits that are known only at run time; {NOT_UNDONE}"
        effect = _GIT_EFFECTS.get(name)
        with suppress(OSError, ValueError):
            found = effect and effect(GitRunner(Path(place), self.env, seconds=GIT_S), words[:-1])
            is_kept = is_within(place, self.folders.project) and "ignored" not in (found or "")
            way = RESTORED.format("them") if name != "push" and is_kept else NOT_UNDONE
            return f"{found}; {way}" if found else ""
        return ""

    def _paths(self, word: Word) -> list[str] | None:
        """Return the absolute paths that a word means now, None if that is not known."""
        text = word.text if word.fixed else self._expanded(word.text)
        if text is None:
            return None
        found = expand_glob(text, self.base) if word.glob else [text]
        return None if found is None else [path_forms(each, self.base)[0] for each in found]

    def _expanded(self, source: str) -> str | None:
        """Return a word with the values of its variables, None if it has other expansions or if the
        command sets one of them.
        """
        text = source[1:-1] if source[:1] == source[-1:] == '"' else source
        names = {first or second for first, second in _VARIABLE.findall(text)}
        if "$" in _VARIABLE.sub("", text) or not _EXPANDED.fullmatch(text):
            return None
        set_here = any(re.search(rf"(?<![${{\w]){name}\b", self.script.text) for name in names)
        if set_here or not all(self.env.get(name) for name in names):
            return None
        return _VARIABLE.sub(lambda found: self.env[found[1] or found[2]], text)

    def _deletes(self, paths: Sequence[str], *, at_most: bool = False) -> str:
        """Return the effect of deleting these paths with everything in them."""
        paths = sorted(set(paths))
        files, is_complete = count_files(paths)
        if not files:
            return ""
        inside = all(is_within(_place(path), self.folders.real) for path in paths)
        size = count_of(len(files), "file")
        size = f"at most {size}" if at_most else size if is_complete else f"more than {size}"
        listed = len(paths) <= MAX_LISTED_PATHS
        where = ", ".join(map(self._shown, paths)) if listed else f"{len(paths):,} places"
        outside = "" if inside else ", outside the project"
        what = f"deletes {size} in {where}"
        if listed and set(files) == set(paths):
            what = f"deletes {where}"
        return f"{what}{outside}; {self._way_back(paths, files, is_complete)}"

    def _shown(self, path: str) -> str:
        """Return a path relative to the project or to the home folder."""
        home = os.path.expanduser("~")  # noqa: PTH111
        for folder, name in ((self.folders.cwd, ""), (home, "~/")):
            if path.startswith(f"{folder}/"):
                return f"{name}{path[len(folder) + 1 :]}"
        return "the whole project" if path == self.folders.cwd else path

    def _way_back(self, paths: Sequence[str], files: Sequence[str], is_complete: bool) -> str:
        """Return whether /rewind restores files: those that are saved by name, and those in the
        snapshot.
        """
        from ..worktree.saved_files import MAX_SAVED_BYTES
        from ..worktree.snapshots import MAX_NAMED_FILES

        named = touched_paths(self.script, self.folders.cwd)
        if len(files) < MAX_NAMED_FILES and {*map(_place, paths)} <= {*named}:
            kept = [file for file in files if _size(file) <= MAX_SAVED_BYTES]
        else:
            kept = self._in_snapshot(paths, files)
        if is_complete and len(kept) == len(files):
            return RESTORED.format("it" if len(files) == 1 else "them")
        return RESTORED.format(f"{len(kept):,} of them") if kept else NOT_UNDONE

    def _in_snapshot(self, paths: Sequence[str], files: Sequence[str]) -> list[str]:
        """Return the files of the project that its snapshot has, as git lists them."""
        from ..worktree.diff import MAX_CONTENT_BYTES
        from ..worktree.git import GitRunner

        with suppress(OSError):
            git = GitRunner(Path(self.folders.project[1]), self.env, seconds=GIT_S)
            listed = git.run("ls-files", "-zco", "--exclude-standard", "--", *paths)
            names = {os.path.join(self.folders.project[1], os.fsdecode(each))  # noqa: PTH118
                     for each in listed.split(b"\0")}  # fmt: skip
            return [
                each for each in files if _place(each) in names and _size(each) <= MAX_CONTENT_BYTES
            ]
        return []


def with_effects(reason: str, effects: Mapping[str, str], source: str = "") -> str:
    """Return the reason for a question with the effect of the part that it is about. With `source`,
    that is the part with this source, whatever the reason.
    """
    for each, effect in effects.items():
        shown = quoted_command(each)
        if reason.startswith(f"{shown}{MAY_CHANGE}"):
            return reason.replace(MAY_CHANGE, f" {effect}", 1)
        if each == source:
            return f"{shown} {effect}; {reason}"
    return reason


def count_files(paths: Sequence[str]) -> tuple[list[str], bool]:
    """Return the files at and below these paths, and whether these are all. Links are files."""
    found = [path for path in paths if _is_file(path)]
    waiting, until = [path for path in paths if not _is_file(path)], time.monotonic() + COUNTING_S
    while waiting:
        if len(found) >= MAX_COUNTED_FILES or time.monotonic() > until:
            return found, False
        try:
            with os.scandir(waiting.pop()) as entries:
                for each in entries:
                    is_folder = each.is_dir(follow_symlinks=False)
                    (waiting if is_folder else found).append(each.path)
        except OSError:
            return found, False
    return found, True


def _is_file(path: str) -> bool:
    return os.path.islink(path) or not os.path.isdir(path)  # noqa: PTH112, PTH114


def _place(path: str) -> str:
    """Return an absolute path with links resolved, except in its last component."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _push(git: "GitRunner", words: Sequence[str]) -> str:
    """Return what `git push` with these words publishes, removes and deletes."""
    options = {word.partition("=")[0] for word in words if word.startswith("-")}
    remote, *refs = [word for word in words if not word.startswith("-")] or [_push_remote(git)]
    is_forced = bool(options & {"-f", "--force", "--force-with-lease", "--mirror"})
    prefix = ":" if options & {"-d", "--delete"} else "+" if is_forced else ""
    everything = next((words for option, words in _ALL_REFS.items() if option in options), "")
    found = [f"publishes {everything} to {remote}"] if everything else []
    if refs or not everything:
        refs = refs or [git.find("symbolic-ref", "--short", "-q", "HEAD") or "HEAD"]
        found += [text for ref in refs for text in _pushed(git, remote, f"{prefix}{ref}")]
    return conceal(", ".join(found))


def _push_remote(git: "GitRunner") -> str:
    branch = git.find("symbolic-ref", "--short", "-q", "HEAD")
    keys = (f"branch.{branch}.pushRemote", "remote.pushDefault", f"branch.{branch}.remote")
    return next(filter(None, (git.find("config", "--get", key) for key in keys)), "origin")


def _pushed(git: "GitRunner", remote: str, ref: str) -> Iterator[str]:
    """Yield what the push of one ref does to the remote repository, as far as it is known here."""
    source, separator, target = ref.removeprefix("+").partition(":")
    name = (target or source).removeprefix("refs/heads/")
    if separator and not source:
        yield f"deletes the branch {name} on {remote}"
        return
    if name == "HEAD":
        name = git.find("symbolic-ref", "--short", "-q", "HEAD") or name
    there = f"refs/remotes/{remote}/{name}"
    if git.find("rev-parse", "--verify", "-q", there) is None:
        count = _commits(git, source, "--not", f"--remotes={remote}")
        yield f"publishes the new branch {name} with {count} to {remote}"
        return
    yield f"publishes {_commits(git, f'{there}..{source}')} to {remote}/{name}"
    lost = _commits(git, f"{source}..{there}")
    if ref.startswith("+") and lost != NONE:
        yield f"removes {lost} from it"


def _commits(git: "GitRunner", *range: str) -> str:
    return count_of(int(git.run("rev-list", "--count", *range)), "commit")


def _reset(git: "GitRunner", words: Sequence[str]) -> str:
    """Return what `git reset --hard` discards: changes of tracked files, and commits."""
    if "--hard" not in words:
        return ""
    target = next((word for word in words if not word.startswith("-")), "HEAD")
    commits = _commits(git, f"{target}..HEAD")
    removed = f"removes {commits} from the branch" if commits != NONE else ""
    return " and ".join(filter(None, (_discarded(git, ()), removed)))


def _checkout(git: "GitRunner", words: Sequence[str]) -> str:
    """Return what `git checkout` or `git restore` discards in the files that it names."""
    if {"--staged", "-S"} & set(words) or git.find("rev-parse", "HEAD") is None:
        return ""
    names = [word for word in words if not word.startswith("-")]
    files = [name for name in names if git.find("ls-files", "--error-unmatch", "--", name)]
    return _discarded(git, files) if files or {"-f", "--force"} & set(words) else ""


def _discarded(git: "GitRunner", paths: Sequence[str]) -> str:
    changed = git.run("diff", "--name-only", "-z", "HEAD", "--", *paths).count(b"\0")
    return f"discards the changes in {count_of(changed, 'file')}" if changed else ""


def _clean(git: "GitRunner", words: Sequence[str]) -> str:
    """Return what `git clean` deletes, by its own dry run."""
    letters = [re.sub("[fin]", "", word) if _LETTERS.fullmatch(word) else word for word in words]
    kept = [word for word in letters if word not in ("-", "--force", "--interactive")]
    top = os.fsdecode(git.run("rev-parse", "--show-toplevel")).strip()
    prefix = os.fsdecode(git.run("rev-parse", "--show-prefix")).strip()
    listed = git.run("-c", "core.quotePath=false", "clean", "-n", *kept).decode("utf-8", "replace")
    names = [line.removeprefix("Would remove ") for line in listed.splitlines()]
    files, is_complete = count_files([f"{top}/{prefix}{name}" for name in names])
    if not files:
        return ""
    more = "" if is_complete else "more than "
    ignored = any(_LETTERS.fullmatch(word) and {*"xX"} & {*word} for word in words)
    kind = "untracked and ignored file" if ignored else "untracked file"
    return f"deletes {more}{count_of(len(files), kind)}"


_GIT_EFFECTS: "dict[str, Callable[[GitRunner, Sequence[str]], str]]" = {
    "push": _push,
    "reset": _reset,
    "checkout": _checkout,
    "restore": _checkout,
    "clean": _clean,
}
_EFFECTS: dict[str, Callable[[CommandEffects, SimpleCommand], str]] = {
    "rm": CommandEffects._removal,
    "unlink": CommandEffects._removal,
    "shred": CommandEffects._removal,
    "find": CommandEffects._find,
    "git": CommandEffects._git,
}
