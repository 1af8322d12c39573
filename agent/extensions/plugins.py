"""Plugins: folders that bring commands, skills, subagents, hooks and MCP servers along.

The layout is that of https://code.claude.com/docs/en/plugins-reference (`plugin_layout.py`), so
that plugins for other agents work here. A plugin is a copy in `plugins/NAME` of the user's
configuration. `plugins.json` next to that folder records where each came from, and the digest of
the content that the user has accepted: a plugin whose content is another one is left out.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from ...tools.system.files import make_private_folder, replace_file
from ..config.trust import read_untrusted
from ..errors import ConfigError, CtxagentError
from ..lazy import dataclass, regex
from .hook_files import PublishedHook, read_hooks
from .plugin_layout import places_of

PLUGINS_FOLDER = "plugins"  # in the folder of the person's settings
RECORD_FILE = "plugins.json"  # beside it
STAMPS_FILE = "plugin_stamps.json"  # in the state folder
ROOT_VARIABLE = "CLAUDE_PLUGIN_ROOT"
MAX_FILES = 5_000  # of a plugin
MAX_BYTES = 50_000_000  # of all its files
MAX_RECORD_BYTES = 1_000_000
SETTLE_S = 2.0  # a file that changed less than this ago may change again unseen by its times

MAX_NAME_CHARS = 80

_NAME = regex(r"[A-Za-z0-9][\w.-]{0,79}", re.ASCII)
_RECORDED = ("ref", "commit", "added", "path", "market", "offer")  # "" where there is none
_STAGE = ".adding-"  # begins the names of folders that are not whole yet


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as it was added."""

    name: str
    folder: Path
    source: str  # an absolute path, or a URL of git without credentials
    digest: str  # SHA-256 of its content, as `content_digest` gives it
    ref: str = ""  # the branch, tag or commit that was asked for
    commit: str = ""  # "" for a copy of a folder
    added: str = ""  # ISO 8601
    path: str = ""  # its folder in the repository
    market: str = ""  # the marketplace that it is from
    offer: str = ""  # its name there

    @property
    def pinned_to(self) -> str:
        """What its content is held to, in a few words."""
        return f"commit {self.commit[:12]}" if self.commit else f"digest {self.digest[:12]}"

    @property
    def origin(self) -> str:
        """Where it is from, for people."""
        return f"{self.source}{'#' if self.path else ''}{self.path}"

    @property
    def offered_as(self) -> str:
        """How it is added from its marketplace, "" if it is from none."""
        return f"{self.offer}@{self.market}" if self.market else ""

    @property
    def add_command(self) -> str:
        """The command that adds it again."""
        if self.market:
            return f"ctxagent plugin add {self.offered_as}"
        ref = f" --ref {shlex.quote(self.ref)}" if self.ref else ""
        return f"ctxagent plugin add {shlex.quote(self.source)}{ref}"

    def record(self) -> dict[str, str]:
        """Return what is recorded of it, next to its name."""
        return {name: getattr(self, name) for name in ("source", "digest", *_RECORDED)}

    @property
    def environ(self) -> dict[str, str]:
        """What programs of the plugin find in their environment. Python writes no bytecode next to
        its files: that would change the content."""
        return {ROOT_VARIABLE: str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}


class InstalledPlugins:
    """The plugins of a run. They are looked at once, when they are first asked for."""

    def __init__(self, config_home: Path, state: Path) -> None:
        self._config_home, self._state = config_home, state

    @cached_property
    def _checked(self) -> tuple[list[Plugin], list[str]]:
        warnings = list[str]()
        try:
            found = check_plugins(self._config_home, self._state)
        except ConfigError as error:
            return [], [f"no plugin is used: {error.message}. {error.hint}"]
        for plugin, why in found:
            if why:
                warnings.append(
                    f"the plugin {plugin.name} {why}, so nothing of it is used. Look at "
                    f"{plugin.folder}; `{plugin.add_command}` puts it back."
                )
        return [plugin for plugin, why in found if not why], warnings

    @cached_property
    def _hooks(self) -> tuple[list[PublishedHook], list[str]]:
        hooks, warnings = list[PublishedHook](), list[str]()
        for plugin in self.plugins:
            found, problems = hooks_of(plugin)
            hooks += found
            warnings += [f"the plugin {plugin.name}: {problem}" for problem in problems]
        return hooks, warnings

    @property
    def plugins(self) -> list[Plugin]:
        """Those whose content is what the user accepted, by name."""
        return self._checked[0]

    @property
    def hooks(self) -> list[PublishedHook]:
        return self._hooks[0]

    @property
    def hook_warnings(self) -> list[str]:
        """Which hooks are left out, and why."""
        return self._hooks[1]

    @property
    def warnings(self) -> list[str]:
        """What is left out, and why."""
        return [*self._checked[1], *self.hook_warnings]


@contextmanager
def plugins_lock(config_home: Path) -> Iterator[Path]:
    """Keep other processes from changing plugins and marketplaces, and yield a private folder for
    what is not whole yet, which is removed afterwards as all that killed processes have left.
    Raises CtxagentError."""
    folder = config_home / PLUGINS_FOLDER
    with ExitStack() as stack:
        try:
            make_private_folder(folder)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in folder.glob(f"{_STAGE}*"):
                shutil.rmtree(each)
            stage = folder / f"{_STAGE}{os.urandom(8).hex()}"
            make_private_folder(stage)
        except BlockingIOError:
            hint = "Wait until it is done."
            raise CtxagentError("plugins are being changed by another process", hint=hint) from None
        except OSError as error:
            hint = "Set XDG_CONFIG_HOME to a folder that can be written."
            raise CtxagentError(f"{folder} cannot be used: {error.strerror}", hint=hint) from None
        stack.callback(shutil.rmtree, stage, ignore_errors=True)
        yield stage


def check_name(name: str) -> str:
    """Return the name of a plugin. Raises ValueError for what cannot be one."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"its name is {name[:100]!r}, not up to 80 letters, digits, - _ and ., a letter or "
            "digit first"
        )
    return name


def read_plugins(config_home: Path) -> list[Plugin]:
    """Return the plugins that are recorded, by name. Raises ConfigError for a broken record."""
    path = config_home / RECORD_FILE
    try:
        kept = json.loads(read_untrusted(path, MAX_RECORD_BYTES))
        return [
            Plugin(
                name=check_name(name),
                folder=config_home / PLUGINS_FOLDER / name,
                **{key: str(values[key]) for key in ("source", "digest")},
                **{key: str(values.get(key, "")) for key in _RECORDED},
            )
            for name, values in sorted(kept["plugins"].items())
        ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no record of plugins"
        hint = "Repair it, or remove it and add the plugins again."
        raise ConfigError(f"cannot be read: {why}", where=str(path), hint=hint) from None


def write_plugins(config_home: Path, plugins: Sequence[Plugin]) -> None:
    """Record these plugins, in the place of those that were. Raises OSError."""
    rows = {each.name: each.record() for each in sorted(plugins, key=lambda plugin: plugin.name)}
    make_private_folder(config_home)
    data = json.dumps({"plugins": rows}, indent=1, ensure_ascii=False) + "\n"
    replace_file(config_home / RECORD_FILE, data.encode())


def check_plugins(config_home: Path, state: Path) -> list[tuple[Plugin, str]]:
    """Return the recorded plugins, each with what is wrong with its content, "" for nothing.

    Contents are read once. After that a stamp tells that nothing has changed: names, modes, sizes,
    inodes and times of all files. A file gets a new time of its last change (ctime) whatever is
    written to it, and no program can set that; one that changed a moment ago, when its time may not
    tell two writes apart, is read again. Raises ConfigError for a broken record.
    """
    plugins = read_plugins(config_home)
    if not plugins:
        return []
    known = _read_stamps(state / STAMPS_FILE)
    stamps, checked = dict[str, str](), list[tuple[Plugin, str]]()
    for plugin in plugins:
        why, stamp = _check(plugin, known.get(str(plugin.folder), ""))
        checked.append((plugin, why))
        if stamp:
            stamps[str(plugin.folder)] = stamp
    if stamps != known:
        with suppress(OSError):  # then they are read again
            make_private_folder(state)
            data = json.dumps(stamps, indent=1).encode()
            replace_file(state / STAMPS_FILE, data, durable=False)
    return checked


def is_intact(plugin: Plugin) -> bool:
    """Return True if the content is what was accepted; blocking."""
    return not _check(plugin, "")[0]


def content_digest(folder: Path) -> str:
    """Return the SHA-256 of names, kinds and contents of all files in a folder, in hexadecimal.
    Whether a file is executable counts, times and owners do not. Raises OSError, and ValueError for
    a folder beyond the bounds or with something in it that is neither file nor link."""
    return _digest(folder, _files(folder))


def hooks_of(plugin: Plugin) -> tuple[list[PublishedHook], list[str]]:
    """Return the hooks of a plugin, and what of its files is left out and why."""
    hooks, problems = list[PublishedHook](), list[str]()
    for path in places_of(plugin.folder, "hooks"):
        found, wrong = read_hooks(path, f"plugin {plugin.name}", plugin.environ)
        hooks, problems = hooks + found, problems + wrong
    return hooks, problems


def _check(plugin: Plugin, known: str) -> tuple[str, str]:
    """Return what is wrong with a plugin's content, and the stamp that tells it unchanged; ""
    for nothing, and for none."""
    try:
        now = time.time()
        files = _files(plugin.folder)
        stamp = f"{plugin.digest} {_stamp(files)}"
        if stamp == known:
            return "", stamp
        if _digest(plugin.folder, files) != plugin.digest:
            return "has changed since it was added", ""
    except FileNotFoundError:
        return "is not there any more", ""
    except (OSError, ValueError):
        return "has changed since it was added", ""
    is_settled = all(found.st_ctime < now - SETTLE_S for _, found in files)
    return "", stamp if is_settled else ""


def _read_stamps(path: Path) -> dict[str, str]:
    try:
        kept = json.loads(read_untrusted(path, MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _files(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Return all files and links below a folder by their paths from there, sorted."""
    found, size = list[tuple[str, os.stat_result]](), 0
    ways = [""]
    while ways:
        way = ways.pop()
        with os.scandir(folder / way) as entries:
            for entry in entries:
                path = f"{way}{entry.name}"
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    ways.append(f"{path}/")
                elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                    found.append((path, status))
                    size += status.st_size
                else:
                    raise ValueError(f"{path} is neither a file nor a folder nor a link")
                check_bounds(len(found) + len(ways), size)
    return sorted(found, key=lambda each: os.fsencode(each[0]))


def check_bounds(files: int, size: int) -> None:
    """Raise ValueError for more files or bytes than a plugin may have."""
    if files > MAX_FILES:
        raise ValueError(f"it has more than {MAX_FILES:,} files")
    if size > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")


def _stamp(files: Sequence[tuple[str, os.stat_result]]) -> str:
    digest = hashlib.sha256()
    for path, found in files:
        row = (
            found.st_mode, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns,
        )  # fmt: skip
        digest.update(os.fsencode(path) + b"\0" + repr(row).encode() + b"\0")
    return digest.hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder by its path, {} for no folder. Raises OSError and
    ValueError."""
    try:
        files = _files(folder)
    except FileNotFoundError:
        return {}
    return {each[0]: _digest(folder, [each]) for each in files}


def _digest(folder: Path, files: Sequence[tuple[str, os.stat_result]]) -> str:
    digest = hashlib.sha256()
    for path, found in files:
        if stat.S_ISLNK(found.st_mode):
            kind, data = b"l", os.fsencode(os.readlink(folder / path))  # noqa: PTH115
        else:
            kind = b"x" if found.st_mode & stat.S_IXUSR else b"f"
            data = read_untrusted(folder / path, MAX_BYTES)
        name = os.fsencode(path)
        digest.update(b"%s %d %d\0%s%s" % (kind, len(name), len(data), name, data))
    return digest.hexdigest()
