"""The import of the `anthropic` SDK, without the two thirds of it that no request here touches.

Its packages pass on what their modules define: about three thousand of them, of which a client, the
Messages API and the errors need a third. Under `load` such a name is imported when it is asked for
(as PEP 810 has it): the same object, later. A name that a package makes itself runs its `__init__`
as it is. Nothing of the SDK is named here or replaced, and where this way fails, or logging is
wanted of the SDK, the import is the plain one.
"""

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import RLock
from types import ModuleType

SDK = "anthropic"
LOGGING = "ANTHROPIC_LOG"  # the SDK reads it when the whole of it is imported
_PASSED_ON = re.compile(r"^from (\.[\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_NAME = re.compile(r"\s*(\w+)(?: as (\w+))?\s*")


def load() -> None:
    """Import the SDK, as far as a client of the Messages API needs it. Raises ImportError."""
    if SDK in sys.modules or os.environ.get(LOGGING):
        _import()
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)  # and there it stays, for what is asked for later
    try:
        _import()
    except (ImportError, AttributeError, NameError, TypeError):  # an SDK that is built otherwise
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_its(name)]:
            del sys.modules[name]
        _import()


def _import() -> None:
    """All that the adapter touches between its first request and the reply."""
    from anthropic import (  # noqa: F401
        APIConnectionError,
        APIStatusError,
        AsyncAnthropic,
        CredentialsError,
        DefaultAsyncHttpxClient,
    )
    from anthropic.resources.messages import AsyncMessages  # noqa: F401


def _is_its(name: str) -> bool:
    return name.partition(".")[0] == SDK


class _Finder(MetaPathFinder):
    """Finds the SDK's packages, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_its(fullname):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.submodule_search_locations and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Makes a package whose `__init__` is not run before it must."""

    def exec_module(self, module: ModuleType) -> None:
        passed_on = _passed_on(self.get_data(self.path).decode())
        with os.scandir(Path(self.path).parent) as files:
            beside = {file.name.partition(".")[0] for file in files}
        if beside & passed_on.keys():  # the import of such a module would hide what is passed on
            super().exec_module(module)
            return
        lock, running = RLock(), False

        def look_up(name: str) -> object:
            nonlocal running
            if name in passed_on:
                origin, there = passed_on[name]
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


def _passed_on(text: str) -> dict[str, tuple[str, str]]:
    """The names that an `__init__` imports from its modules at the top level, each with the module
    and its name there."""
    found = {}
    for statement in _PASSED_ON.finditer(text):
        for item in (statement[2] or statement[3] or "").split(","):
            if name := _NAME.fullmatch(item):
                found[name[2] or name[1]] = (statement[1], name[1])
    return found


def _is_special(name: str) -> bool:
    """Whether a name is one that the import system and others try on any module. `__all__` is not:
    who asks for it wants all."""
    return name.startswith("__") and name.endswith("__") and name != "__all__"
