"""Python extensions: files of the user and of projects, and installed packages.

A file is `extensions/NAME.py` in the user's configuration folder, or in a project's `.ctxagent`
after the user has trusted its content. A package declares a module as an entry point in the group
`ctxagent.extensions`. Each class in the module that subclasses Feature is used.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from ...tools.system.foreign_code import MODULE_PREFIX, foreign_code
from ..border.entry_points import EXTENSIONS, EntryPoint, entry_points, places_outside
from ..config.trust import folders_within_project, is_trusted, read_untrusted
from ..lazy import dataclass

FOLDER = "extensions"  # in the user's configuration folder and in a project's .ctxagent
NOT_TRUSTED = "not trusted: read the file, then accept it with `ctxagent config --trust`"

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Extension(Generic[B]):
    """An extension: one file or one entry point."""

    name: str
    source: str  # a path, or the package and its version
    classes: Sequence[type[B]] = ()
    problem: str = ""  # why it is not used, "" if it is used


@dataclass(frozen=True, slots=True)
class LoadedExtensions(Generic[B]):
    """All extensions found, including those with problems."""

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
    """Return the files of the nearest `.ctxagent/extensions` in the project, without links that
    leave the project.
    """
    folders = folders_within_project(cwd, home)
    for folder in folders:
        if (place := folder / ".ctxagent" / FOLDER).is_dir():
            found = sorted(place.glob("*.py"))
            return [path for path in found if _is_within(path, folders[-1])]
    return []


def _is_within(path: str | Path, folder: str | Path) -> bool:
    """Return True if a path is in a folder, after resolving links."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


class ExtensionSource:
    """Finds the extensions of a session and loads them at the first use."""

    def __init__(self, config_home: Path, cwd: Path, home: Path, trust_dir: Path) -> None:
        self._config_home, self._cwd, self._home = config_home, cwd, home
        self._trust_dir = trust_dir
        self._lock = threading.Lock()
        self._loaded: LoadedExtensions[Any] | None = None

    @property
    def exists(self) -> bool:
        """True if there are any files or packages."""
        files = [*own_files(self._config_home), *project_files(self._cwd, self._home)]
        return bool(files or any(self._entry_points()))

    def load(self, base: type[B], check: Callable[[type[B]], None]) -> LoadedExtensions[B]:
        """Run and return the extensions, i.e. their subclasses of `base`. `check` raises for an
        unusable class. Blocking.
        """
        with self._lock:
            if self._loaded is None:
                found = [*self._files(base, check), *self._packages(base, check)]
                self._loaded = LoadedExtensions(found)
            return self._loaded

    def reload(self, base: type[B], check: Callable[[type[B]], None]) -> LoadedExtensions[B]:
        """Load all extensions again from their current files. Blocking."""
        with self._lock:
            self._loaded = None
        return self.load(base, check)

    def _files(self, base: type[B], check: Callable[[type[B]], None]) -> Iterator[Extension[B]]:
        own = own_files(self._config_home)
        for path in [*own, *project_files(self._cwd, self._home)]:
            try:
                data = read_untrusted(path)
            except OSError as error:
                yield Extension(path.stem, str(path), problem=str(error.strerror))
                continue
            if path in own or is_trusted(path, data, self._trust_dir):
                yield _loaded(path.stem, str(path), base, check, partial(_run_file, path, data))
            else:
                yield Extension(path.stem, str(path), problem=NOT_TRUSTED)

    def _packages(self, base: type[B], check: Callable[[type[B]], None]) -> Iterator[Extension[B]]:
        for point in self._entry_points():
            yield _loaded(point.name, point.package, base, check, point.load)

    def _entry_points(self) -> Iterator[EntryPoint]:
        """Yield the entry points of installed packages. Ignore packages inside the project, unless
        they are in the Python environment that runs the agent.
        """
        project = folders_within_project(self._cwd, self._home)[-1]
        project = self._cwd if project == self._home else project
        yield from entry_points(EXTENSIONS, places_outside(str(project))).values()


def _loaded(
    name: str,
    source: str,
    base: type[B],
    check: Callable[[type[B]], None],
    load: Callable[[], Any],
) -> Extension[B]:
    """Return an extension with its classes or with the problem."""
    classes = list[type[B]]()
    with foreign_code() as problems:
        found = load()
        candidates = vars(found).values() if isinstance(found, ModuleType) else [found]
        classes = [
            each
            for each in candidates
            if isinstance(each, type) and issubclass(each, base) and each is not base
            and (each is found or each.__module__ == found.__name__)
        ]  # fmt: skip
        for each in classes:
            each.name = getattr(each, "name", "") or name  # type: ignore[attr-defined]
            check(each)
    if not classes:
        problems.append("it has no class that subclasses Feature")
    if problems:
        return Extension(name, source, problem=problems[0])
    return Extension(name, source, classes)


def _run_file(path: Path, data: bytes) -> ModuleType:
    """Run the content of a file as a module and return the module. Its `print` goes to stderr,
    because programs read stdout.
    """
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]  # file names may be equal
    module = ModuleType(f"{MODULE_PREFIX}{path.stem}_{digest}")
    module.__file__ = str(path)
    vars(module)["print"] = partial(print, file=sys.stderr)
    code = compile(data, str(path), "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # needed to resolve type hints
    exec(code, vars(module))
    return module
