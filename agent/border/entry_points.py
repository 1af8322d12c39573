"""Entry points of installed packages: commands, features, services and extensions by their names.

This module reads the files `entry_points.txt` itself, because importing `importlib.metadata` takes
longer than a start may.
See https://packaging.python.org/en/latest/specifications/entry-points/.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ...tools.system.foreign_code import foreign_code
from ..errors import UsageError
from ..lazy import dataclass

COMMANDS = "ctxagent.commands"  # commands of the shell; "sessions export" is one of a group
SERVICES = "ctxagent.services"  # functions and classes that the kernel asks for
FEATURES = "ctxagent.features"  # subclasses of `Feature`, for all sessions
EXTENSIONS = "ctxagent.extensions"
_FILE = "entry_points.txt"  # in the metadata of a package
_OWN = "ctxagent-"  # start of the name of this program's metadata


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A name that an installed package declares, for an object in one of its modules."""

    name: str
    value: str  # "module:attribute", or a module
    package: str  # name and version

    def load(self) -> Any:
        """Import and return the object. Raises what the module raises, and AttributeError."""
        module, _, attribute = self.value.partition(":")
        found: Any = import_module(module.strip())
        for name in filter(None, attribute.strip().split(".")):
            found = getattr(found, name)
        return found


def entry_points(group: str, places: Sequence[str] | None = None) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, from packages in `places`. The first package with
    a name has it, and this program is the first of all. The default is `sys.path` without the
    working directory, which may be a project that nobody trusts yet.
    """
    found: dict[str, EntryPoint] = {}
    for point in _points(group, places):
        found.setdefault(point.name, point)
    return found


@cache
def entry_point(group: str, name: str) -> EntryPoint | None:
    """Return one of the entry points. Reads only files up to the first that has it."""
    return next((point for point in _points(group, None) if point.name == name), None)


def _points(group: str, places: Sequence[str] | None) -> Iterator[EntryPoint]:
    if places is None:
        places = places_outside(_working_directory())
    for path in _files(places):
        text = _text_of(path)
        if f"[{group}]" in text:
            package = _package_in(path.parent)
            for name, value in _lines_of(text, group):
                yield EntryPoint(name, value, package)


@cache
def _text_of(path: Path) -> str:
    with suppress(OSError, ValueError):  # a damaged package declares nothing
        return path.read_text("utf-8")
    return ""


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed
        return os.devnull


def places_outside(folder: str) -> list[str]:
    """Return the places of `sys.path` that are not within a folder. A place within the Python
    environment that runs the agent always counts.
    """
    inside, own = _real(folder), _real(sys.prefix)
    is_own_inside = own.is_relative_to(inside)
    return [
        place
        for place in sys.path
        if not (real := _real(place)).is_relative_to(inside)
        or (is_own_inside and real.is_relative_to(own))
    ]


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))


def _files(places: Sequence[str]) -> list[Path]:
    """Return where packages declare entry points, those of this program first."""
    found = list[Path]()
    for folder in places:
        with suppress(OSError):
            names = os.listdir(folder or ".")  # noqa: PTH208 - Path is slower
            found += [Path(folder, name, _FILE) for name in names if name.endswith("-info")]
    return sorted(found, key=lambda path: not path.parent.name.startswith(_OWN))


@cache
def _package_in(folder: Path) -> str:
    """Return the name and version of the package with this folder of metadata."""
    with suppress(OSError, ValueError, KeyError):
        fields = dict[str, str]()
        for line in (folder / "METADATA").read_text("utf-8").splitlines():
            name, _, value = line.partition(": ")
            fields.setdefault(name, value)
        return f"{fields['Name']} {fields['Version']}"
    return folder.stem


def _lines_of(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a group."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def service(name: str) -> Any:
    """Return a service that an add-on provides. Raises UsageError if no add-on provides it, or if
    the add-on cannot be loaded.
    """
    point = entry_point(SERVICES, name)
    if point is None:
        raise UsageError(
            f"this needs the add-on {name!r}, which is not installed",
            hint="Install ctxagent with its add-ons.",
        )
    with foreign_code() as problems:
        return point.load()
    raise UsageError(
        f"the add-on {name!r} of {point.package} cannot be loaded: {problems[0]}",
        hint="Update or remove the package.",
    )
