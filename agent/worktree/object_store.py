"""A private git store for file content, which also borrows objects from the project's repository.

Git runs here only with its own settings. It reads no configuration of the project or the user, so
it starts no filter, monitor or hook, and `.gitattributes` do not change any bytes. Every failure
raises `GitFailed`.

A running git answers many questions from stdin, one per line, with only one start. It repeats a
line that is not a question and then flushes its output. An unguessable line after each question
therefore marks the end of the answer. The process ends when its stdin is closed, and so at the
latest with our own process.

Objects reachable from the repository's HEAD may stay borrowed. Others (staged, stashed, or of a
deleted commit) may disappear at the repository's next garbage collection. Snapshots need them, so
they are copied into the store.
"""

import hashlib
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...tools.system.files import (
    copy_private,
    make_private_folder,
    replace_file,
    replacing,
    write_private,
)
from ...tools.system.git_links import first_outside_link, read_start, read_text
from ...tools.system.programs import own_environment
from ..lazy import dataclass
from .git import git_program

_READ_BYTES = 65_536


class RunningGit:
    """A running git process that answers questions. Raises OSError if it cannot be started."""

    def __init__(self, command: Sequence[str], folder: str, env: Mapping[str, str]) -> None:
        self.asked = 0  # number of questions
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._end = f"end {secrets.token_hex(8)}\n".encode()
        weakref.finalize(self, _end, self._process, os.getpid())

    def ask(self, line: str, seconds: float) -> bytes:
        """Return the answer to a question. Raises OSError if there is none within `seconds`; do not
        use the process after that.
        """
        asked, said = self._process.stdin, self._process.stdout
        assert asked is not None
        assert said is not None
        self.asked += 1
        asked.write(f"{line}\n".encode() + self._end)
        ready, until, answer = select.poll(), time.monotonic() + seconds, bytearray()
        ready.register(said, select.POLLIN)
        while not answer.endswith(self._end):
            if not ready.poll(max(0, until - time.monotonic()) * 1e3):
                raise TimeoutError
            data = os.read(said.fileno(), _READ_BYTES)
            if not data:
                raise BrokenPipeError
            answer += data
        return bytes(answer[: -len(self._end)])


def _end(process: "subprocess.Popen[bytes]", owner: int) -> None:
    """Kill git without waiting: this runs in any thread during garbage collection.

    `subprocess` reaps the process when it starts another. A forked child leaves its parent's git
    alone.
    """
    if os.getpid() != owner:
        return
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


STORE_FOLDER = "worktree.git"  # in the project's folder
# The pool of objects for records of the project's repository, see `repository_record`.
REPOSITORY_FOLDER, GENERATIONS = "repository", ("new", "old")
MAX_PACKED_REFS_BYTES = 64 << 20
GIT_TIMEOUT_S = 120  # for one command
MAX_ASKED = 500  # questions per process, because git caches every tree in memory
PRIVATE_UMASK = 0o077  # umask of git: a file becomes readable for others only when it is complete

# Unset attributes that change bytes on checkout or hide a text from a diff.
_ATTRIBUTES = "* -text !eol -crlf -ident -filter !working-tree-encoding !diff\n"
_CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = false
	filemode = true
	protectntfs = false
	autocrlf = false
	safecrlf = false
	quotepath = false
	fsmonitor = false
	untrackedcache = false
	logallrefupdates = false
	compression = 1
	attributesfile = /dev/null
	excludesfile = {excludes}
[gc]
	auto = 0
"""


class GitFailed(Exception):
    """A git command failed; the message is git's own."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that contains a folder."""

    root: str
    folder: str
    common: str  # folder shared by all its work trees
    borrowable: bool  # its objects have the store's hash format

    @property
    def index(self) -> str:
        return f"{self.folder}/index"

    @property
    def excludes(self) -> str:
        return f"{self.common}/info/exclude"

    def head(self) -> str:
        """Return `branch commit`, `branch` before the first commit, or `HEAD commit` when detached.
        Return "" if HEAD cannot be read.
        """
        try:
            said = read_start(Path(self.folder, "HEAD")).strip()
        except (OSError, ValueError):
            return ""
        if not said.startswith("ref: refs/"):
            return f"HEAD {_object_name(said)}".strip()
        ref = said.removeprefix("ref: ")
        return f"{ref.removeprefix('refs/heads/')} {self._commit(ref)}".strip()

    def commit(self) -> str:
        """Return the commit of HEAD, or "" if it is missing or unreadable."""
        return _object_name(self.head().rpartition(" ")[2])

    def _commit(self, ref: str) -> str:
        with suppress(OSError, ValueError):
            return _object_name(read_start(Path(self.common, ref)).strip())
        with suppress(OSError, ValueError):
            packed = read_start(Path(self.common, "packed-refs"), MAX_PACKED_REFS_BYTES)
            for line in packed.splitlines():
                commit, _, name = line.partition(" ")
                if name == ref:
                    return _object_name(commit)
        return ""


def _object_name(text: str) -> str:
    """Return `text` if it is an object name, else "". The text may come from an unexpected file."""
    return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else ""


class ObjectStore:
    """The store at `folder`. Its work tree is the files below `root`, and `index` is this session's
    index. Raises GitFailed if git is missing.
    """

    def __init__(self, folder: Path, index: Path, root: str, env: Mapping[str, str]) -> None:
        self.folder, self.index, self.root = folder, index, root
        self._program = _program(env)
        self._env = _store_environment(env, folder, index, root)
        self._running: dict[tuple[str, ...], RunningGit] = {}  # by arguments
        self._lock = threading.Lock()  # one question at a time

    def make(self, repository: Repository | None, excludes: str, hidden: Iterable[str]) -> None:
        """Create or update the store. `excludes` is the user's global ignore file. `hidden` are
        folders below the root that do not belong to the project.
        """
        try:
            make_private_folder(self.folder)
            for name in ("objects/info", "objects/pack", "refs/heads", "info"):
                make_private_folder(self.folder / name)
            quoted = excludes.replace("\\", "\\\\").replace('"', '\\"')
            self._write("config", _CONFIG.format(excludes=f'"{quoted}"'))
            self._write("info/attributes", _ATTRIBUTES)
            self._write("info/exclude", "".join(_ignore_line(path) for path in hidden))
            borrow = repository is not None and repository.borrowable
            sources = [f"{repository.common}/objects"] if repository and borrow else []
            if repository is None:  # it may have been deleted; the pool still has its objects
                before = read_text(self.folder / "objects/info/alternates").splitlines()
                sources = [line for line in before if Path(line).is_dir()]
            for pool in (self.folder / REPOSITORY_FOLDER / name for name in GENERATIONS):
                make_private_folder(pool / "objects")
                if sources and f"{pool}/objects" not in sources:
                    sources.append(f"{pool}/objects")
            lines = "".join(f"{source}\n" for source in sources if "\n" not in source)
            self._write("objects/info/alternates", lines)
            self._write("HEAD", "ref: refs/heads/none\n")
            make_private_folder(self.index.parent)
            for left in ("lock", "restore.lock"):  # left by a killed process
                Path(f"{self.index}.{left}").unlink(missing_ok=True)
            newest = self.folder / "index"
            if not self.index.exists() and newest.exists():
                copy_private(newest, self.index)
        except OSError as error:
            raise GitFailed(f"{error.filename}: {error.strerror}") from error

    @property
    def session(self) -> str:
        """The name of this session."""
        return self.index.parent.name

    def publish(self) -> None:
        """Let later sessions start from this session's index."""
        with suppress(OSError):
            newest, part_name = self.folder / "index", f"index.{self.session}"
            with (
                self.index.open("rb") as own,
                replacing(newest, part_name=part_name, durable=False) as file,
            ):
                shutil.copyfileobj(own, file)

    def forget(self) -> None:
        """Start from an empty index, because its objects may be missing."""
        with suppress(OSError):
            for path in (self.index, self.folder / "index", Path(f"{self.index}.lock")):
                path.unlink(missing_ok=True)

    def refresh(self) -> None:
        """Update the index for files that were touched but not changed."""
        with suppress(GitFailed):  # git also fails if files have changed, which is fine
            self.run("update-index", "-q", "--refresh")

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        index: str = "",
        seconds: float | None = GIT_TIMEOUT_S,
        literal: bool = True,
    ) -> bytes:
        """Run a git command and return its output.

        `given` is its input, and `index` replaces the session's index. After `seconds` it is
        killed; None means no limit. `literal` disables wildcards in paths; some commands fail with
        it.
        """
        env = {**self._env, "GIT_INDEX_FILE": index} if index else self._env
        env = env if literal else {**env, "GIT_LITERAL_PATHSPECS": "0"}
        try:
            return _run(self.root, [self._program, *arguments], env, given, seconds)[0]
        except GitFailed:
            self._delete_unfinished()
            raise

    def run_with_warnings(self, *arguments: str) -> tuple[bytes, bytes]:
        """Run a read-only git command and return its output and its warnings."""
        return _run(self.root, [self._program, *arguments], self._env)

    def start(self, *arguments: str, max_bytes: int) -> bytes:
        """Return the first `max_bytes` bytes of a command's output. A command with a longer output
        is killed.
        """
        with _started(self.root, [self._program, *arguments], self._env) as process:
            assert process.stdout is not None
            said = process.stdout.read(max_bytes)
            if len(said) == max_bytes:
                process.kill()
            _, complaint = process.communicate()
        if process.returncode and len(said) < max_bytes:
            raise GitFailed(complaint.decode("utf-8", "replace").strip()[:300])
        return said

    def ask(self, *arguments: str, line: str) -> bytes:
        """Send a line to a git command that reads questions from stdin, and return its answer. The
        process keeps running for the next questions.
        """
        with self._lock:
            running = self._running.pop(arguments, None)
            try:
                if running is None or running.asked >= MAX_ASKED:
                    running = RunningGit([self._program, *arguments], self.root, self._env)
                said = running.ask(line, GIT_TIMEOUT_S)
            except OSError as error:
                raise GitFailed(f"git {arguments[0]} did not answer") from error
            self._running[arguments] = running
            return said

    def read_objects(self, names: Iterable[str]) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield (name, kind, content) of each of these objects that exists."""
        given = os.fsencode("".join(f"{name}\n" for name in names))
        said = self.run("cat-file", "--batch", given=given)
        at = 0
        while at < len(said):
            end = said.index(b"\n", at)
            head, at = said[at:end], end + 1
            if not head.endswith(b" missing"):
                name, kind, size = head.split()
                yield name.decode(), kind, said[at : at + int(size)]
                at += int(size) + 1

    def write_object(self, kind: bytes, data: bytes) -> str:
        """Store a loose object in git's format and return its name."""
        name = object_name(kind, data)
        place = self.place(name)
        try:
            with suppress(FileNotFoundError):
                os.utime(place)  # mark it as used, so that it is not deleted
                return name
            place.parent.mkdir(mode=0o700, exist_ok=True)
            whole = b"%b %d\0%b" % (kind, len(data), data)
            replace_file(place, zlib.compress(whole, 1), durable=False)
        except OSError as error:
            raise GitFailed(f"{place}: {error.strerror}") from error
        return name

    def place(self, name: str) -> Path:
        """Return the path of a loose object in the store."""
        return self.folder / "objects" / name[:2] / name[2:]

    def names(self, *arguments: str, index: str = "", seconds: float = GIT_TIMEOUT_S) -> list[str]:
        """Return the NUL-separated paths or other words that a command prints."""
        said = self.run(*arguments, index=index, seconds=seconds)
        return [os.fsdecode(name) for name in said.split(b"\0") if name]

    def _delete_unfinished(self) -> None:
        """Delete git's incomplete objects: on a full disk they would take space that the log
        needs.
        """
        for path in (self.folder / "objects").glob("[0-9a-f][0-9a-f]/tmp_obj_*"):
            with suppress(OSError):
                path.unlink()

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        data = os.fsencode(text)
        with suppress(OSError):
            if path.read_bytes() == data:
                return
        write_private(path, data)


def object_name(kind: bytes, data: bytes) -> str:
    """Return git's name for an object."""
    return hashlib.sha1(b"%b %d\0" % (kind, len(data)) + data, usedforsecurity=False).hexdigest()


def find_repository(cwd: str, env: Mapping[str, str]) -> Repository | None:
    """Return the repository of the nearest `.git` above `cwd`, or None. A repository that points to
    files elsewhere or out of itself is ignored. Raises GitFailed if git is missing.
    """
    root = next((p for p in (Path(cwd), *Path(cwd).parents) if os.path.lexists(p / ".git")), None)
    if root is None or first_outside_link(root):
        return None
    program = _program(env)
    wanted = {**_base_environment(env), "GIT_DIR": str(root / ".git"), "GIT_WORK_TREE": str(root)}
    asked = ("--absolute-git-dir", "--git-common-dir", "--show-object-format")
    try:
        said, _ = _run(str(root), [program, "rev-parse", *asked], wanted)
    except GitFailed:
        return None
    lines = os.fsdecode(said).split("\n")
    if len(lines) < 3:
        return None
    common = os.path.realpath(root / lines[1])
    return Repository(str(root), lines[0], common, lines[2] == "sha1")


def personal_excludes(env: Mapping[str, str]) -> str:
    """Return the path of the user's global ignore file, which need not exist."""
    wanted = {**_base_environment(env), "GIT_CONFIG_NOSYSTEM": "1"}
    asked = [_program(env), "config", "--global", "--type=path", "--get", "core.excludesFile"]
    with suppress(GitFailed):
        return os.fsdecode(_run("/", asked, wanted)[0]).strip("\n")
    home = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", "/"), ".config")  # noqa: PTH118
    return os.path.join(home, "git", "ignore")  # noqa: PTH118


def _program(env: Mapping[str, str]) -> str:
    """Return the path of the git program. Raises GitFailed if git is missing."""
    program = git_program(env)
    if not program:
        raise GitFailed("git is not installed")
    return program


def _run(
    folder: str,
    command: list[str],
    env: Mapping[str, str],
    given: bytes = b"",
    seconds: float | None = GIT_TIMEOUT_S,
) -> tuple[bytes, bytes]:
    """Run git and return its output and its warnings. Raises GitFailed."""
    with _started(folder, command, env) as process:
        try:
            said, complaints = process.communicate(given, seconds)
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git did not end within {seconds:g} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that git started
    if process.returncode:
        text = " ".join(complaints.decode("utf-8", "replace").split())[:300]
        raise GitFailed(text or f"git ended with {process.returncode}")
    return said, complaints


def _started(folder: str, command: list[str], env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start git. Raises GitFailed."""
    try:
        return subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, umask=PRIVATE_UMASK,
            start_new_session=True,  # Ctrl-C must not reach git
        )  # fmt: skip
    except OSError as error:
        raise GitFailed(f"{error.filename}: {error.strerror}") from error


def _base_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for git."""
    return {**own_environment(env), "LC_ALL": "C"}


def _store_environment(
    env: Mapping[str, str], folder: Path, index: Path, root: str
) -> dict[str, str]:
    return {
        **_base_environment(env),
        "GIT_DIR": str(folder),
        "GIT_COMMON_DIR": str(folder),
        "GIT_OBJECT_DIRECTORY": str(folder / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
        "GIT_WORK_TREE": root,
        "GIT_INDEX_FILE": str(index),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "0",
        "GIT_CONFIG_PARAMETERS": "",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }


def _ignore_line(path: str) -> str:
    """Return the ignore-file line for one folder, given relative to the root."""
    escaped = "".join(f"\\{c}" if c in "\\*?[]!# " else c for c in path)
    return f"/{escaped}/\n" if "\n" not in path else ""


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the empty tree, built into git
MAX_BATCH_BYTES = 32 << 20  # of objects in memory


def copy_borrowed_objects(store: ObjectStore, tree: str, commit: str) -> None:
    """Copy the existing objects of `tree` that are not in the tree of `commit` ("" for no commit).
    Raises GitFailed.
    """
    try:
        names = _missing_from(store, tree, commit or EMPTY_TREE)
    except GitFailed:  # an unreadable commit may lack any object, so copy all
        names = _missing_from(store, tree, EMPTY_TREE)
    _copy(store, sorted(name for name in names if not store.place(name).exists()))


def _missing_from(store: ObjectStore, tree: str, base: str) -> set[str]:
    """Return the objects of a tree, including the tree itself, that differ from those at the same
    paths in `base`.
    """
    words = store.names("diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", base, tree)
    rows = (word.split()[3] for word in words[::2])
    return {tree, *(name for name in rows if name.strip("0"))}


def _copy(store: ObjectStore, names: Iterable[str]) -> None:
    for some in _portions(store, list(names)):
        for _, kind, data in store.read_objects(some):
            store.write_object(kind, data)


def _portions(store: ObjectStore, names: list[str]) -> Iterator[list[str]]:
    """Yield the names of existing objects in lists of at most MAX_BATCH_BYTES, or a single larger
    object.
    """
    some: list[str] = []
    total = 0
    said = store.run("cat-file", "--batch-check", given=_lines(names)) if names else b""
    for line in said.decode().splitlines():
        name, _, *size = line.split()
        if not size:
            continue
        if some and total + int(size[0]) > MAX_BATCH_BYTES:
            yield some
            some, total = [], 0
        some.append(name)
        total += int(size[0])
    if some:
        yield some


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
