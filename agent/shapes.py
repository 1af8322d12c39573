"""The shapes a setting's value can have: how it is read from TOML, from text, and said in words."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

PRESET = "preset"  # the value of a key that leaves it to the preset of the policy

_MOST = 1_000_000_000
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")


class Shape(NamedTuple):
    """What a value may be. `wanted` says it in words. `read` turns a TOML value into the
    setting's value and `literal` the text of a variable or flag into a TOML value; both raise
    ValueError for one that does not fit. `none` is the word that stands for None, `words` are all
    that a value or an item of it can be, where these are words."""

    wanted: str
    read: Callable[[Any], Any]
    literal: Callable[[str], Any] = str
    none: str = ""
    words: tuple[str, ...] = ()


def matching(wanted: str, pattern: str, kind: Callable[[str], Any] = str) -> Shape:
    expression = re.compile(pattern)

    def read(value: Any) -> Any:
        if not isinstance(value, str) or not expression.fullmatch(value):
            raise ValueError(value)
        return kind(value)

    return Shape(wanted, read)


def whole(unit: str, least: int) -> Shape:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= _MOST:  # a bool is an int by descent
            raise ValueError(value)
        return value

    return Shape(f"a whole number of {unit}, {least} to {_MOST:_}", read, int)


def one_of(literal: Any) -> Shape:
    names: tuple[str, ...] = get_args(literal)

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(value)
        return str(value)

    wanted = "one of " + ", ".join(f'"{name}"' for name in names)
    return Shape(wanted, read, words=names)


def respelled(spell: Callable[[str], str], shape: Shape) -> Shape:
    """The shape, for a text as `spell` writes it."""

    def read(value: Any) -> Any:
        return shape.read(spell(value) if isinstance(value, str) else value)

    return shape._replace(read=read)


def many(item: Shape) -> Shape:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(value)
        return tuple(item.read(v) for v in value)

    def literal(text: str) -> list[Any]:
        if not text.startswith("["):
            return [text]
        import tomllib

        items: list[Any] = tomllib.loads(f"items = {text}")["items"]
        return items

    return Shape(f"a list, each item {item.wanted}", read, literal, words=item.words)


def including(item: str, shape: Shape) -> Shape:
    """The shape of a list that an item may not be missing from."""

    def read(value: Any) -> Any:
        items = shape.read(value)
        if item not in items:
            raise ValueError(value)
        return items

    return shape._replace(wanted=f'{shape.wanted}, and "{item}" among them', read=read)


def alternative(word: str, meaning: str | None, shape: Shape) -> Shape:
    """The shape, or `word` for `meaning`."""

    def read(value: Any) -> Any:
        return meaning if value == word else shape.read(value)

    def literal(text: str) -> Any:
        return word if text == word else shape.literal(text)

    none = word if meaning is None else shape.none
    return Shape(f'{shape.wanted}, or "{word}"', read, literal, none, shape.words)


def optional(word: str, shape: Shape) -> Shape:
    """The shape, or `word` for None."""
    return alternative(word, None, shape)


def or_preset(shape: Shape) -> Shape:
    """The shape, or "preset", which stands for itself."""
    return alternative(PRESET, PRESET, shape)


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _switch_literal(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "1", "false", "0"):
        raise ValueError(text)
    return word in ("true", "1")


def _read_threshold(value: Any) -> int | float:
    """Tokens are an int, a share of the window is a float."""
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        value = float(percent[1]) / 100
    if type(value) is int and 1 < value <= _MOST:
        return value
    if type(value) in (int, float) and 0 < value <= 1:
        return float(value)
    raise ValueError(value)


def _threshold_literal(text: str) -> str | int | float:
    if text.endswith("%"):
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


SWITCH = Shape("true or false", _read_switch, _switch_literal)
THRESHOLD = Shape(
    'a share of the window such as 0.93 or "93%", or a number of tokens above 1',
    _read_threshold,
    _threshold_literal,
)
