"""Extensions in Python: files of the user and of projects, and installed packages.

A file is `extensions/NAME.py` in the configuration folder of the user, or in `.ctxagent` of a
project after the user trusted its content. A package names a module as an entry point of the group
`ctxagent.extensions`. Each class in the module that subclasses the base of features counts.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from ..config.trust import MAX_TRUSTED_BYTES, folders_within_project, is_trusted, read_untrusted
from .foreign_code import foreign_code

FOLDER = "extensions"  # of the user's configuration, and of .ctxagent in a project
ENTRY_POINTS = "ctxagent.extensions"
_METADATA = "entry_points.txt"  # of an installed package
MODULE_PREFIX = "ctxagent_extension_"
NOT_TRUSTED = "not trusted: read the file, then accept it with `ctxagent config --trust`"

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Extension(Generic[B]):
    """One file or entry point."""

    name: str
    source: str  # a path, or the package and its version
    classes: Sequence[type[B]] = ()
    problem: str = ""  # why nothing of it is used


@dataclass(frozen=True, slots=True)
class LoadedExtensions(Generic[B]):
    """All extensions that were found."""

    extensions: Sequence[Extension[B]] = field(default_factory=tuple)

    @property
    def classes(self) -> list[type[B]]:
        """The classes of all extensions, in order."""
        return [each for extension in self.extensions for each in extension.classes]

    @property
    def warnings(self) -> list[str]:
        """A warning for each extension that is not used."""
        return [
            f"the extension {each.source} is left out: {each.problem}"
            for each in self.extensions
            if each.problem
        ]


def own_files(config_home: Path) -> list[Path]:
    """Return the extension files of the user, sorted."""
    return sorted((config_home / FOLDER).glob("*.py"))


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the files of the nearest `.ctxagent/extensions` within the project, without links that
    lead out of it."""
    for folder in folders_within_project(cwd, home):
        if (place := folder / ".ctxagent" / FOLDER).is_dir():
            root = folders_within_project(cwd, home)[-1].resolve()
            found = sorted(place.glob("*.py"))
            return [path for path in found if path.resolve().is_relative_to(root)]
    return []


class ExtensionSource:
    """Where the extensions of a session come from. They are loaded at first use."""

    def __init__(self, config_home: Path, cwd: Path, home: Path, trust_dir: Path) -> None:
        self._config_home, self._cwd, self._home = config_home, cwd, home
        self._trust_dir = trust_dir
        self._lock = threading.Lock()
        self._loaded: LoadedExtensions[Any] | None = None

    @property
    def exists(self) -> bool:
        """Whether there are any files or packages."""
        files = [*own_files(self._config_home), *project_files(self._cwd, self._home)]
        return bool(files) or _has_packages()

    def load(self, base: type[B]) -> LoadedExtensions[B]:
        """Return the extensions, whose classes subclass `base`; blocking. Their code runs."""
        with self._lock:
            if self._loaded is None:
                self._loaded = LoadedExtensions([*self._files(base), *_packages(base)])
            return self._loaded

    def reload(self, base: type[B]) -> LoadedExtensions[B]:
        """Load all extensions again, as their files are now; blocking."""
        with self._lock:
            self._loaded = None
        return self.load(base)

    def _files(self, base: type[B]) -> Iterator[Extension[B]]:
        for path in own_files(self._config_home):
            yield _loaded(path.stem, str(path), base, partial(_from_file, path))
        for path in project_files(self._cwd, self._home):
            try:
                data = read_untrusted(path, MAX_TRUSTED_BYTES)
            except OSError as error:
                yield Extension(path.stem, str(path), problem=str(error.strerror))
                continue
            if not is_trusted(path, data, self._trust_dir):
                yield Extension(path.stem, str(path), problem=NOT_TRUSTED)
                continue
            yield _loaded(path.stem, str(path), base, partial(_from_file, path, data))


def _packages(base: type[B]) -> Iterator[Extension[B]]:
    if not _has_packages():
        return
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        yield _loaded(point.name, source, base, point.load)


def _has_packages() -> bool:
    """Return True if an installed package names an extension. `importlib.metadata` would tell, too,
    but takes longer to import than the whole search."""
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208 - paths take longer
                if name.endswith("-info") and _names_extension(Path(folder, name, _METADATA)):
                    return True
    return False


def _names_extension(path: Path) -> bool:
    with suppress(OSError):
        return ENTRY_POINTS.encode() in path.read_bytes()
    return False


def _loaded(name: str, source: str, base: type[B], load: Callable[[], Any]) -> Extension[B]:
    """Return an extension with its classes, or with what went wrong."""
    found: Any = None
    with foreign_code() as problems:
        found = load()
    if problems:
        return Extension(name, source, problem=problems[0])
    candidates = vars(found).values() if isinstance(found, ModuleType) else [found]
    where = getattr(found, "__name__", "")
    classes = [
        each
        for each in candidates
        if isinstance(each, type) and issubclass(each, base) and each is not base
        and (each is found or each.__module__ == where)
    ]  # fmt: skip
    if not classes:
        return Extension(name, source, problem="it has no class that subclasses Feature")
    for each in classes:
        each.name = getattr(each, "name", "") or name  # type: ignore[attr-defined]
    return Extension(name, source, classes)


def _from_file(path: Path, data: bytes | None = None) -> ModuleType:
    """Run a file as a module of its own and return that. `data` is the content that was checked."""
    module = ModuleType(f"{MODULE_PREFIX}{path.stem}")
    module.__file__ = str(path)
    code = compile(path.read_bytes() if data is None else data, str(path), "exec")
    sys.modules[module.__name__] = module  # type hints are looked up there
    exec(code, vars(module))
    return module
