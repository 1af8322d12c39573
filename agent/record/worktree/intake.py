"""Taking the files of a work tree into the index of a store, and out of it.

Git says what is not as the index has it; what is taken in is decided here: files that are not
ignored, and those that the project's repository has although they are. Not taken, but watched by
their signatures: large files, those that cannot be read, and those whose names git refuses. Other
repositories inside are left alone.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from .signatures import LARGEST, Signature, signature
from .store import PATIENCE, GitFailed, Repository, Store
from .sweep import PUBLISHED, remember

MOST_FILES = 50_000  # files that are kept, of a repository
MOST_BYTES = 1 << 30  # bytes of them that one look hashes
FEW_FILES = 5_000  # the same where there is no repository
FEW_BYTES = 200 << 20
WATCHED = 20_000  # files that are watched by their signatures alone

_GLANCE = 5  # seconds for listing a folder that may be anything


@dataclass(slots=True)
class Intake:
    """`tree` is the newest one, "" before the first. `limits` says what is not kept, and `whole`
    turns false for good where that is everything. `taken` counts bytes, since it was last set."""

    store: Store
    repository: Repository | None
    tree: str = ""
    limits: str = ""
    whole: bool = True
    taken: int = 0
    _listed: tuple[int, int] | None = None  # when the project's own list of files was read

    def update(self) -> dict[str, Signature]:
        """Bring `tree` up to date with the files; the signatures of those that are only watched.
        Raises GitFailed."""
        first = not self.tree
        asked = ("ls-files", "-tzomd", "--exclude-standard", *self._excludes())
        rows = self.store.names(*asked, seconds=PATIENCE if self.repository else _GLANCE)
        kept = {row[2:] for row in rows if row[:1] != "?"}
        fresh = {row[2:] for row in rows if row[:1] == "?" and not row.endswith("/")}
        fresh |= self._unlisted()
        found = _sort(self.store.root, kept, fresh)
        self.limits = self._too_much(found)
        if self.limits and first:
            self.whole = False
            return {}
        if self.limits:
            found.leave_out(self.store.root, fresh)
        self.limits = "; ".join(filter(None, (self.limits, found.complaint())))
        self._take(found)
        if first or found.gone or found.taken:
            self.tree = self.store.run("write-tree").decode().strip()
        if first:
            self.store.publish()
            remember(self.store, PUBLISHED, [self.tree])
        self.taken += found.size
        return found.stats

    def forget(self) -> None:
        """Start anew: what the index names may be gone."""
        self.tree, self._listed = "", None
        self.store.forget()

    def listed(self) -> set[str]:
        """The files in the index of the project's repository."""
        if self.repository is None or _stamp(self.repository.index) is None:
            return set()
        try:
            rows = self.store.names("ls-files", "-sz", index=self.repository.index)
        except GitFailed:  # an index of a kind that needs the settings of its repository
            return set()
        return {row.partition("\t")[2] for row in rows if not row.startswith("160000")}

    def ignored(self) -> set[str]:
        """The files in the tree that an ignore file names, and that are nobody's but ours."""
        more = self._excludes()
        rows = self.store.names("ls-files", "-zci", "--exclude-standard", *more)
        return set(rows) - self.listed()

    def _excludes(self) -> list[str]:
        path = self.repository.excludes if self.repository else ""
        return [f"--exclude-from={path}"] if path and os.access(path, os.R_OK) else []

    def _unlisted(self) -> set[str]:
        """Files that the project's repository has, although they are ignored, and ours has not."""
        stamp = _stamp(self.repository.index) if self.repository else None
        if stamp == self._listed:
            return set()
        self._listed = stamp
        return self.listed() - set(self.store.names("ls-files", "-z"))

    def _too_much(self, found: "_Sorted") -> str:
        """That there are more files, or bytes, to take in than is sensible; "" when not."""
        known = self.repository is not None
        files, size = (MOST_FILES, MOST_BYTES) if known else (FEW_FILES, FEW_BYTES)
        if len(found.taken) <= files and found.size <= size:
            return ""
        what = f"{len(found.taken):,} files with {found.size >> 20:,} MB are new"
        most = f"at most {files:,} with {size >> 20:,} MB are kept"
        return f"there is too much below {self.store.root}: {what}, {most}"

    def _take(self, found: "_Sorted") -> None:
        if found.gone:
            given = _nul(found.gone)
            self.store.run("update-index", "-z", "--force-remove", "--stdin", given=given)
        if found.taken:
            put(self.store, sorted(found.taken))


def put(store: Store, names: Iterable[str]) -> None:
    """Take files into the index as they are. Raises GitFailed, and then none was taken."""
    given = _nul(names)
    store.run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=given)


@dataclass(slots=True)
class _Sorted:
    """Files by what is to be done: `taken` into the tree, `size` bytes in all, or `gone` from it;
    `stats` are those that are only watched, `refused` those whose names git does not take."""

    taken: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    stats: dict[str, Signature] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    size: int = 0

    def complaint(self) -> str:
        """That files are not kept for their names; "" when there are none."""
        if not self.refused:
            return ""
        more = f" and {len(self.refused) - 1:,} more" if len(self.refused) > 1 else ""
        return f"git refuses the name of {min(self.refused)}{more}"

    def watch(self, root: str, name: str) -> None:
        path = f"{root}/{name}"
        if len(self.stats) < WATCHED and (found := signature(path)):
            self.stats[path] = found

    def leave_out(self, root: str, names: Iterable[str]) -> None:
        """Only watch these."""
        for name in sorted(self.taken & set(names)):
            self.taken.discard(name)
            self.watch(root, name)


def _sort(root: str, kept: set[str], fresh: set[str]) -> _Sorted:
    """What to do with the files that are not as the index has them (`kept`) or not in it."""
    out, real = _Sorted(), {"": True}
    for name in kept | fresh:
        path = f"{root}/{name}"
        mode, size = 0, 0
        with suppress(OSError, ValueError):
            found = os.lstat(path)
            mode, size = found.st_mode, found.st_size
        regular = stat.S_ISREG(mode)
        there = regular or stat.S_ISLNK(mode)
        too_much = regular and (size > LARGEST or not os.access(path, os.R_OK))
        refused = there and _is_refused(name, link=not regular)
        if there and not (too_much or refused) and is_real(root, name.rpartition("/")[0], real):
            out.taken.add(name)
            out.size += size
            continue
        if name in kept:
            out.gone.add(name)
        if refused:
            out.refused.append(name)
        if there and (too_much or refused):
            out.watch(root, name)
    return out


def _is_refused(name: str, *, link: bool) -> bool:
    """Whether git takes no file of this name: some systems would take it for one of git's own."""
    pieces = name.lower().split("/")
    return ".git" in pieces or (link and ".gitmodules" in pieces)


def is_real(root: str, folder: str, known: dict[str, bool]) -> bool:
    """Whether a folder below the root is reached without a link; `known` remembers."""
    if folder not in known:
        above = is_real(root, folder.rpartition("/")[0], known)
        known[folder] = above and not os.path.islink(f"{root}/{folder}")  # noqa: PTH114
    return known[folder]


def _stamp(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_mtime_ns, found.st_size
    return None


def _nul(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
