"""Read the files of plugins and marketplaces, from a folder or from a commit of a git repository.

A repository is fetched but never checked out. Its files are read from git's object store, so none
of its hooks, filters or submodules can run. Protocols are restricted with GIT_ALLOW_PROTOCOL of
git(1).
"""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...api.base import CtxagentError, UsageError, conceal, dataclass, regex
from ...api.guard import read_untrusted
from ...api.programs import child_environment, end_with_parent, own_environment, program
from ...api.session import check_bounds
from ...api.text import one_line

PROTOCOLS = ("file", "https", "ssh", "git")
FETCH_TIMEOUT_S = 300
MAX_PACK_BYTES = 100_000_000  # of one fetched commit

_HELPER = regex(r"[\w.+-]+::", re.ASCII)
_URL = regex(r"([A-Za-z][A-Za-z0-9+.-]*)://([!-~]+)")
_SSH_PLACE = regex(r"(?:[\w.-]+@)?[A-Za-z0-9][\w.-]*:(?!//)[!-~]+", re.ASCII)  # host:path
GITHUB_NAME = regex(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)  # OWNER/REPOSITORY
_REF = regex(r"[A-Za-z0-9_][\w./+@-]{0,200}", re.ASCII)
# Environment variables that point git to another repository.
_REPOSITORY_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_TEMPLATE_DIR",
)  # fmt: skip
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.bigFileThreshold=1m",  # stream larger files
    "fetch.recurseSubmodules=false",
    "fetch.unpackLimit=1",  # keep one pack file, whose size is limited
    "gc.auto=0",
    "maintenance.auto=false",
    "transfer.fsckObjects=true",
)


class SourceFile(NamedTuple):
    """A file of a plugin in its source."""

    path: str  # below the plugin's folder
    kind: int  # stat.S_IFREG or stat.S_IFLNK
    is_executable: bool
    data: bytes  # the target for a link


@dataclass(frozen=True, slots=True)
class FileSource:
    """A folder, or a folder in a commit of a git repository."""

    place: str  # a folder or a git URL
    ref: str = ""  # a branch, tag or commit; "" for HEAD
    commit: str = ""  # fetched instead of `ref` if set
    path: str = ""  # folder in the repository, "" for the root

    def __post_init__(self) -> None:
        """Validate the fields. Raises UsageError."""
        if self.ref and not _REF.fullmatch(self.ref):
            raise UsageError(
                f"--ref {self.ref} is not a branch, tag or commit",
                hint="Give the name of a branch, tag or commit.",
            )
        if not self.is_url and self.ref:
            hint = "For a repository on this machine, write file:///ITS/PATH."
            raise UsageError("--ref needs a git URL", hint=hint)

    @property
    def is_url(self) -> bool:
        """True for the URL of a repository, False for a folder. Raises UsageError for anything
        else.
        """
        place, shown = self.place, conceal(self.place)
        hint = f"Give the path of a folder, or a URL: {', '.join(f'{p}://' for p in PROTOCOLS)}."
        if place.startswith("-"):
            raise UsageError(f"{shown} is an option, not a source", hint=hint)
        if _HELPER.match(place):
            raise UsageError(f"{shown}: git helper programs are not supported", hint=hint)
        if url := _URL.fullmatch(place):
            if url[1].lower() not in PROTOCOLS:
                raise UsageError(f"{shown}: {url[1]}:// is not supported", hint=hint)
            if url[2].rpartition("@")[2].startswith("-") or url[2].startswith("-"):
                raise UsageError(f"{shown}: the name of its host begins with a dash", hint=hint)
            return True
        if Path(place).is_dir():
            return False
        if _SSH_PLACE.fullmatch(place):
            return True
        if GITHUB_NAME.fullmatch(place):
            hint += f" The URL on GitHub is {github_url(place)}."
        raise UsageError(f"{shown} is neither a folder nor a git URL", hint=hint)

    @property
    def recorded_place(self) -> str:
        """The place to record: a URL without credentials, or an absolute path."""
        if not self.is_url:
            return str(Path(self.place).resolve())
        scheme, sign, rest = self.place.partition("://")
        if not sign:
            return self.place
        host, slash, path = rest.partition("/")
        user, at, host = host.rpartition("@")
        name = f"{user.partition(':')[0]}{at}" if scheme.lower() == "ssh" else ""
        return f"{scheme}://{name}{host}{slash}{path}"


def github_url(name: str) -> str:
    """Return the URL of a GitHub repository."""
    return f"https://github.com/{name}"


@contextmanager
def source_files(
    source: FileSource, store: Path, environ: Mapping[str, str]
) -> Iterator[tuple[str, Iterator[SourceFile]]]:
    """Yield the commit ("" for a folder) and the files of a source. A repository is fetched into
    the folder `store`. Raises ValueError, OSError, CtxagentError, and UsageError if git is missing.
    """
    if source.is_url:
        with _fetched(source, store, environ) as found:
            yield found
    else:
        yield "", _files_in(Path(source.place) / source.path)


def _files_in(folder: Path) -> Iterator[SourceFile]:
    """Yield the files of a folder, without `.git`. Raises OSError, and ValueError for special
    files.
    """
    ways = [""]
    while ways:
        way = ways.pop()
        with os.scandir(folder / way) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                path, found = f"{way}{entry.name}", entry.stat(follow_symlinks=False)
                if entry.name == ".git":
                    continue
                if stat.S_ISDIR(found.st_mode):
                    ways.append(f"{path}/")
                elif stat.S_ISLNK(found.st_mode):
                    leads_to = os.fsencode(os.readlink(entry.path))  # noqa: PTH115
                    yield SourceFile(path, stat.S_IFLNK, False, leads_to)
                elif stat.S_ISREG(found.st_mode):
                    check_bounds(0, found.st_size)
                    data = read_untrusted(Path(entry.path), found.st_size)
                    yield SourceFile(path, stat.S_IFREG, bool(found.st_mode & stat.S_IXUSR), data)
                else:
                    raise ValueError(f"{path} is neither a file nor a folder nor a link")


@contextmanager
def _fetched(
    source: FileSource, store: Path, environ: Mapping[str, str]
) -> Iterator[tuple[str, Iterator[SourceFile]]]:
    """Yield the commit of a repository and its files. Raises ValueError, CtxagentError, and
    UsageError if git is missing.
    """
    git = program("git", environ.get("PATH"))
    if not git:
        raise UsageError(
            "git is not installed",
            hint="Install git, or clone the repository elsewhere and add the folder.",
        )
    env = own_environment(child_environment(environ)) | {
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
        "LC_ALL": "C",
    }
    env = {name: value for name, value in env.items() if name not in _REPOSITORY_VARIABLES}
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    command = [git, *settings, f"--git-dir={store}"]
    _run([*command, "init", "--quiet", "--bare", "--template="], env)
    fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]
    _run([*command, *fetch, "--", source.place, source.commit or source.ref or "HEAD"], env)
    commit = _run([*command, "rev-parse", "--verify", "FETCH_HEAD^{commit}"], env).decode().strip()
    prefix = f"{source.path}/" if source.path else ""
    listing = ["--literal-pathspecs", "ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--"]
    rows = _run([*command, *listing, *filter(None, [prefix])], env)
    if prefix and not rows:
        raise ValueError(f"the repository has no folder {source.path}")
    with subprocess.Popen(
        [*command, "cat-file", "--batch"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as reader:
        yield commit, _files_of(rows, prefix, reader)


def _files_of(rows: bytes, prefix: str, reader: "subprocess.Popen[bytes]") -> Iterator[SourceFile]:
    """Yield the files in the output of `git ls-tree`, without submodules and with the prefix
    removed from their paths. Raises ValueError.
    """
    listed, total = list[tuple[str, int, bytes]](), 0
    for row in filter(None, rows.split(b"\0")):
        about, _, name = row.partition(b"\t")
        octal, kind, id, size = about.split()
        if kind == b"blob":
            listed.append((os.fsdecode(name).removeprefix(prefix), int(octal, 8), id))
            total += int(size)
            check_bounds(len(listed), total)
    for path, mode, id in listed:
        if any(part.lower() in ("", ".", "..", ".git") for part in path.split("/")):
            raise ValueError(f"{path!r} leads out of the plugin")
        is_executable = bool(mode & stat.S_IXUSR)
        data = _blob(reader, id)
        yield SourceFile(path, stat.S_IFMT(mode), is_executable, data)


def _blob(reader: "subprocess.Popen[bytes]", id: bytes) -> bytes:
    stdin, stdout = reader.stdin, reader.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(id + b"\n")
    stdin.flush()
    _, kind, size = stdout.readline().split()
    data = stdout.read(int(size) + 1)[:-1]
    if kind != b"blob" or len(data) != int(size):
        raise ValueError("git did not return all files of the commit")
    return data


def _run(command: Sequence[str], env: Mapping[str, str]) -> bytes:
    """Run git and return its output. Git is killed if this process ends. Raises CtxagentError."""
    held, end = os.pipe()
    script = [sys.executable, "-I", "-S", end_with_parent.__file__]
    bound_command = [*script, f"{held},{MAX_PACK_BYTES}", *command]
    try:
        child = subprocess.Popen(
            bound_command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(held,),
            start_new_session=True,
        )
    finally:
        os.close(held)
    try:
        out, err = child.communicate(timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise CtxagentError(
            f"git took longer than {FETCH_TIMEOUT_S} s",
            hint="Try again, or clone it and give the folder.",
        ) from None
    finally:
        os.close(end)  # this kills a process that still runs
        child.wait()
    if child.returncode:
        raise CtxagentError(
            f"git could not fetch it: {_reason(err)}", hint="Check the address and the network."
        )
    return out


def _reason(said: bytes) -> str:
    """Return the line of git's stderr that names the error."""
    lines = conceal(said.decode("utf-8", "replace")).splitlines()
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return one_line(next(iter(named or lines), "it gave no reason"), 300)
