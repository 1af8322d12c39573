"""Find the parts of a plugin: in default places and in places that its manifest names.

The rules are https://code.claude.com/docs/en/plugins-reference. Commands and subagents that the
manifest names replace the default folder. Skills, hooks and servers that it names are added to the
default place. A manifest can also contain hooks and servers directly.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..border.document import read_object
from ..config.trust import read_untrusted

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
