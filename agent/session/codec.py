"""Convert values to JSON and back, based only on their field types.

msgspec does the work. It is imported only when there is something to convert: 3 ms. `signature`
changes with every field and type.
"""

import json
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints


class Derived:
    """A value that is computed again from others. It is written as null and read as a new one."""

    __slots__ = ()


def to_json(value: Any) -> bytes:
    """Return a value as JSON. Raises TypeError for a value that cannot be converted."""
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=_written)
    except UnicodeEncodeError:  # lone surrogates have no UTF-8, but JSON can escape them
        return json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_written)).encode()


def from_json(kind: Any, data: bytes) -> Any:
    """Return the value that `to_json` wrote for this type. Raises ValueError for other data."""
    import msgspec

    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_read)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(data), kind, str_keys=True, dec_hook=_read)


def _written(value: Any) -> None:
    if not isinstance(value, Derived):
        raise TypeError(f"{type(value)} cannot be converted")


def _read(kind: type, _: object) -> Any:
    if not issubclass(kind, Derived):
        raise TypeError(f"{kind} cannot be converted")
    return kind()


def signature(kind: Any) -> str:
    """List the fields and types of a dataclass and of all dataclasses inside it."""
    lines: dict[str, None] = {}
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        if is_dataclass(part) and str(part) not in lines:
            hints = get_type_hints(part)
            lines[str(part)] = None
            kept = [each.name for each in fields(part)]
            lines |= {f"{part}.{name}: {hints[name]}": None for name in kept}
            waiting += [hints[name] for name in kept]
        waiting += get_args(part)
    return "\n".join(lines)
