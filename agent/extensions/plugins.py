"""Plugins: folders with commands, skills, subagents, hooks, MCP servers and language servers.

The layout is https://code.claude.com/docs/en/plugins-reference, so plugins for other agents work
here. A part is in its default place or in places that the manifest names. Commands and subagents
that the manifest names replace the default folder. Skills, hooks and servers that it names are
added to the default place. A manifest can also contain hooks and servers directly.

A plugin is copied to `plugins/NAME` in the user's configuration folder. `plugins.json` next to that
folder records each plugin's source and the digest of the content that the user has accepted. A
plugin whose content has changed is not used.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...tools.system.files import make_private_folder, replace_file
from ..border.values import read_object
from ..config.trust import read_untrusted
from ..errors import ConfigError, CtxagentError
from ..lazy import dataclass, regex
from .hook_files import PublishedHook, read_hooks

MANIFEST = ".claude-plugin/plugin.json"
MAX_KEPT_MANIFESTS = 200
# Default place of each kind of part, by its key in a manifest.
DEFAULT_PLACES = {
    "commands": "commands", "skills": "skills", "agents": "agents", "hooks": "hooks/hooks.json",
    "mcpServers": ".mcp.json", "lspServers": ".lsp.json",
}  # fmt: skip
# Unsupported parts of the published format: keys in a manifest, and default places.
_UNSUPPORTED_KEYS = (
    "outputStyles", "userConfig", "channels", "dependencies", "settings", "themes", "monitors",
    "workflows", "experimental",
)  # fmt: skip
_UNSUPPORTED_PLACES = (
    "output-styles", "themes", "monitors", "workflows", "bin", "settings.json",
)  # fmt: skip
_FILES = ("hooks", "mcpServers", "lspServers")  # named places are added to the default place


class PluginPart(Protocol):
    """A part that can belong to a plugin."""

    @property
    def plugin(self) -> str:
        """The plugin's name, "" for parts of the user and of projects."""


NamedPart = TypeVar("NamedPart", bound=PluginPart)


def free_name(name: str, plugin: str, taken: Mapping[str, Any]) -> str:
    """Return the name of a plugin's part: PLUGIN:NAME if NAME is taken."""
    return f"{plugin}:{name}" if name in taken else name


def part_named(parts: Mapping[str, NamedPart], name: str) -> NamedPart | None:
    """Return the part with this name. PLUGIN:NAME also finds the part NAME of that plugin."""
    plugin, _, own = name.rpartition(":")
    if (found := parts.get(name)) is None and (named := parts.get(own)) is not None:
        found = named if plugin and named.plugin == plugin else None
    return found


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a plugin, {} if it is missing. Raises ValueError and OSError."""
    try:
        found = (folder / MANIFEST).stat()
        return _manifest_in(folder, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    except (FileNotFoundError, NotADirectoryError):
        return {}


@lru_cache(MAX_KEPT_MANIFESTS)
def _manifest_in(folder: Path, *stamp: int) -> Mapping[str, Any]:
    """Return the content of a manifest. `stamp` is the cache key. Raises ValueError and OSError."""
    return read_object(read_untrusted(folder / MANIFEST), MANIFEST)


def places_of(folder: Path, key: str) -> list[Path]:
    """Return the existing files and folders for one kind of part, the default place first."""
    usual = folder / DEFAULT_PLACES[key]
    try:
        named = [path for path, why in _named(folder, key) if not why]
    except (OSError, ValueError):
        named = []
    if key == "skills" and not named and (folder / "SKILL.md").is_file() and not usual.exists():
        return [folder]  # the whole plugin is one skill
    is_added = key in _FILES or (key == "skills" and not any(usual in p.parents for p in named))
    found = dict.fromkeys([usual, *named] if is_added or not named else named)
    return [path for path in found if path.exists()]


def subagent_files(folder: Path) -> list[Path]:
    """Return the files that define subagents of a plugin."""
    places = places_of(folder, "agents")
    return [p for each in places for p in ([each] if each.is_file() else sorted(each.glob("*.md")))]


def layout_problems(folder: Path) -> Iterator[str]:
    """Yield a problem for each invalid place in the manifest, and one for all unsupported parts."""
    manifest = read_manifest(folder)
    for key in DEFAULT_PLACES:
        yield from (why for _, why in _named(folder, key) if why)
    keys = [key for key in _UNSUPPORTED_KEYS if manifest.get(key)]
    found = [place for place in _UNSUPPORTED_PLACES if (folder / place).exists()]
    if keys or found:
        yield f"not supported here: {', '.join([*keys, *found])}"


def _named(folder: Path, key: str) -> Iterator[tuple[Path, str]]:
    """Yield the places in the manifest for one kind of part, each with the reason to skip it ("" if
    valid).
    """
    given = read_manifest(folder).get(key)
    if given is None:
        return
    root = os.path.realpath(folder)
    for value in given if isinstance(given, list) else [given]:
        if isinstance(value, dict) and key in _FILES and value is given:
            yield folder / MANIFEST, ""
            continue
        path = Path(os.path.normpath(folder / value)) if isinstance(value, str) else folder
        why = ""
        if not isinstance(value, str):
            why = f"plugin.json has an invalid path under {key}"
        elif not Path(os.path.realpath(path)).is_relative_to(root):
            why = f"plugin.json names {value} under {key}, which is outside of the plugin"
        elif not path.exists():
            why = f"plugin.json names {value} under {key}, which does not exist"
        yield path, why


PLUGINS_FOLDER = "plugins"  # in the user's configuration folder
RECORD_FILE = "plugins.json"  # next to PLUGINS_FOLDER
STAMPS_FILE = "plugin_stamps.json"  # in the state folder
ROOT_VARIABLE = "CLAUDE_PLUGIN_ROOT"
MAX_FILES = 5_000  # per plugin
MAX_BYTES = 50_000_000  # per plugin
MAX_RECORD_BYTES = 1_000_000
SETTLE_S = 2.0  # a file changed more recently is read again

MAX_NAME_CHARS = 80

_NAME = regex(r"[A-Za-z0-9][\w.-]{0,79}", re.ASCII)
_RECORDED = ("ref", "commit", "added", "path", "market", "offer")  # "" if missing
_STAGE = ".adding-"  # prefix of temporary folders


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed plugin."""

    name: str
    folder: Path
    source: str  # absolute path, or git URL without credentials
    digest: str  # result of `content_digest` when it was added
    ref: str = ""  # requested branch, tag or commit
    commit: str = ""  # "" for a copy of a folder
    added: str = ""  # ISO 8601
    path: str = ""  # folder in the repository
    market: str = ""  # name of its marketplace
    offer: str = ""  # its name in the marketplace

    @property
    def pinned_to(self) -> str:
        """The commit or digest that its content is pinned to, for messages."""
        return f"commit {self.commit[:12]}" if self.commit else f"digest {self.digest[:12]}"

    @property
    def origin(self) -> str:
        """The source of the plugin, for messages."""
        return f"{self.source}{'#' if self.path else ''}{self.path}"

    @property
    def offered_as(self) -> str:
        """How it is added from its marketplace, "" if it is from none."""
        return f"{self.offer}@{self.market}" if self.market else ""

    @property
    def add_command(self) -> str:
        """The command that installs the plugin again."""
        if self.market:
            return f"ctxagent plugin add {self.offered_as}"
        ref = f" --ref {shlex.quote(self.ref)}" if self.ref else ""
        return f"ctxagent plugin add {shlex.quote(self.source)}{ref}"

    def record(self) -> dict[str, str]:
        """Return the recorded fields except the name."""
        return {name: getattr(self, name) for name in ("source", "digest", *_RECORDED)}

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables for programs of the plugin. Python writes no bytecode into the
        plugin's folder because that would change its digest.
        """
        return {ROOT_VARIABLE: str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}


class InstalledPlugins:
    """The plugins of a run, checked once at the first access."""

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
                    f"the plugin {plugin.name} {why}, so it is not used. Check "
                    f"{plugin.folder}, or reinstall it with `{plugin.add_command}`."
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
        """The plugins with unchanged content, by name."""
        return self._checked[0]

    @property
    def hooks(self) -> list[PublishedHook]:
        return self._hooks[0]

    @property
    def hook_warnings(self) -> list[str]:
        """A warning for each skipped hook, with the reason."""
        return self._hooks[1]

    @property
    def warnings(self) -> list[str]:
        """A warning for each skipped plugin or hook, with the reason."""
        return [*self._checked[1], *self.hook_warnings]


@contextmanager
def plugins_lock(config_home: Path) -> Iterator[Path]:
    """Lock plugins and marketplaces against changes by other processes, and yield a private
    temporary folder. Remove it afterwards; remove folders of killed processes first. Raises
    CtxagentError.
    """
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
    """Return the name of a plugin. Raises ValueError if it is invalid."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"its name {name[:100]!r} is invalid: use up to 80 letters, digits, -, _ and ., and "
            "begin with a letter or digit"
        )
    return name


def read_plugins(config_home: Path) -> list[Plugin]:
    """Return the recorded plugins, sorted by name. Raises ConfigError for a broken record."""
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
        why = error.strerror if isinstance(error, OSError) else "it is not a record of plugins"
        hint = "Repair it, or remove it and add the plugins again."
        raise ConfigError(f"cannot be read: {why}", where=str(path), hint=hint) from None


def write_plugins(config_home: Path, plugins: Sequence[Plugin]) -> None:
    """Replace the record by these plugins. Raises OSError."""
    rows = {each.name: each.record() for each in sorted(plugins, key=lambda plugin: plugin.name)}
    make_private_folder(config_home)
    data = json.dumps({"plugins": rows}, indent=1, ensure_ascii=False) + "\n"
    replace_file(config_home / RECORD_FILE, data.encode())


def check_plugins(config_home: Path, state: Path) -> list[tuple[Plugin, str]]:
    """Return the recorded plugins, each with the problem of its content ("" if intact).

    Contents are read once. Later runs compare a stamp: names, modes, sizes, inodes and times of all
    files. Any write to a file updates its ctime, and no program can set the ctime. Files that
    changed less than SETTLE_S ago are read again, because two writes may have the same ctime.
    Raises ConfigError for a broken record.
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
        with suppress(OSError):  # without stamps, contents are read again next time
            make_private_folder(state)
            data = json.dumps(stamps, indent=1).encode()
            replace_file(state / STAMPS_FILE, data, durable=False)
    return checked


def is_intact(plugin: Plugin) -> bool:
    """Return True if the content is the accepted content. Blocking."""
    return not _check(plugin, "")[0]


def content_digest(folder: Path) -> str:
    """Return the SHA-256, in hexadecimal, of the names, kinds and contents of all files in a
    folder. Include the executable bit but not times and owners. Raises OSError, and ValueError for
    special files and for a folder that is too large.
    """
    return _digest(folder, _files(folder))


def hooks_of(plugin: Plugin) -> tuple[list[PublishedHook], list[str]]:
    """Return the hooks of a plugin, and a warning for each skipped hook."""
    hooks, problems = list[PublishedHook](), list[str]()
    for path in places_of(plugin.folder, "hooks"):
        found, wrong = read_hooks(path, f"plugin {plugin.name}", plugin.environ)
        hooks, problems = hooks + found, problems + wrong
    return hooks, problems


def _check(plugin: Plugin, known: str) -> tuple[str, str]:
    """Return (problem, stamp) for a plugin's content. The problem is "" if the content is intact.
    The stamp is "" if the content must be read again next time.
    """
    try:
        now = time.time()
        files = _files(plugin.folder)
        stamp = f"{plugin.digest} {_stamp(files)}"
        if stamp == known:
            return "", stamp
        if _digest(plugin.folder, files) != plugin.digest:
            return "has changed since it was added", ""
    except FileNotFoundError:
        return "no longer exists", ""
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
    """Return the relative paths of all files and links below a folder, sorted."""
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
    """Raise ValueError for more files or bytes than allowed."""
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
    """Return a digest of each file in a folder by its path, {} if the folder is missing. Raises
    OSError and ValueError.
    """
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
