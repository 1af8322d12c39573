"""Find and restore what a repository has lost since a record was taken. Git compares the two: it
reads the record as a separate repository, whatever the format of refs and objects.

Only deleted things are restored, and nothing existing is overwritten. A ref that has moved stays.
If no other ref contains its old commit, that commit gets a branch `rewind/NAME`.
"""

import errno
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path

from ...tools.system.files import (
    edit_file,
    make_private_folder,
    open_kept,
    replacing,
    write_private,
)
from ...tools.system.git_links import read_text, settings_in
from ..errors import RecordError
from ..lazy import dataclass
from .git import GitRunner
from .repository_record import RepositoryRecord, RepositoryRecorder

MAX_NAMED = 20  # named items of one kind
# Git itself deletes these refs.
_SPECIAL_REFS = ("refs/stash", "refs/bisect/", "refs/rewritten/", "refs/worktree/")
_REFS = ("HEAD", "packed-refs", "refs/", "reftable/", "logs/refs/stash", "shallow")
_SKELETON = (
    "HEAD",
    "config",
    "description",
    "hooks/",
    "index",
    "info/exclude",
)  # git never removes these
_RAW = ("utf-8", "surrogateescape")
_FORMATS = ("objectformat", "refstorage")  # settings without which git cannot read a repository


@dataclass(frozen=True, slots=True)
class LostItems:
    """The losses of one repository: the main one or a submodule's."""

    common: str  # its folder
    gone: bool = False  # the folder is not a valid repository
    objects: bool = False  # some objects are missing
    files: tuple[str, ...] = ()
    refs: Mapping[str, str] = field(default_factory=dict)  # object, or target of a symbolic ref
    commits: Mapping[str, str] = field(default_factory=dict)  # by their new ref
    stashes: tuple[tuple[str, str], ...] = ()  # object and message, oldest first
    logs: Mapping[str, bytes] = field(default_factory=dict)  # reflogs with their lost lines
    settings: Mapping[str, str] = field(default_factory=dict)  # sections of the configuration

    def describe(self) -> list[str]:
        """Return a line for each kind of loss."""
        kinds = {
            "a repository that is gone or damaged": [self.common] if self.gone else [],
            "files of git": [] if self.gone else self.files,
            "objects": [self.common] if self.objects and not self.gone else [],
            "refs": self.refs,
            "commits without a ref, under new names": self.commits,
            "stashes": [message for _, message in self.stashes],
            "lines of": self.logs,
            "settings": self.settings,
        }
        return [f"{what}: {_listed([*names])}" for what, names in kinds.items() if names]


@dataclass(frozen=True, slots=True)
class RepositoryRestorer:
    """Compares repositories with their records and restores losses. All methods block. All except
    `root` raise RecordError.
    """

    keeper: RepositoryRecorder

    def root(self, name: str) -> str:
        """Return the top folder of the work tree in a record, or "" if the record cannot be
        read.
        """
        with suppress(OSError, ValueError):
            return self.keeper.load(name)[0].root
        return ""

    def lost(self, name: str) -> list[LostItems]:
        """Return the losses since a record was taken."""
        with _as_record_errors():
            found = [part.lost() for part in self._parts(name)]
            return [each for each in found if each != LostItems(each.common)]

    def restore(self, name: str) -> list[LostItems]:
        """Restore the losses since a record was taken, and return what was restored."""
        with _as_record_errors():
            done = [part.restore() for part in self._parts(name)]
            return [each for each in done if each != LostItems(each.common)]

    def _parts(self, name: str) -> "Iterator[_Part]":
        record, pool = self.keeper.load(name)
        at = [store.removesuffix("objects") for store in record.stores]
        inner = [each for each in at if f"{each}HEAD" in record.files]
        return (_Part(record, pool, self.keeper.env, each, inner) for each in inner)


class _Part:
    """One repository in a record: the main one, or a submodule's at `modules/NAME/`."""

    def __init__(
        self,
        record: RepositoryRecord,
        pool: Path,
        env: Mapping[str, str],
        at: str,
        parts: Sequence[str],
    ) -> None:
        self._record, self._pool, self._env, self._at = record, pool, env, at
        self._common, self._objects = Path(record.common, at), pool / at / "objects"
        others = tuple(part for part in parts if part.startswith(at) and part != at)
        self._files, self._stores = (
            [n.removeprefix(at) for n in all if n.startswith(at) and not n.startswith(others)]
            for all in (record.files, record.stores)
        )

    def lost(self) -> LostItems:
        """Return the losses of the repository, compared with the record."""
        found = LostItems(str(self._common), files=tuple(self._missing_files()))
        if not all((self._common / name).exists() for name in ("HEAD", "objects", "refs")):
            return replace(found, gone=True)
        now = self._git({"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self._objects)})
        with self._recorded() as then:
            was, refs, stashes, here = _refs(then), _refs(now), _stashes(then), _stashes(now)
        moved = {name: of for name, of in was.items() if refs.get(name, of) != of}
        for name in self._files:
            is_head = name == "HEAD" or (name.startswith("worktrees/") and name.endswith("/HEAD"))
            if is_head and name not in found.files:
                moved[name] = self._read(name).decode("latin-1").strip()
        logs = self._lost_lines()
        held = [line.split(b" ")[1].decode() for log in logs.values() for line in log.splitlines()]
        asked = ("rev-list", "--ignore-missing", "--stdin", "--not", "--all", "--reflog")
        free = set(now.run(*asked, given=_lines(moved.values())).decode().split())
        return replace(
            found,
            refs={
                n: of for n, of in was.items() if n not in refs and refs.get(_moved_ref(n)) != of
            },
            commits={
                _moved_ref(name): of
                for name, of in moved.items()
                if of in free or (name.startswith("refs/tags/") and _moved_ref(name) not in refs)
            },
            stashes=tuple(row for row in reversed(stashes) if row[0] not in dict(here)),
            logs=logs,
            settings={} if "config" in found.files else self._lost_settings(),
            objects=self._lacks_objects([*was.values(), *moved.values(), *dict(stashes), *held]),
        )

    def restore(self) -> LostItems:
        """Restore the losses and return what was restored."""
        before = self.lost()
        for name in before.files:
            _write_new(self._place(name), self._read(name), self._mode(name))
        for name in ("objects", "refs"):
            _make_folder(self._common / name)
        if before.gone or before.objects:
            self._link_objects()
        found = self.lost() if before.gone else before
        if found.objects:
            self._link_objects()
        git, refs, commits, failed = self._git(), dict[str, str](), dict[str, str](), list[str]()
        for name, of in [*found.refs.items(), *found.commits.items()]:
            other = _moved_ref(name) if name in found.refs else f"{name}-{of[:7]}"
            for ref in (name, other, f"refs/rewind/{of}"):
                if _create(git, ref, of):
                    (refs if ref in found.refs else commits)[ref] = of
                    break
            else:
                failed.append(name)
        if found.stashes and not _stashes(git):  # `stash store` skips the object that the ref has
            git.find("update-ref", "-d", "refs/stash")
        for of, message in found.stashes:
            git.run("stash", "store", "--quiet", "-m", message, of)
        for name, data in found.logs.items():
            if name.removeprefix("logs/") in refs or (self._common / name).is_file():
                with replacing(self._common / name, keep_mode=True) as file:
                    file.write(data)
        if found.settings:
            config = self._common / "config"
            added = "\n".join(["", *found.settings.values()]).encode(*_RAW)
            edit_file(config, config.read_bytes() + added)
        if failed:
            raise OSError(errno.ENOENT, f"the objects of {_listed(failed)} are missing")
        return replace(found, gone=before.gone, files=before.files, refs=refs, commits=commits)

    def _missing_files(self) -> list[str]:
        """Return the missing files to write. If refs exist, only files that git itself never
        removes are included.
        """
        left = any((self._common / name).exists() for name in ("refs", "packed-refs", "reftable"))
        own = os.path.relpath(self._record.folder, self._common)
        fixed = (*_SKELETON, f"{own}/") if own.startswith("worktrees/") else _SKELETON
        names = [name for name in self._files if not left or name.startswith(fixed)]
        if self._record.pointer and not self._at and Path(self._record.root).is_dir():
            names.append(".git")
        return [name for name in names if not os.path.lexists(self._place(name))]

    def _lost_lines(self) -> dict[str, bytes]:
        """Return each reflog that has lost lines, with its recorded lines and the new ones. The
        stash's reflog is not included.
        """
        found = {}
        for name in self._files:
            place = self._common / name
            if not name.startswith("logs/") or name == "logs/refs/stash" or place.is_dir():
                continue
            was, now = self._read(name).splitlines(keepends=True), list[bytes]()
            with suppress(OSError), open_kept(place) as file:
                now = file.read().splitlines(keepends=True)
            known = {_change(line) for line in was}
            if known - {_change(line) for line in now}:
                found[name] = b"".join([*was, *(x for x in now if _change(x) not in known)])
        return found

    def _lost_settings(self) -> dict[str, str]:
        """Return the missing sections about remotes, branches and submodules."""
        there = _sections(read_text(self._common / "config"))
        return {n: text for n, text in _sections(self._config()).items() if n not in there}

    def _lacks_objects(self, names: list[str]) -> bool:
        """Return True if objects that the repository or one of `names` needs are missing. Git
        checks all objects only if the pool has files that the repository lacks.
        """
        kept, there = (
            {name for *_, names in os.walk(folder) for name in names}
            for folder in (self._objects, self._common / "objects")
        )
        asked = ("--objects", "--quiet", "--exclude-promisor-objects", "--all", "--indexed-objects")
        return not kept <= there and (
            self._git().find("rev-list", *asked, "--stdin", given=_lines(names)) is None
        )

    def _link_objects(self) -> None:
        for store in self._stores:
            source = self._pool / self._at / store
            for folder, _, names in os.walk(source):
                target = self._common / store / Path(folder).relative_to(source)
                _make_folder(target)
                for name in sorted(names, key=lambda name: name.endswith(".idx")):
                    if not (target / name).exists():
                        _link(Path(folder, name), target / name)

    def _place(self, name: str) -> Path:
        return Path(self._record.root if name == ".git" else self._common, name)

    def _kept(self, name: str) -> tuple[int, str, str]:
        pointer = (0o644, self._record.pointer, "")
        return self._record.files[self._at + name] if name != ".git" else pointer

    def _read(self, name: str) -> bytes:
        _, text, blob = self._kept(name)
        whole = self._pool / "blobs" / blob
        return zlib.decompress(whole.read_bytes()) if blob else text.encode("latin-1")

    def _config(self) -> str:
        return self._read("config").decode(*_RAW) if "config" in self._files else ""

    def _mode(self, name: str) -> int:
        return self._kept(name)[0]

    def _git(self, variables: Mapping[str, str] | None = None) -> GitRunner:
        """Return git for the repository, with extra environment variables."""
        git = GitRunner(folder := self._common.parent, self._env)
        git.env |= {"GIT_DIR": str(self._common), "GIT_WORK_TREE": str(folder)}
        git.env |= {"GIT_NO_LAZY_FETCH": "1", **(variables or {})}
        return git

    @contextmanager
    def _recorded(self) -> Iterator[GitRunner]:
        """Yield git for the recorded state of the repository."""
        with tempfile.TemporaryDirectory(dir=self._pool) as folder:
            for name in self._files:
                if name.startswith(_REFS):
                    make_private_folder(Path(folder, name).parent)
                    write_private(Path(folder, name), self._read(name))
            make_private_folder(Path(folder, "refs"))
            given = dict(settings_in(self._config()))
            rows = [f"\t{key} = {given[key]}\n" for key in _FORMATS if key in given]
            own = f"[core]\n\trepositoryformatversion = {int(bool(rows))}\n[extensions]\n"
            write_private(Path(folder, "config"), "".join([own, *rows]).encode(*_RAW))
            lent = _quoted(self._common / "objects")
            yield self._git(
                {
                    "GIT_DIR": folder,
                    "GIT_OBJECT_DIRECTORY": str(self._objects),
                    "GIT_ALTERNATE_OBJECT_DIRECTORIES": lent if self._common.exists() else "",
                }
            )


@contextmanager
def _as_record_errors() -> Iterator[None]:
    """Convert exceptions to RecordError."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RecordError(f"the git repository cannot be restored: {why}") from error


def _moved_ref(name: str) -> str:
    """Return the ref for the old commit of a ref that has moved."""
    kind = "refs/tags/" if name.startswith("refs/tags/") else "refs/heads/"
    return f"{kind}rewind/{name.removeprefix(kind).removeprefix('refs/')}"


def _refs(git: GitRunner) -> dict[str, str]:
    """Return the object of each ref, or the target of a symbolic ref."""
    said = git.run("for-each-ref", "--format=%(refname) %(objectname) %(symref)")
    rows = [line.split(" ") for line in os.fsdecode(said).splitlines()]
    return {n: other or of for n, of, other in rows if not n.startswith(_SPECIAL_REFS)}


def _stashes(git: GitRunner) -> list[tuple[str, str]]:
    """Return (object, message) of each stash, newest first."""
    asked = ("log", "--walk-reflogs", "--no-show-signature", "--format=%H %gs", "refs/stash", "--")
    rows = [line.partition(" ") for line in (git.find(*asked) or "").splitlines()]
    return [(of, message) for of, _, message in rows]


def _create(git: GitRunner, name: str, of: str) -> bool:
    """Create a ref. Return False if the ref exists or its object is missing."""
    symbolic = of.startswith("refs/")
    words = ("symbolic-ref", name, of) if symbolic else ("update-ref", "-m", "rewind", name, of, "")
    return git.find(*words) is not None


def _change(line: bytes) -> bytes:
    """Return a reflog line without the previous object, which git may rewrite."""
    return line.partition(b" ")[2]


def _sections(config: str) -> dict[str, str]:
    """Return the text of the sections about remotes, branches and submodules, by header line."""
    parts = re.split(r"^(?=\[)", config, flags=re.MULTILINE)
    heads = ('[remote "', '[branch "', '[submodule "')
    return {part.partition("\n")[0]: part for part in parts if part.startswith(heads)}


def _lines(names: Iterable[str]) -> bytes:
    """Return git's input for the names that are object names."""
    return "".join(f"{name}\n" for name in names if name.isalnum()).encode()


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join([*names[:MAX_NAMED], *([f"… +{more:,}"] if more > 0 else [])])


def _quoted(folder: Path) -> str:
    """Return a folder quoted for an environment variable with a list of folders."""
    escaped = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _make_folder(folder: Path) -> None:
    """Create a folder of git. Raises ValueError if its path contains a link."""
    if os.path.realpath(folder) != str(folder):
        raise ValueError(f"{folder} leads elsewhere")
    folder.mkdir(parents=True, exist_ok=True)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    _make_folder(path.parent)
    with replacing(path, new_mode=mode, durable=False) as file:
        file.write(data)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        with source.open("rb") as old, replacing(target, new_mode=0o444, durable=False) as new:
            shutil.copyfileobj(old, new, 1 << 20)
