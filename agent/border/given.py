"""A JSON value of another program, read part by part. What cannot be used is left out and named."""

import json
from collections.abc import Iterator
from typing import Any

from ...tools.system.plural import count_of
from ...tools.system.shorten import one_line
from ..lazy import dataclass
from .values import JsonObject

MAX_PLACES = 5  # named per reason
MAX_PLACE_CHARS = 80


class Drops:
    """What was left out of a value or replaced, by reason. Each reason is said once."""

    def __init__(self) -> None:
        self._places = dict[str, list[str]]()

    def add(self, place: str, why: str) -> None:
        self._places.setdefault(why, []).append(one_line(place, MAX_PLACE_CHARS))

    def extend(self, other: "Drops") -> None:
        for why, places in other._places.items():
            self._places.setdefault(why, []).extend(places)

    def lines(self) -> list[str]:
        """Return one line per reason, with the places that it applies to."""
        return [f"{_listed(places)}: {why}" for why, places in self._places.items()]


def _listed(places: list[str]) -> str:
    shown = ", ".join(places[:MAX_PLACES])
    more = len(places) - MAX_PLACES
    return f"{shown} and {count_of(more, 'other')}" if more > 0 else shown


@dataclass(frozen=True, slots=True)
class Given:
    """A value and its place, such as `tools[3].name`. Parts of a wrong type are dropped."""

    value: Any
    place: str
    drops: Drops

    @property
    def object(self) -> JsonObject:
        """The value, {} if it is not an object."""
        return self.value if isinstance(self.value, dict) else {}

    def drop(self, why: str) -> None:
        """Name this value as left out or replaced."""
        self.drops.add(self.place, why)

    def at(self, key: str) -> "Given":
        """Return the part with this key; its value is None if it is missing."""
        return Given(self.object.get(key), f"{self.place}.{key}" if self.place else key, self.drops)

    def section(self, key: str) -> "Given":
        """Return the part with this key. Drop it if it is not an object."""
        part = self.at(key)
        if part.value is not None and not isinstance(part.value, dict):
            part.drop("it is not an object")
        return part

    def called(self, place: str) -> "Given":
        """Return the same value under another name for its place."""
        return Given(self.value, place, self.drops)

    def text(self, key: str, default: str = "") -> str:
        """Return a text, or the digits of a number. Drop any other value."""
        part = self.at(key)
        if isinstance(part.value, str):
            return part.value
        if isinstance(part.value, int | float) and not isinstance(part.value, bool):
            return str(part.value)
        if part.value is not None:
            part.drop("it is not a text")
        return default

    def flag(self, key: str) -> bool:
        """Return a flag, also given as "true" or 1. Drop any other value."""
        part = self.at(key)
        if isinstance(part.value, str) and part.value.lower() in ("true", "false"):
            return part.value.lower() == "true"
        if isinstance(part.value, bool | int):
            return bool(part.value)
        if part.value is not None:
            part.drop("it is not true or false")
        return False

    def items(self, key: str) -> Iterator["Given"]:
        """Yield the items of a list. A single object is a list of one. Drop any other value."""
        part = self.at(key)
        values = [part.value] if isinstance(part.value, dict) else part.value
        if isinstance(values, list):
            for number, value in enumerate(values):
                yield Given(value, f"{part.place}[{number}]", self.drops)
        elif values is not None:
            part.drop("it is not a list")


def as_json(value: Any) -> str:
    """Return a value as JSON, for a model or a person."""
    return json.dumps(value, ensure_ascii=False)
