"""Import the `anthropic` SDK lazily, without the 90 % of it that requests do not use.

The SDK's packages re-export names of about three thousand modules; a client and its errors need a
few hundred. `load` installs a finder that imports a re-exported name at its first access, as in PEP
810. The object is the same. Any other name of a package runs its `__init__` unchanged. There are
two special cases. The telemetry module imports every type of the SDK, so functions imported from it
are wrapped and imported when called. The module with the error classes (about a hundred models)
runs at the first error. If this fails, or ANTHROPIC_LOG is set, the SDK is imported normally.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import Lock, RLock
from types import ModuleType
from typing import Any

from ...lazy import regex

SDK = "anthropic"
CLIENT = "AsyncAnthropic"  # for an API key
TELEMETRY = f"{SDK}.lib._tracing"
ERRORS = f"{SDK}._error_classes"
LOGGING_VARIABLE = "ANTHROPIC_LOG"  # read by the SDK's normal import
_REEXPORT = regex(r"^from (\.[\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_loading = Lock()  # two clients can be loaded at the same time
_NAME = regex(r"\s*(\w+)(?: as (\w+))?\s*")


def load(client: str = CLIENT) -> None:
    """Import the modules that a client of the SDK needs. Raises ImportError."""
    with _loading:
        _load()
        getattr(import_module(SDK), client)


def _load() -> None:
    if SDK in sys.modules or os.environ.get(LOGGING_VARIABLE):
        _import()
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)  # stays installed for later names
    try:
        _import()
        finder.loading = False
    except (ImportError, AttributeError, NameError, TypeError):  # the SDK has another structure
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_of_sdk(name)]:
            del sys.modules[name]
        _import()


def _import() -> None:
    """Import everything that the adapter uses from its first request to the reply."""
    from anthropic import (  # noqa: F401
        APIConnectionError,
        APIStatusError,
        AsyncAnthropic,
        AsyncStream,
        CredentialsError,
        DefaultAsyncHttpxClient,
    )


def _is_of_sdk(name: str) -> bool:
    return name.partition(".")[0] == SDK


class _Finder(MetaPathFinder):
    """Finds only the packages of the SDK."""

    loading = True  # True while `load` runs

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_of_sdk(fullname):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and type(spec.loader) is SourceFileLoader:
            if fullname == ERRORS:
                spec.loader = _LateLoader(fullname, spec.loader.path)
            elif spec.submodule_search_locations:
                spec.loader = _Loader(fullname, spec.loader.path, self)
        return spec


class _LateLoader(SourceFileLoader):
    """Loads a module that runs when one of its functions is called or one of its classes is
    accessed.
    """

    def exec_module(self, module: ModuleType) -> None:
        lock = RLock()

        def run(name: str) -> Any:
            with lock:
                if name not in module.__dict__:
                    SourceFileLoader.exec_module(self, module)
            return module.__dict__[name]

        def look_up(name: str) -> Any:
            if _is_special(name):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if name.islower():
                return lambda *arguments, **named: run(name)(*arguments, **named)
            return run(name)

        module.__dict__["__getattr__"] = look_up


class _Loader(SourceFileLoader):
    """Loads a package whose `__init__` runs only when needed."""

    def __init__(self, fullname: str, path: str, finder: _Finder) -> None:
        super().__init__(fullname, path)
        self.finder = finder

    def exec_module(self, module: ModuleType) -> None:
        reexports = _reexports(self.get_data(self.path).decode())
        with os.scandir(Path(self.path).parent) as files:
            siblings = {file.name.partition(".")[0] for file in files}
        if siblings & reexports.keys():  # a module of that name would hide the re-export
            super().exec_module(module)
            return
        lock, running = RLock(), False

        def look_up(name: str) -> object:
            nonlocal running
            if name in reexports:
                origin, there = reexports[name]
                if self.finder.loading and module.__name__ == TELEMETRY and there.islower():
                    return _imported_when_called(origin, there)
                value = getattr(import_module(origin, module.__name__), there)
                module.__dict__[name] = value
                return value
            with lock:
                if not running and not _is_special(name):
                    submodule = f"{module.__name__}.{name}"
                    if PathFinder.find_spec(submodule, module.__path__):
                        return import_module(submodule)
                    running = True
                    SourceFileLoader.exec_module(self, module)
                    if name in module.__dict__:
                        return module.__dict__[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__dict__["__getattr__"] = look_up


def _imported_when_called(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a function of the SDK's telemetry and calls it."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module, TELEMETRY), name)(*arguments, **named)

    return call


def _reexports(text: str) -> dict[str, tuple[str, str]]:
    """Return {name: (module, original name)} for the names that an `__init__` imports from its
    modules at the top level.
    """
    found = {}
    for statement in _REEXPORT.finditer(text):
        for item in (statement[2] or statement[3] or "").split(","):
            if name := _NAME.fullmatch(item):
                found[name[2] or name[1]] = (statement[1], name[1])
    return found


def _is_special(name: str) -> bool:
    """Return True for names that the import system looks up on any module. `__all__` is excluded,
    because it is looked up only to get all names.
    """
    return name.startswith("__") and name.endswith("__") and name != "__all__"
