"""Convert values to plain JSON and back, based only on their field types.

A dataclass becomes a list of its fields in order, and a set a sorted list. A mapping with integer
keys becomes a list of pairs, and an entry its log line. JSON values stay unchanged. An unsupported
type raises TypeError when its codec is built, so a new field cannot be lost silently. `signature`
changes with every field and type.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from .entries import Entry, decode, encode

_PLAIN = (str, int, float, bool, type(None), Any)


class Codec(NamedTuple):
    """The functions that write and read values of one type; None for values that are JSON
    already.
    """

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None


_UNCONVERTED = Codec(None, None)


def to_json(kind: Any, value: Any) -> Any:
    """Return a value of this type as plain JSON. The result may share parts with the value."""
    write = codec(kind).write
    return write(value) if write else value


def from_json(kind: Any, data: Any) -> Any:
    """Return the value that `to_json` wrote for this type. Other data gives a wrong value or any
    exception.
    """
    read = codec(kind).read
    return read(data) if read else data


def signature(kind: Any) -> str:
    """List the fields and types of a dataclass and of all dataclasses inside it."""
    lines: dict[str, None] = {}
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        if is_dataclass(part) and str(part) not in lines:
            hints = get_type_hints(part)
            lines[str(part)] = None
            kept = [each.name for each in fields(part) if each.init]
            lines |= {f"{part}.{name}: {hints[name]}": None for name in kept}
            waiting += [hints[name] for name in kept]
        waiting += get_args(part)
    return "\n".join(lines)


@cache
def codec(kind: Any) -> Codec:
    """Return the codec of a type. Raises TypeError for a type that cannot be converted."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN or origin is Literal:
        return _UNCONVERTED
    if origin in (types.UnionType, Union):
        return _optional(inner)
    if isinstance(kind, type) and issubclass(kind, Entry):
        return Codec(encode, decode)
    if is_dataclass(kind):
        return _dataclass(kind)
    if origin is tuple and inner[-1:] != (...,):
        return _fixed_tuple(inner)
    if origin in (list, Sequence, set, frozenset, tuple):
        return _collection(list if origin is Sequence else origin, codec(inner[0]))
    if origin in (dict, Mapping):
        return _mapping(inner[0], codec(inner[1]))
    raise TypeError(f"{kind} cannot be converted")


def _optional(inner: tuple[Any, ...]) -> Codec:
    parts = [codec(each) for each in inner if each is not type(None)]
    if all(part == _UNCONVERTED for part in parts):
        return _UNCONVERTED
    if len(parts) > 1:
        raise TypeError(f"{inner}: the type of a value is ambiguous")
    write, read = parts[0]
    assert write is not None
    assert read is not None
    return Codec(
        lambda value: None if value is None else write(value),
        lambda data: None if data is None else read(data),
    )


def _dataclass(kind: Any) -> Codec:
    hints = get_type_hints(kind)
    # Fields that are not init arguments are recomputed from the others.
    parts = [(each.name, *codec(hints[each.name])) for each in fields(kind) if each.init]

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


def _fixed_tuple(inner: tuple[Any, ...]) -> Codec:
    parts = [codec(each) for each in inner]
    return Codec(
        lambda row: [_convert(part.write, one) for part, one in zip(parts, row, strict=True)],
        lambda data: tuple(_convert(part.read, one) for part, one in zip(parts, data, strict=True)),
    )


def _collection(kind: Any, each: Codec) -> Codec:
    if kind is list and each == _UNCONVERTED:
        return _UNCONVERTED
    order = sorted if kind in (set, frozenset) else list
    return Codec(
        lambda values: [_convert(each.write, one) for one in order(values)],
        lambda data: kind(_convert(each.read, one) for one in data),
    )


def _mapping(key: Any, each: Codec) -> Codec:
    if key is str and each == _UNCONVERTED:
        return _UNCONVERTED
    if key is str:
        return Codec(
            lambda values: {name: _convert(each.write, one) for name, one in values.items()},
            lambda data: {name: _convert(each.read, one) for name, one in data.items()},
        )
    if key is not int:
        raise TypeError(f"a mapping by {key} cannot be converted")
    return Codec(
        lambda values: [[number, _convert(each.write, one)] for number, one in values.items()],
        lambda data: {number: _convert(each.read, one) for number, one in data},
    )


def _convert(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return convert(value) if convert else value
