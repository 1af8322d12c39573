"""List the files below a directory that are not ignored, for Glob, Grep and path completion.

Inside a git work tree, git lists the files. Elsewhere, and below an ignored directory, this module
walks the tree and applies `.gitignore`, `.ignore` and `.rgignore`. Hidden files are listed, `.git`
is not; links are listed but not followed. No program from a repository's configuration is run.

A file is also found by the look of its name: with composed or decomposed accents, or with
bytes that are not UTF-8 and are shown as U+FFFD.
"""

import asyncio
import os
import threading
import unicodedata
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path

from ...agent.lazy import dataclass
from .child import child, pieces
from .git_links import first_outside_link
from .ignore_rules import NOT_GIT, IgnoreRules, read_ignore_file, rules_above
from .programs import program
from .safe_open import current_path, stable_path_below

MAX_FILES = 500_000
MAX_LEFT_OUT_NAMED = 5  # ignored paths named in a message
MAX_PATH_BYTES = 1 << 16

# A foreign repository's configuration may name commands (fsmonitor, hooks, transports).
_GIT = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "protocol.allow=never"),
    *("-c", "safe.bareRepository=explicit"),
    *("ls-files", "-z", "--exclude-standard"),
)
_SUBMODULE = "160000 "  # the mode of a nested repository in the index


@dataclass(slots=True)
class Listing:
    """The result of a listing."""

    # relative, unordered; may include deleted files that git tracks
    paths: list[str] = field(default_factory=list)
    # ignored paths, filled only by a walk; a directory ends in `/`
    ignored: list[str] = field(default_factory=list)
    unreadable: int = 0  # directories
    complete: bool = True  # False if there are more files than the limit


async def list_files(
    root: Path, limit: int = MAX_FILES, env: Mapping[str, str] | None = None
) -> Listing:
    """Return at most `limit` files below `root`; none if it is not a directory. `env` is git's
    environment, by default this process's.
    """
    if await asyncio.to_thread(is_ignored, root):  # git would list only tracked files there
        return await _walked(root, limit, env)
    listing = await _tracked(root, limit, env)
    if listing is None or not listing.paths:
        return await _walked(root, limit, env)
    return listing


async def ignored_paths(root: Path, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the ignored paths below `root`. An ignored directory is listed once, with a `/` at the
    end.
    """
    found = await _git(root, ("-o", "-i", "--directory"), MAX_FILES, env)
    if found is None:
        return in_order((await _walked(root, MAX_FILES, env)).ignored)
    forced = await tracked_ignored(root, env)
    return in_order({*found.paths, *forced} - {"./", ".git"})


async def tracked_ignored(root: Path, env: Mapping[str, str] | None = None) -> set[str]:
    """Return the files that git tracks although they are ignored. A listing includes them, but
    ripgrep does not search them.
    """
    found = await _git(root, ("-c", "-i"), MAX_FILES, env)
    return set(found.paths) if found else set()


async def ignored_notice(root: Path, env: Mapping[str, str] | None = None) -> str:
    """Return a sentence for the model about ignored paths that a search below `root` skipped, or
    "".
    """
    names = await ignored_paths(root, env)
    if not names:
        return ""
    more = (
        f" and {len(names) - MAX_LEFT_OUT_NAMED:,} more" if len(names) > MAX_LEFT_OUT_NAMED else ""
    )
    named = ", ".join(printable(name) for name in names[:MAX_LEFT_OUT_NAMED])
    return f" Ignored, so not looked at: {named}{more}. Give one as path to search it."


def printable(path: str) -> str:
    """Return a path as text. Bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def in_order(paths: Iterable[str]) -> list[str]:
    """Sort paths component by component, the order of ripgrep's `--sort path`."""
    return sorted(paths, key=lambda path: path.split("/"))


async def _git(
    root: Path, options: tuple[str, ...], limit: int, env: Mapping[str, str] | None
) -> Listing | None:
    """Return the output of `git ls-files`; None without git or a work tree, or if the repository's
    files lead outside it.
    """
    inherited = os.environ if env is None else env
    clean = {k: v for k, v in inherited.items() if not k.startswith("GIT_")}
    path = program("git", inherited.get("PATH"))
    astray = await asyncio.to_thread(first_outside_link, root)
    if not path or astray:
        return None
    found = Listing()
    try:
        async with child((path, *_GIT, *options), cwd=root, env=clean) as git:
            async for piece in pieces(git.out, b"\0", MAX_PATH_BYTES):
                if len(found.paths) == limit:
                    found.complete = False
                    return found
                found.paths.append(os.fsdecode(piece))
            code, complaints = await git.end()
    except OSError:
        return None
    found.unreadable = complaints.count("could not open directory")
    return found if code == 0 else None


async def _tracked(root: Path, limit: int, env: Mapping[str, str] | None) -> Listing | None:
    found = await _git(root, ("-c", "-o", "-s"), limit, env)
    if found is None:
        return None
    paths, nested = [], []
    for line in found.paths:
        stage, tab, path = line.partition("\t")
        if not tab or not stage[:6].isdigit():
            stage, path = "", line  # not tracked, so without a stage
        if stage.startswith(_SUBMODULE) or path.endswith("/"):
            nested.append(path.rstrip("/"))
        else:
            paths.append(path)
    found.paths = list(dict.fromkeys(paths))  # git lists a conflicting file once per side
    for directory in nested:
        if directory not in ("", "."):
            await _add_nested(found, root, directory, limit, env)
    await asyncio.to_thread(_drop_ignored, found, root)
    return found


async def _add_nested(
    found: Listing, root: Path, directory: str, limit: int, env: Mapping[str, str] | None
) -> None:
    inner = await list_files(root / directory, limit, env)
    room = limit - len(found.paths)
    found.paths += [f"{directory}/{path}" for path in inner.paths[:room]]
    found.unreadable += inner.unreadable
    found.complete = found.complete and inner.complete and len(inner.paths) <= room


def is_ignored(root: Path) -> bool:
    """Return True if the ignore files above a directory ignore it.

    A search in such a directory is intentional, so these rules do not apply there.
    """
    return rules_above(str(current_path(root)), {})[1]


def _drop_ignored(found: Listing, root: Path) -> None:
    """Apply the ignore files that git does not know to git's listing."""
    top, _ = rules_above(str(current_path(root)), {}, NOT_GIT)
    folders = {path.rpartition("/")[0] for path in found.paths if path.endswith(NOT_GIT)}
    if not top and not folders:
        return
    known: dict[str, IgnoreRules | None] = {}

    def rules_in(folder: str) -> IgnoreRules | None:
        """Return the rules in a folder; None if it is ignored."""
        if folder not in known:
            rules = rules_in(folder.rpartition("/")[0]) if folder else top
            if folder and rules and rules.ignores(folder, True):
                rules = None
            elif rules is not None and folder in folders:
                rules = rules.below(
                    folder and f"{folder}/",
                    NOT_GIT,
                    lambda name: read_ignore_file(str(root / folder / name)),
                )
            known[folder] = rules
        return known[folder]

    kept = []
    for path in found.paths:
        rules = rules_in(path.rpartition("/")[0])
        if rules is not None and not rules.ignores(path, False):
            kept.append(path)
    found.paths = kept


async def _walked(root: Path, limit: int, env: Mapping[str, str] | None) -> Listing:
    stop = threading.Event()  # a thread cannot be killed, so it checks this flag
    try:
        return await asyncio.to_thread(_walk, root, limit, os.environ if env is None else env, stop)
    finally:
        stop.set()


def _walk(root: Path, limit: int, env: Mapping[str, str], stop: threading.Event) -> Listing:
    found = Listing()
    waiting = [("", rules_above(str(current_path(root)), env)[0])]
    while waiting and not stop.is_set():
        prefix, rules = waiting.pop()
        try:
            with stable_path_below(root, prefix) as folder:
                with os.scandir(folder) as entries:
                    inside = {e.name: e.is_dir(follow_symlinks=False) for e in entries}
                rules = _rules_below(rules, prefix, folder, inside)
        except OSError:
            found.unreadable += 1
            continue
        inside.pop(".git", None)
        for name, is_directory in inside.items():
            path = prefix + name
            if rules.ignores(path, is_directory):
                found.ignored.append(f"{path}/" if is_directory else path)
            elif is_directory:
                waiting.append((f"{path}/", rules))
            elif len(found.paths) == limit:
                found.complete = False
                return found
            else:
                found.paths.append(path)
    return found


def _rules_below(
    rules: IgnoreRules, prefix: str, folder: Path, names: Container[str]
) -> IgnoreRules:
    return rules.below(prefix, names, lambda name: read_ignore_file(str(folder / name)))


MAX_COMPARED_NAMES = 5_000  # of one folder


def spelled_on_disk(path: str) -> str:
    """Return an absolute path with the names of existing files that look the same. A part of the
    path without a file, or with several such files, stays as it is.
    """
    if path.isascii() or os.path.lexists(path):
        return path
    found = ""
    for part in path.removeprefix("/").split("/"):
        is_there = os.path.lexists(f"{found}/{part}")
        found = f"{found}/{part if is_there else _same_look(found or '/', part)}"
    return found


def _same_look(folder: str, wanted: str) -> str:
    """Return the only name in a folder that looks like the wanted one, else the wanted one."""
    names = list[str]()
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_COMPARED_NAMES)]
    same = [name for name in names if look_of(name) == look_of(wanted)]
    return same[0] if len(same) == 1 else wanted


def look_of(name: str) -> str:
    """Return the same text for all names that look the same."""
    return unicodedata.normalize("NFC", printable(name))
