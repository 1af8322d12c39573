"""Conversion to plain JSON and back: supported types survive the round trip, others are refused."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from ctxagent.agent.session.codec import codec, from_json, signature, to_json
from ctxagent.agent.session.entries import Note, User


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Shape:
    name: str
    points: list[Point]
    centre: Point | None = None
    sides: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.sides = len(self.points)


SHAPE = Shape("a", [Point(1, 2), Point(3)], Point(0, 0))


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (str, "a", "a"), (int, 1, 1), (bool, True, True), (Any, {"a": 1}, {"a": 1}),
        (Literal["a", "b"], "a", "a"), (str | None, None, None), (int | None, 3, 3),
        (int | str, "a", "a"), (Point, Point(1, 2), [1, 2]), (Point | None, None, None),
        (Point | None, Point(1), [1, 0]), (Shape, SHAPE, ["a", [[1, 2], [3, 0]], [0, 0]]),
        (tuple[int, str], (1, "a"), [1, "a"]), (tuple[int, Point], (1, Point(2)), [1, [2, 0]]),
        (tuple[Point, ...], (Point(1), Point(2)), [[1, 0], [2, 0]]),
        (tuple[int, ...], (2, 1), [2, 1]),
        (list[int], [2, 1], [2, 1]), (list[Point], [Point(1)], [[1, 0]]),
        (Sequence[int], [1], [1]),
        (set[str], {"b", "a", "c"}, ["a", "b", "c"]), (frozenset[int], frozenset({3, 1}), [1, 3]),
        (dict[str, int], {"b": 1, "a": 2}, {"b": 1, "a": 2}),
        (dict[str, Point], {"a": Point(1)}, {"a": [1, 0]}),
        (dict[int, str], {2: "b", 1: "a"}, [[2, "b"], [1, "a"]]),
        (Mapping[int, Point], {1: Point(2)}, [[1, [2, 0]]]),
        (dict[str, set[int]], {"a": {2, 1}}, {"a": [1, 2]}),
        (list[list[Point]], [[Point(1)]], [[[1, 0]]]),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_the_round_trip(kind: Any, value: Any, data: Any) -> None:
    written = to_json(kind, value)
    assert written == data
    read = from_json(kind, json.loads(json.dumps(written)))
    assert read == value
    assert type(read) is type(value)


def test_an_entry_is_its_line_of_the_log() -> None:
    entry = User(content="a", seq=3)
    written = to_json(User, entry)
    assert (written["kind"], written["content"], written["seq"]) == ("user", "a", 3)
    assert from_json(User, json.loads(json.dumps(written))) == entry


def test_derived_fields_are_recomputed() -> None:
    assert from_json(Shape, to_json(Shape, SHAPE)).sides == 2


@pytest.mark.parametrize(
    "kind", [bytes, complex, object, dict[float, int], Point | Shape, int | Point, list[bytes]]
)
def test_other_types_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError):
        codec(kind)


def test_data_of_another_length_is_an_error() -> None:
    for kind, data in ((tuple[int, Point], [1]), (Point, [1, 2, 3]), (Point, [1])):
        with pytest.raises(ValueError, match="zip"):
            from_json(kind, data)


def test_the_signature_changes_with_every_field() -> None:
    lines = signature(dict[str, Shape]).splitlines()
    names = [line.rpartition("Shape'>.")[2] for line in lines if "Shape'>." in line]
    assert [name.partition(":")[0] for name in names] == ["name", "points", "centre"]
    assert any("Point'>.y: <class 'int'>" in line for line in lines)
    assert len(lines) == len(set(lines)) == 2 + 3 + 2
    assert signature(int) == ""
    assert signature(Point) != signature(Shape)
    assert signature(Note)
