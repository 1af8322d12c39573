"""Marketplaces: lists of plugins in a repository or a folder.

The format is `.claude-plugin/marketplace.json` of
https://code.claude.com/docs/en/plugin-marketplaces. `marketplaces.json` in the user's configuration
folder stores each list as it was when the marketplace was added or last updated.
"""

import json
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from ...api.base import ConfigError, CtxagentError, UsageError, conceal, dataclass, regex
from ...api.files import make_private_folder, replace_file
from ...api.guard import read_untrusted
from ...api.session import check_name, plugins_lock
from ...api.text import one_line, read_object
from .plugin_fetch import GITHUB_NAME, FileSource, github_url, source_files

RECORD_FILE = "marketplaces.json"  # in the user's configuration folder
LIST_FOLDER, LIST_NAME = ".claude-plugin", "marketplace.json"
MAX_LIST_BYTES = 5_000_000  # of one marketplace's list
MAX_RECORD_BYTES = 50_000_000
MAX_OFFERS = 5_000  # of one marketplace
MAX_DESCRIPTION_CHARS = 300

_SHA = regex(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class OfferedPlugin:
    """A plugin in the list of a marketplace."""

    name: str
    market: str
    entry: Mapping[str, Any]  # the plugin's entry in the list

    @property
    def id(self) -> str:
        """The argument for `plugin add`."""
        return f"{self.name}@{self.market}"

    @property
    def description(self) -> str:
        return one_line(str(self.entry.get("description") or ""), MAX_DESCRIPTION_CHARS)

    def fits(self, words: Sequence[str]) -> bool:
        """Return True if the name, description, category or keywords contain all words."""
        fields = (self.entry.get(key) for key in ("description", "category", "keywords", "tags"))
        text = " ".join([self.name, *map(str, fields)]).lower()
        return all(word.lower() in text for word in words)


@dataclass(frozen=True, slots=True)
class Marketplace:
    """A recorded marketplace with its list."""

    name: str
    source: str  # absolute path, or git URL without credentials
    listed: Mapping[str, Any]
    ref: str = ""
    commit: str = ""  # commit of the list, "" for a folder
    updated: str = ""  # ISO 8601

    @property
    def offers(self) -> list[OfferedPlugin]:
        """The plugins in the order of the list. Entries without a valid name are skipped."""
        return list(_offers(self.name, self.listed))

    def offer(self, name: str) -> OfferedPlugin:
        """Return the plugin with this current or former name. Raises UsageError."""
        renames = self.listed.get("renames")
        wanted = renames.get(name, name) if isinstance(renames, dict) else name
        for each in self.offers:
            if each.name in (name, wanted):
                return each
        raise UsageError(
            f"the marketplace {self.name} has no plugin {name}",
            hint="`ctxagent plugin search` lists all. `ctxagent plugin marketplace update "
            f"{self.name}` reads its list again.",
        )

    def source_of(self, offer: OfferedPlugin) -> FileSource:
        """Return the source of a plugin. Raises UsageError with the kind of source if it is not
        supported.
        """
        given = offer.entry.get("source")
        try:
            if isinstance(given, str):
                return self._own_source(given)
            if isinstance(given, dict):
                return _source_elsewhere(given)
            raise ValueError("has no source")
        except ValueError as error:
            raise UsageError(
                f"{offer.id} cannot be added: it {error}",
                hint="Report it to the owner of the marketplace.",
            ) from None

    def _own_source(self, path: str) -> FileSource:
        about = self.listed.get("metadata")
        root = about.get("pluginRoot") if isinstance(about, dict) else None
        if isinstance(root, str) and not path.startswith((".", "/")):
            path = f"{root}/{path}"
        path = _checked_path(path)
        if FileSource(self.source).is_url:
            return FileSource(self.source, self.ref, self.commit, path)
        folder = Path(os.path.realpath(self.source, strict=False)) / path
        if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.source)):
            raise ValueError(f"is at {path}, which leads out of the marketplace")
        if not folder.is_dir():
            raise ValueError(f"is at {folder}, which is not a folder")
        return FileSource(str(folder))


def read_marketplaces(config_home: Path) -> dict[str, Marketplace]:
    """Return the recorded marketplaces by name. Raises ConfigError for a broken record."""
    path = config_home / RECORD_FILE
    try:
        kept = json.loads(read_untrusted(path, MAX_RECORD_BYTES))
        return {
            check_name(name): Marketplace(
                name=name,
                source=str(row["source"]),
                listed={**row["listed"]},
                **{key: str(row.get(key, "")) for key in ("ref", "commit", "updated")},
            )
            for name, row in sorted(kept["marketplaces"].items())
        }
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a record of marketplaces"
        hint = "Repair it, or remove it and add the marketplaces again."
        raise ConfigError(f"cannot be read: {why}", where=str(path), hint=hint) from None


def add_marketplace(
    source: FileSource, config_home: Path, environ: Mapping[str, str]
) -> Marketplace:
    """Read and record the list of a marketplace, replacing an earlier record of the same source.
    Raises UsageError if the source is not a marketplace, CtxagentError if it cannot be fetched or
    recorded, and ConfigError for a broken record.
    """
    with plugins_lock(config_home) as stage:
        try:
            commit, listed = _read_list(source, stage, environ)
            name = check_name(str(listed.get("name")))
        except ValueError as error:
            raise UsageError(
                f"{conceal(source.place)} is not a marketplace: {error}",
                hint="Give a folder or repository with .claude-plugin/marketplace.json.",
            ) from None
        except OSError as error:
            raise CtxagentError(
                f"{conceal(source.place)}: {error.strerror or error}",
                hint="Check the address and the network.",
            ) from None
        known = read_marketplaces(config_home)
        if name in known and known[name].source != source.recorded_place:
            raise UsageError(
                f"there is a marketplace {name} already, from {known[name].source}",
                hint=f"`ctxagent plugin marketplace remove {name}` removes it.",
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        added = Marketplace(name, source.recorded_place, listed, source.ref, commit, now)
        _write({**known, name: added}, config_home)
    return added


def remove_marketplace(name: str, config_home: Path) -> None:
    """Remove a marketplace but keep its plugins. Raises UsageError, CtxagentError and
    ConfigError.
    """
    with plugins_lock(config_home):
        known = read_marketplaces(config_home)
        marketplace_named(known, name)
        _write({each: market for each, market in known.items() if each != name}, config_home)


def marketplace_named(known: Mapping[str, Marketplace], name: str) -> Marketplace:
    """Return a marketplace. Raises UsageError for an unknown name."""
    if name not in known:
        raise UsageError(
            f"there is no marketplace {name}",
            hint=f"There are: {', '.join(known) or 'none'}. `ctxagent plugin marketplace add "
            "PATH|GIT-URL` adds one.",
        )
    return known[name]


def offers_in(folder: Path) -> list[OfferedPlugin]:
    """Return the plugins in the list of a folder, [] if there is no valid list."""
    try:
        listed = _parsed(read_untrusted(folder / LIST_FOLDER / LIST_NAME, MAX_LIST_BYTES))
    except (OSError, ValueError):
        return []
    return list(_offers(str(listed.get("name")), listed))


def _read_list(
    source: FileSource, stage: Path, environ: Mapping[str, str]
) -> tuple[str, Mapping[str, Any]]:
    """Return the commit and the list of a marketplace. Raises ValueError and OSError."""
    place = FileSource(source.place, source.ref, source.commit, LIST_FOLDER)
    with source_files(place, stage / "repository", environ) as (commit, files):
        for file in files:
            if file.path == LIST_NAME:
                return commit, _parsed(file.data)
    raise ValueError(f"it has no {LIST_FOLDER}/{LIST_NAME}")


def _parsed(data: bytes) -> Mapping[str, Any]:
    """Return the parsed list of a marketplace. Raises ValueError."""
    listed = read_object(data[: MAX_LIST_BYTES + 1], LIST_NAME)
    if not isinstance(listed.get("plugins"), list):
        raise ValueError(f'{LIST_NAME} is not {{"name": …, "plugins": […]}}')
    return listed


def _offers(market: str, listed: Mapping[str, Any]) -> Iterator[OfferedPlugin]:
    for entry in listed["plugins"][:MAX_OFFERS]:
        try:
            yield OfferedPlugin(check_name(entry["name"]), market, entry)
        except (ValueError, TypeError, KeyError):
            continue


def _source_elsewhere(given: Mapping[str, Any]) -> FileSource:
    """Return the source of a plugin outside of its marketplace. Raises ValueError."""
    kind, commit, ref = given.get("source"), given.get("sha") or "", given.get("ref") or ""
    if kind not in ("github", "url", "git", "git-subdir"):
        raise ValueError(f"comes from {str(kind)[:40]!r}, which is not supported here")
    place = given.get("repo") if kind == "github" else given.get("url")
    if not isinstance(place, str) or not isinstance(ref, str):
        raise ValueError(f"names no repository under {kind}")
    if GITHUB_NAME.fullmatch(place):
        place = github_url(place)
    if commit and not _SHA.fullmatch(str(commit)):
        raise ValueError(f"is pinned to {str(commit)[:60]!r}, which is not a commit")
    source = FileSource(place, ref, str(commit), _checked_path(given.get("path") or ""))
    if not source.is_url:
        raise ValueError(f"comes from {place}, which is not a git URL")
    return source


def _checked_path(path: object) -> str:
    """Return a normalized path in a repository, "" for the root. Raises ValueError for a path that
    leaves the repository.
    """
    if not isinstance(path, str) or "\\" in path or "\0" in path:
        raise ValueError("has an invalid path")
    plain = posixpath.normpath(path or ".")
    if plain.startswith("/") or ".." in PurePosixPath(plain).parts:
        raise ValueError(f"is at {path}, which leads out of the marketplace")
    return "" if plain == "." else plain


def _write(markets: Mapping[str, Marketplace], config_home: Path) -> None:
    """Write the record of the marketplaces. Raises CtxagentError."""
    keys = ("source", "ref", "commit", "updated", "listed")
    rows = {name: {key: getattr(each, key) for key in keys} for name, each in markets.items()}
    data = json.dumps({"marketplaces": rows}, ensure_ascii=False).encode(errors="replace")
    try:
        make_private_folder(config_home)
        replace_file(config_home / RECORD_FILE, data)
    except OSError as error:
        raise CtxagentError(
            f"{RECORD_FILE} cannot be written: {error.strerror}",
            hint="Check the permissions of the folder.",
        ) from None
