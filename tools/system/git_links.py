"""Find links and pointers of a git repository that lead outside it. Git follows them, also in a
folder from somebody else, and shows lines of the target files.

The file layout follows gitrepository-layout(5) and gitworktree(1). Only pointers, the configuration
and file names in git's own folders are read.

The checked-out branch is read without git, too.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...agent.lazy import dataclass, regex
from .files import open_kept
from .programs import within
from .safe_open import current_path

MAX_HEAD_BYTES = 8_192


def current_branch(cwd: Path) -> str:
    """Return the branch checked out at `cwd`, or its commit; "" outside a repository."""
    for folder in (cwd, *cwd.parents):
        git = folder / ".git"
        try:
            if git.is_file():  # a worktree: the file contains the path of the git folder
                named = read_start(git).partition("gitdir:")[2]
                git = folder / named.strip()
            head = read_start(git / "HEAD").strip()
        except (OSError, ValueError):  # the named file may be anything
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


def read_start(path: Path, most: int = MAX_HEAD_BYTES) -> str:
    """Read the start of a regular file. Raises OSError, also for a link: it may lead anywhere."""
    with open_kept(path) as file:
        return file.read(most).decode("utf-8", "replace")


MAX_ENTRIES = 50_000  # limit of scanned entries in git's own folders
_MAX_TEXT_BYTES = 1 << 20  # limit of a pointer or a configuration
MAX_STORES = 100  # limit of borrowed object stores
# Folders that read-only git commands do not read. Hooks are judged elsewhere.
_NOT_READ = frozenset(("hooks", "lfs", "annex"))
_BORROWED = "objects/info/alternates"  # the list of borrowed object stores
_FAN_OUT = regex(r"[0-9a-f]{2}")
_FILE_SETTING = regex(r"\w*file|skiplist|template")
_ODDLY_WRITTEN = regex(r'["\\#;]|[%:]\(')  # quotes, escapes, comments, git's own prefixes


@dataclass(frozen=True, slots=True)
class OutsideLink:
    """A link or setting in a repository that leads to a path outside git's own folders."""

    name: str  # a path below the repository's top, or a setting
    target: str  # absolute, links resolved


def first_outside_link(folder: str | Path) -> str:
    """Describe the first link or setting that leads out of a folder's repository; "" if there is
    none. The agent's own git does not read such a repository. Borrowed object stores do not count:
    git only looks up objects there, by their digests.
    """
    try:
        real = current_path(Path(folder))
        top = next((p for p in (real, *real.parents) if os.path.lexists(p / ".git")), None)
        for link in outside_links(str(top)) if top else ():
            if link.name != _BORROWED and not within(link.target, [str(top)]):
                return f"{link.name} leads to {link.target}"
    except OSError as error:  # a folder was replaced by a link during the scan
        return f"it changes while it is looked at ({error.strerror})"
    return ""


def outside_links(top: str) -> Iterator[OutsideLink]:
    """Yield the links and settings that lead out of git's own folders in the repository with the
    top folder `top`. An unknown target counts as "/".
    """
    entry, real = Path(top, ".git"), os.path.realpath(top)
    own = linked_folders(entry) if entry.is_file() else []
    if not own:
        named = _pointer(entry) if entry.is_file() else ""
        own = [os.path.realpath(entry.parent / named if named else entry)]
        if named or entry.is_symlink():
            yield OutsideLink(".git", own[0])
            if not within(own[0], [real]):
                return
    common = os.path.realpath(Path(own[0], read_text(Path(own[0], "commondir")).rstrip("\r\n")))
    if common not in own:
        yield OutsideLink(".git/commondir", common)
        if not within(common, [real]):
            return
        own.append(common)
    yield from _links(own, top)
    yield from _borrowed(f"{common}/objects", own)
    for config in (f"{common}/config", f"{own[0]}/config.worktree"):
        if _is_too_large(Path(config)):
            yield OutsideLink(f"{config}, too large to read,", "/")
        yield from _named_files(read_text(Path(config)), top)


def settings_in(config: str) -> Iterator[tuple[str, str]]:
    """Yield the key, in lower case and without its section, and the raw value of each setting in a
    git-config(1) text. A setting without a value gives "". The time is linear in the text length.
    """
    for line in config.removeprefix("\ufeff").split("\n"):
        before, _, value = line.partition("=")
        words = re.split(r"[\s\]]", before.rstrip())
        if words[-1] and not line.lstrip().startswith(("#", ";")):
            yield words[-1].lower(), value.strip(" \t\r")


def linked_folders(entry: Path) -> list[str]:
    """Return the git folders that the `.git` file `entry` names: those of a linked work tree and
    its repository, or that of a submodule. Return [] if they do not name `entry` in turn, since a
    project can ship any `.git` file.
    """
    named = _pointer(entry)
    if not named:
        return []
    own = Path(os.path.realpath(entry.parent / named))
    back = read_text(own / "gitdir").rstrip("\r\n")
    if back:
        if os.path.realpath(own / back) != os.path.realpath(entry):
            return []
        linked = own.parent.name == "worktrees"
        return [str(own), str(own.parent.parent)] if linked else [str(own)]
    worktree = os.path.realpath(own / _configured_worktree(own / "config"))
    return [str(own)] if worktree == os.path.realpath(entry.parent) else []


def _links(own: Sequence[str], top: str) -> Iterator[OutsideLink]:
    """Yield the links in git's own folders that lead out of them."""
    pending, count = list(own), 0
    while pending:
        folder = pending.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if count > MAX_ENTRIES:
                    yield OutsideLink(".git, too large to look through,", "/")
                    return
                if entry.name in _NOT_READ:
                    continue
                if entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if not within(target, own):
                        yield OutsideLink(os.path.relpath(entry.path, top), target)
                elif entry.is_dir() and not _FAN_OUT.fullmatch(entry.name):
                    pending.append(entry.path)


def _borrowed(objects: str, own: Sequence[str]) -> Iterator[OutsideLink]:
    """Yield the object stores that an object store borrows from, directly or indirectly."""
    pending, known = [objects], {objects}
    while pending:
        objects = pending.pop()
        alternates = Path(objects, "info", "alternates")
        place = os.path.realpath(alternates)
        if not within(place, [*own, objects]):
            yield OutsideLink(str(alternates), place)
            continue
        text = read_text(alternates)
        lines = [line for line in text.split("\n") if line and not line.startswith("#")]
        if _is_too_large(alternates) or len(known) + len(lines) > MAX_STORES:
            yield OutsideLink(_BORROWED, "/")
            return
        for line in lines:
            store = "/" if line.startswith('"') else os.path.realpath(Path(objects, line))
            if not within(store, own):
                yield OutsideLink(_BORROWED, store)
            pending += [store] if store not in known else []
            known.add(store)


def _named_files(config: str, top: str) -> Iterator[OutsideLink]:
    """Yield the files that a configuration names."""
    for key, plain in settings_in(config):
        if plain and _FILE_SETTING.fullmatch(key):
            if len(plain) > 1 and plain[0] == plain[-1] == '"':
                plain = plain[1:-1]
            path = Path(top, os.path.expanduser(plain))  # noqa: PTH111
            odd = _ODDLY_WRITTEN.search(plain)
            yield OutsideLink(f"the setting {key}", "/" if odd else os.path.realpath(path))


def _pointer(entry: Path) -> str:
    """Return the folder that a `.git` file names, with all its spaces, as git reads it."""
    return read_text(entry).removeprefix("gitdir:").removeprefix(" ").rstrip("\r\n")


def _configured_worktree(config: Path) -> str:
    """Return the work tree that a configuration names."""
    for line in read_text(config).splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip().lower() == "worktree":
            return value.strip().strip('"')
    return "."


def _is_too_large(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_size > _MAX_TEXT_BYTES
    return False


def read_text(path: str | Path) -> str:
    """Return the beginning of a regular file, "" for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(file).st_mode)
            data = os.read(file, _MAX_TEXT_BYTES) if regular else b""
            return data.decode("utf-8", "surrogateescape")
        finally:
            os.close(file)
    except (OSError, ValueError):
        return ""
