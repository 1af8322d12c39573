"""Codec: values as plain JSON and back, by the types of their fields alone.

A dataclass is a list of its fields in their order, a set a sorted list, a mapping whose keys are
numbers a list of pairs; entries are as in their line of the log. What is already JSON stays as it
is. A type that none of this can keep is refused when it is first met, so that a new field is kept
or seen to be missing, never lost. `signature` changes with every field and type.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from .entries import Entry, decode, encode

_PLAIN = (str, int, float, bool, type(None), Any)


class Codec(NamedTuple):
    """How values of one type are written and read. None for what is JSON as it is."""

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None


_AS_IT_IS = Codec(None, None)


def to_json(kind: Any, value: Any) -> Any:
    """A value of this type as plain JSON, which may share parts of it."""
    write = codec(kind).write
    return write(value) if write else value


def from_json(kind: Any, data: Any) -> Any:
    """The value that was written. What was not written as this type makes no sense, or an error of
    any kind."""
    read = codec(kind).read
    return read(data) if read else data


def signature(kind: Any) -> str:
    """The fields of a dataclass, and of all those in it, with their types."""
    told: dict[str, None] = {}
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if is_dataclass(one) and str(one) not in told:
            hints = get_type_hints(one)
            told[str(one)] = None
            told |= {f"{one}.{each.name}: {hints[each.name]}": None for each in fields(one)}
            waiting += [hints[each.name] for each in fields(one)]
        waiting += get_args(one)
    return "\n".join(told)


@cache
def codec(kind: Any) -> Codec:
    """Raises TypeError for a type that cannot be kept."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN or origin is Literal:
        return _AS_IT_IS
    if origin in (types.UnionType, Union):
        return _optional(inner)
    if isinstance(kind, type) and issubclass(kind, Entry):
        return Codec(encode, decode)
    if is_dataclass(kind):
        return _record(kind)
    if origin is tuple and inner[-1:] != (...,):
        return _row(inner)
    if origin in (list, Sequence, set, frozenset, tuple):
        return _many(list if origin is Sequence else origin, codec(inner[0]))
    if origin in (dict, Mapping):
        return _mapping(inner[0], codec(inner[1]))
    raise TypeError(f"{kind} cannot be kept")


def _optional(inner: tuple[Any, ...]) -> Codec:
    parts = [codec(each) for each in inner if each is not type(None)]
    if all(part == _AS_IT_IS for part in parts):
        return _AS_IT_IS
    if len(parts) > 1:
        raise TypeError(f"{inner}: which of them a value is cannot be told")
    write, read = parts[0]
    assert write is not None
    assert read is not None
    return Codec(
        lambda value: None if value is None else write(value),
        lambda data: None if data is None else read(data),
    )


def _record(kind: Any) -> Codec:
    hints = get_type_hints(kind)
    parts = [(each.name, *codec(hints[each.name])) for each in fields(kind)]

    def write_record(value: Any) -> list[Any]:
        return [
            write(getattr(value, name)) if write else getattr(value, name)
            for name, write, _ in parts
        ]

    def read_record(data: Any) -> Any:
        return kind(
            *(read(one) if read else one for (_, _, read), one in zip(parts, data, strict=True))
        )

    return Codec(write_record, read_record)


def _row(inner: tuple[Any, ...]) -> Codec:
    parts = [codec(each) for each in inner]
    return Codec(
        lambda row: [_put(part.write, one) for part, one in zip(parts, row, strict=True)],
        lambda data: tuple(_put(part.read, one) for part, one in zip(parts, data, strict=True)),
    )


def _many(kind: Any, each: Codec) -> Codec:
    if kind is list and each == _AS_IT_IS:
        return _AS_IT_IS
    order = sorted if kind in (set, frozenset) else list
    return Codec(
        lambda values: [_put(each.write, one) for one in order(values)],
        lambda data: kind(_put(each.read, one) for one in data),
    )


def _mapping(key: Any, each: Codec) -> Codec:
    if key is str and each == _AS_IT_IS:
        return _AS_IT_IS
    if key is str:
        return Codec(
            lambda values: {name: _put(each.write, one) for name, one in values.items()},
            lambda data: {name: _put(each.read, one) for name, one in data.items()},
        )
    if key is not int:
        raise TypeError(f"a mapping by {key} cannot be kept")
    return Codec(
        lambda values: [[number, _put(each.write, one)] for number, one in values.items()],
        lambda data: {number: _put(each.read, one) for number, one in data},
    )


def _put(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return convert(value) if convert else value
