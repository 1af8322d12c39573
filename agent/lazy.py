"""Data classes and regular expressions that are compiled on first use, and names of a module that
are imported on first use.

A start imports hundreds of data classes and expressions, but uses few of them. The standard library
compiles up to seven methods per data class, and each expression, at import: half of the CPU time of
a start. `dataclass` and `regex` take the same arguments as the standard functions, and type
checkers see the standard functions.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as with_fields
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "names_on_demand", "regex"]

if TYPE_CHECKING:
    from dataclasses import dataclass
    from re import compile as regex
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        """Make a data class. Its `__init__` is compiled when the first object is made. Its other
        methods are functions shared by all data classes.
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, **options)
        own = {name for name, value in vars(cls).items() if value is not None}
        cls.__doc__ = cls.__doc__ or cls.__name__  # avoids computing a signature, which is slow
        made = with_fields(cls, init=False, repr=False, eq=False, **options)
        methods = {"__init__": _init_on_first_use(made, is_frozen=frozen), "__repr__": _repr}
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        if frozen:
            methods |= _FROZEN
        for name in methods.keys() - own:
            setattr(made, name, methods[name])
        return made

    class regex:
        """A regular expression that is compiled on first use."""

        def __init__(self, pattern, flags=0):
            self.pattern, self._flags = pattern, flags

        def __getattr__(self, name):
            value = getattr(re.compile(self.pattern, self._flags), name)
            setattr(self, name, value)  # makes later uses as fast as a compiled expression
            return value


def _init_on_first_use(cls: type, *, is_frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **named: Any) -> None:
        cls.__init__ = init = _compiled_init(cls, is_frozen=is_frozen)  # type: ignore[misc]
        init(self, *args, **named)

    return __init__


def _compiled_init(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """Return the `__init__` that the standard library would make."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_made": MISSING}
    parameters, by_name, lines = list[str](), list[str](), list[str]()
    for each in fields(cls):
        name, default, make = each.name, f"_default_{each.name}", f"_make_{each.name}"
        known |= {default: each.default, make: each.default_factory}
        has_default, is_made = each.default is not MISSING, each.default_factory is not MISSING
        value = f"{make}()" if is_made else default
        if each.init:
            ends = f" = {default}" if has_default else " = _made" if is_made else ""
            (by_name if each.kw_only else parameters).append(f"{name}{ends}")
            value = f"{value} if {name} is _made else {name}" if is_made else name
        elif not (has_default or is_made):
            continue
        lines.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = ", ".join(["self", *parameters, *(["*", *by_name] if by_name else [])])
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({given}):\n {body}", known)
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


@cache
def _values(cls: Any) -> Callable[[Any], object]:
    """Return a function that gets the compared fields of an object."""
    names = [each.name for each in fields(cls) if each.compare]
    return attrgetter(*names) if names else lambda _: ()


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values(self.__class__)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values(self.__class__)(self))


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_FROZEN = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}


_IMPORT = re.compile(r"^ +from (\.+)(\S*) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def names_on_demand(module: str, file: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module. It imports a name when it is first used. The names are
    those that `file` imports for type checkers, in indented lines.
    """

    @cache
    def places() -> dict[str, tuple[str, str]]:
        found = {}
        for dots, path, block, line in _IMPORT.findall(Path(file).read_text("utf-8")):
            for word in (block or line).replace("\n", " ").split(","):
                if words := word.split():
                    found[words[-1]] = f"{dots}{path}", words[0]
        return found

    def __getattr__(name: str) -> Any:
        if name not in places():
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, there = places()[name]
        package = module if Path(file).stem == "__init__" else module.rpartition(".")[0]
        found = import_module(place, package)
        if not hasattr(found, there):
            import_module(f".{there}", found.__name__)
        value = getattr(found, there)
        setattr(sys.modules[module], name, value)
        return value

    return __getattr__
