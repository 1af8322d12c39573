"""Conversion to JSON and back: supported types survive the round trip, others are refused."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from ctxagent.agent.session.codec import Derived, from_json, signature, to_json
from ctxagent.agent.session.entries import Note, User


class Cache(Derived):
    """Numbers that were computed."""

    def __init__(self) -> None:
        self.seen: list[int] = []


@dataclass
class Point:
    x: int
    _y: int = 0


@dataclass
class Shape:
    name: str
    points: list[Point]
    centre: Point | None = None
    cache: Cache = field(default_factory=Cache, init=False, compare=False)


SHAPE = Shape("a", [Point(1, 2), Point(3)], Point(0, 0))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "a"), (int, 1), (int, 10**30), (bool, True), (Any, {"a": [1, None]}),
        (Literal["a", "b"], "a"), (str | None, None), (int | None, 3), (int | str, "a"),
        (Point, Point(1, 2)), (Point | None, None), (Point | None, Point(1)), (Shape, SHAPE),
        (tuple[int, str], (1, "a")), (tuple[int, Point], (1, Point(2))),
        (tuple[Point, ...], (Point(1), Point(2))), (tuple[int, ...], (2, 1)),
        (list[int], [2, 1]), (list[Point], [Point(1)]), (Sequence[int], [1]),
        (set[str], {"b", "a", "c"}), (frozenset[int], frozenset({3, 1})),
        (dict[str, int], {"b": 1, "a": 2}), (dict[str, Point], {"a": Point(1)}),
        (dict[int, str], {2: "b", 1: "a"}), (Mapping[int, Point], {1: Point(2)}),
        (dict[str, set[int]], {"a": {2, 1}}), (list[list[Point]], [[Point(1)]]),
        (User, User(content="a", seq=3, details={"b": [1]})),
        (dict[int, tuple[str, Point | None]], {1: ("\ud83d", Point(1)), 2: ("\0", None)}),
        (Shape, Shape("\udc80", [])),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_the_round_trip(kind: Any, value: Any) -> None:
    written = to_json(value)
    assert b"\n" not in written
    read = from_json(kind, written)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("name", ["a", "\udc80"])
def test_derived_values_are_not_written(name: str) -> None:
    shape = Shape(name, [])
    shape.cache.seen.append(1)
    assert from_json(Shape, to_json(shape)).cache.seen == []


@pytest.mark.parametrize("value", [1j, object(), Point, {"a": [object()]}])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        to_json(value)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (tuple[int, Point], b"[1]"), (Point, b"{}"), (Point, b'{"x": "1"}'), (Point, b'{"x": 1'),
        (Point, b""), (dict[str, Point], b'{"a": 1}'), (str, b'"\xff"'), (int, b"null"),
    ],
)  # fmt: skip
def test_other_data_is_an_error(kind: Any, data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of msgspec or json)
        from_json(kind, data)


def test_the_signature_changes_with_every_field() -> None:
    lines = signature(dict[str, Shape]).splitlines()
    names = [line.rpartition("Shape'>.")[2] for line in lines if "Shape'>." in line]
    assert [name.partition(":")[0] for name in names] == ["name", "points", "centre", "cache"]
    assert any("Point'>._y: <class 'int'>" in line for line in lines)
    assert len(lines) == len(set(lines)) == 2 + 4 + 2
    assert signature(int) == ""
    assert signature(Point) != signature(Shape)
    assert signature(Note)
