"""Add a plugin, from a folder or from a git repository, and remove one.

What is added comes into a folder next to its place first, and takes its name as a whole: a process
that is killed leaves what was there, or nothing. A repository is only fetched, never checked out:
its files are read from git's store, so no hook, filter or submodule of it can do anything. The
protocols are those of GIT_ALLOW_PROTOCOL in git(1).
"""

import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ...tools.system import leash
from ...tools.system.environment import child_environment
from ...tools.system.files import make_private_folder
from ...tools.system.programs import own_environment, program
from ...tools.system.shorten import one_line
from ..config.trust import read_untrusted
from ..errors import CtxagentError, UsageError, conceal
from ..lazy import dataclass, regex
from .plugins import (
    PLUGINS_FOLDER,
    Plugin,
    check_bounds,
    check_name,
    content_digest,
    read_plugins,
    write_plugins,
)

MANIFEST = ".claude-plugin/plugin.json"
PARTS = ("commands", "skills", "agents", "hooks/hooks.json", ".mcp.json")
PROTOCOLS = ("file", "https", "ssh", "git")
FETCH_TIMEOUT_S = 300
MAX_PACK_BYTES = 100_000_000  # of a repository as it is sent, one commit of it

_STAGE = ".adding-"  # begins the names of folders that are not whole yet
_HELPER = regex(r"[\w.+-]+::", re.ASCII)
_URL = regex(r"([A-Za-z][A-Za-z0-9+.-]*)://([!-~]+)")
_SSH_PLACE = regex(r"(?:[\w.-]+@)?[A-Za-z0-9][\w.-]*:(?!//)[!-~]+", re.ASCII)  # host:path
_REF = regex(r"[A-Za-z0-9_][\w./+@-]{0,200}", re.ASCII)
# What leads git to another repository than the one that it is told of.
_OF_ANOTHER = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_TEMPLATE_DIR",
)  # fmt: skip
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.bigFileThreshold=1m",  # larger ones are not held in memory
    "fetch.recurseSubmodules=false",
    "fetch.unpackLimit=1",  # all in one file, which has a bound
    "gc.auto=0",
    "maintenance.auto=false",
    "transfer.fsckObjects=true",
)


class _File(NamedTuple):
    """A file of a plugin as its source has it."""

    path: str  # below the plugin's folder
    kind: int  # stat.S_IFREG or stat.S_IFLNK
    is_executable: bool
    data: bytes  # where a link leads


@dataclass(frozen=True, slots=True)
class Staged:
    """A plugin that is ready to be put in its place."""

    plugin: Plugin  # as it will be; its folder is where it lies now
    target: Path
    manifest: Mapping[str, Any]
    replaced: Plugin | None  # the one of its name that is there


@contextmanager
def staged(
    source: str, ref: str, config_home: Path, environ: Mapping[str, str]
) -> Iterator[Staged]:
    """Yield the plugin of a source, which is not added yet; `put_in_place` adds it before the block
    ends. Raises UsageError for what cannot be a plugin, CtxagentError where it cannot be fetched or
    kept, ConfigError for a broken record."""
    is_url = _is_url(source, ref)
    with _changing(config_home) as (folder, plugins):
        if not is_url and folder.resolve().is_relative_to(Path(source).resolve()):
            raise UsageError(
                f"{source} holds the folder of the plugins themselves",
                hint="Give a folder with nothing but the plugin.",
            )
        stage = folder / f"{_STAGE}{os.urandom(8).hex()}"
        try:
            make_private_folder(stage)
            if is_url:
                with _fetched(source, ref, stage, environ) as (commit, files):
                    _write(files, stage / "content")
                kept = _without_credentials(source)
            else:
                commit, kept = "", str(Path(source).resolve())
                _write(_files_in(Path(source)), stage / "content")
            yield _described(kept, ref, commit, stage, plugins)
        except ValueError as error:
            raise UsageError(f"{conceal(source)}: {error}") from None
        except OSError as error:
            why = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
            raise CtxagentError(f"{conceal(source)} was not added: {why}") from None
        finally:
            _remove(stage)


def put_in_place(staged: Staged, config_home: Path) -> Plugin:
    """Add the plugin, in the place of one with its name and source. Raises OSError."""
    target, stage = staged.target, staged.plugin.folder.parent
    if os.path.lexists(target):
        target.rename(stage / "before")
    staged.plugin.folder.rename(target)
    added = replace(
        staged.plugin, folder=target, added=datetime.now(UTC).isoformat(timespec="seconds")
    )
    others = [each for each in read_plugins(config_home) if each.name != added.name]
    write_plugins(config_home, [*others, added])
    return added


def remove_plugin(name: str, config_home: Path) -> None:
    """Remove a plugin. Raises UsageError where there is none of this name, CtxagentError where that
    fails, ConfigError for a broken record."""
    with _changing(config_home) as (folder, plugins):
        if name not in {each.name for each in plugins}:
            names = ", ".join(each.name for each in plugins) or "none"
            raise UsageError(f"there is no plugin {name}", hint=f"There are: {names}")
        try:
            write_plugins(config_home, [each for each in plugins if each.name != name])
            if (folder / name).is_symlink():
                (folder / name).unlink()
            else:
                _remove(folder / name)
        except OSError as error:
            raise CtxagentError(f"{name} was not removed: {error.strerror}") from None


@contextmanager
def _changing(config_home: Path) -> Iterator[tuple[Path, list[Plugin]]]:
    """Yield the folder of plugins and those that are recorded; one process at a time is let in, and
    what a killed one has left goes. Raises CtxagentError and ConfigError."""
    folder = config_home / PLUGINS_FOLDER
    with ExitStack() as stack:
        try:
            make_private_folder(folder)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in folder.glob(f"{_STAGE}*"):
                _remove(each)
        except BlockingIOError:
            hint = "Wait until it is done."
            raise CtxagentError("plugins are being changed by another process", hint=hint) from None
        except OSError as error:
            hint = "Set XDG_CONFIG_HOME to a folder that can be written."
            raise CtxagentError(f"{folder} cannot be used: {error.strerror}", hint=hint) from None
        yield folder, read_plugins(config_home)


def _is_url(source: str, ref: str) -> bool:
    """Return True if a source is the URL of a repository, or a folder. Raises UsageError for what
    is neither."""
    hint = f"Give the path of a folder, or a URL: {', '.join(f'{p}://' for p in PROTOCOLS)}."
    shown = conceal(source)
    if ref and not _REF.fullmatch(ref):
        raise UsageError(f"--ref {ref}: that is no branch, tag or commit")
    if source.startswith("-"):
        raise UsageError(f"{shown} is an option, not a plugin", hint=hint)
    if _HELPER.match(source):
        raise UsageError(f"{shown}: no helper program of git is started", hint=hint)
    if url := _URL.fullmatch(source):
        if url[1].lower() not in PROTOCOLS:
            raise UsageError(f"{shown}: {url[1]}:// is not used", hint=hint)
        if url[2].rpartition("@")[2].startswith("-") or url[2].startswith("-"):
            raise UsageError(f"{shown}: the name of its host begins with a dash", hint=hint)
        return True
    if Path(source).is_dir():
        if ref:
            hint = "A repository on this machine has one as file:///its/path."
            raise UsageError("--ref is for a URL of git", hint=hint)
        return False
    if _SSH_PLACE.fullmatch(source):
        return True
    raise UsageError(f"{shown} is neither a folder nor a URL of git", hint=hint)


def _without_credentials(url: str) -> str:
    """Return a URL as it is recorded: of who asks only the name that ssh needs stays."""
    scheme, sign, rest = url.partition("://")
    if not sign:
        return url
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    name = f"{user.partition(':')[0]}{at}" if scheme.lower() == "ssh" else ""
    return f"{scheme}://{name}{host}{slash}{path}"


def _described(
    source: str, ref: str, commit: str, stage: Path, plugins: Sequence[Plugin]
) -> Staged:
    """Return the plugin that lies in a stage. Raises ValueError and OSError."""
    content = stage / "content"
    manifest = _manifest(content)
    name = manifest.get("name")
    if name is None:
        last = re.split(r"[/:]", source.rstrip("/"))[-1].removesuffix(".git")
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", last)
    name = check_name(str(name))
    if not any((content / part).exists() for part in PARTS):
        more = ""
        if (content / ".claude-plugin" / "marketplace.json").is_file():
            more = "; it lists plugins: clone it, and add a folder of it"
        raise ValueError(f"it is no plugin: it has none of {', '.join(PARTS)}{more}")
    before = next((each for each in plugins if each.name == name), None)
    if before and before.source != source:
        raise ValueError(
            f"there is a plugin {name} already, from {before.source}; `ctxagent plugin remove "
            f"{name}` makes room"
        )
    plugin = Plugin(name, content, source, content_digest(content), ref, commit)
    return Staged(plugin, stage.parent / name, manifest, before)


def _manifest(folder: Path) -> Mapping[str, Any]:
    """Return what `plugin.json` says, {} where there is none. Raises ValueError and OSError."""
    try:
        given = json.loads(read_untrusted(folder / MANIFEST).decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"{MANIFEST} is not an object")
    return given


def _write(files: Iterator[_File], target: Path) -> None:
    """Write the files of a plugin to a new folder, for its owner alone. Raises ValueError for a
    path or a link that leads out of it, and beyond the bounds; and OSError."""
    make_private_folder(target)
    size, links = 0, dict[Path, str]()
    for count, file in enumerate(files, 1):
        size += len(file.data)
        check_bounds(count, size)
        path = target / file.path
        make_private_folder(path.parent)
        if file.kind == stat.S_IFLNK:
            links[path] = os.fsdecode(file.data)
            continue
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(file.data)
            if file.is_executable:
                os.fchmod(descriptor, 0o700)
    root = os.path.realpath(target)
    for path, leads_to in links.items():  # when no file can be written through one any more
        path.symlink_to(leads_to)
    for path, leads_to in links.items():
        if leads_to.startswith("/") or not Path(os.path.realpath(path)).is_relative_to(root):
            raise ValueError(f"{path.relative_to(target)} is a link that leads out of it")


def _files_in(folder: Path) -> Iterator[_File]:
    """Yield the files of a folder without git's own. Raises ValueError for what is neither file nor
    link, and OSError."""
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
                    yield _File(path, stat.S_IFLNK, False, os.fsencode(os.readlink(entry.path)))  # noqa: PTH115
                elif stat.S_ISREG(found.st_mode):
                    check_bounds(0, found.st_size)
                    data = read_untrusted(Path(entry.path), found.st_size)
                    yield _File(path, stat.S_IFREG, bool(found.st_mode & stat.S_IXUSR), data)
                else:
                    raise ValueError(f"{path} is neither a file nor a folder nor a link")


@contextmanager
def _fetched(
    url: str, ref: str, stage: Path, environ: Mapping[str, str]
) -> Iterator[tuple[str, Iterator[_File]]]:
    """Yield the commit that a repository has at `ref`, and its files. Raises ValueError,
    CtxagentError, and UsageError without git."""
    git = program("git", environ.get("PATH"))
    if not git:
        raise UsageError("git is not installed", hint="Clone it elsewhere, and add the folder.")
    store = stage / "repository"
    env = own_environment(child_environment(environ)) | {
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
        "LC_ALL": "C",
    }
    env = {name: value for name, value in env.items() if name not in _OF_ANOTHER}
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    command = [git, *settings, f"--git-dir={store}"]
    _run([*command, "init", "--quiet", "--bare", "--template="], env)
    fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]
    _run([*command, *fetch, "--", url, ref or "HEAD"], env)
    commit = _run([*command, "rev-parse", "--verify", "FETCH_HEAD^{commit}"], env).decode().strip()
    rows = _run([*command, "ls-tree", "-r", "-l", "-z", "--full-tree", commit], env)
    with subprocess.Popen(
        [*command, "cat-file", "--batch"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as reader:
        yield commit, _files_of(rows, reader)


def _files_of(rows: bytes, reader: "subprocess.Popen[bytes]") -> Iterator[_File]:
    """Yield the files that `git ls-tree` lists, submodules left out. Raises ValueError."""
    listed, total = list[tuple[str, int, bytes]](), 0
    for row in filter(None, rows.split(b"\0")):
        about, _, name = row.partition(b"\t")
        octal, kind, id, size = about.split()
        if kind == b"blob":
            listed.append((os.fsdecode(name), int(octal, 8), id))
            total += int(size)
            check_bounds(len(listed), total)
    for path, mode, id in listed:
        if any(part.lower() in ("", ".", "..", ".git") for part in path.split("/")):
            raise ValueError(f"{path!r} leads out of it")
        is_executable = bool(mode & stat.S_IXUSR)
        data = _blob(reader, id)
        yield _File(path, stat.S_IFMT(mode), is_executable, data)


def _blob(reader: "subprocess.Popen[bytes]", id: bytes) -> bytes:
    stdin, stdout = reader.stdin, reader.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(id + b"\n")
    stdin.flush()
    _, kind, size = stdout.readline().split()
    data = stdout.read(int(size) + 1)[:-1]
    if kind != b"blob" or len(data) != int(size):
        raise ValueError("git did not give all of its files")
    return data


def _run(command: Sequence[str], env: Mapping[str, str]) -> bytes:
    """Run git, which ends with this process, and return what it says. Raises CtxagentError."""
    held, end = os.pipe()
    leashed = [sys.executable, "-I", "-S", leash.__file__, f"{held},{MAX_PACK_BYTES}", *command]
    try:
        child = subprocess.Popen(
            leashed,
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
        raise CtxagentError(f"git took longer than {FETCH_TIMEOUT_S} s") from None
    finally:
        os.close(end)  # whatever still runs ends
        child.wait()
    if child.returncode:
        raise CtxagentError(f"git could not fetch it: {_reason(err)}")
    return out


def _reason(said: bytes) -> str:
    """Return the line of git's errors that says why."""
    lines = conceal(said.decode("utf-8", "replace")).splitlines()
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return one_line(next(iter(named or lines), "it gave no reason"), 300)


def _remove(folder: Path) -> None:
    """Remove a folder as far as it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
