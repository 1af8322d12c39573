"""Values of other programs, read part by part."""

from ctxagent.agent.border.values import Drops, Given


def given(value: object) -> tuple[Given, Drops]:
    drops = Drops()
    return Given(value, "", drops), drops


def test_parts_of_the_right_type_are_read_without_a_note() -> None:
    value, drops = given({"a": "x", "n": 3, "yes": "TRUE", "one": 1, "list": [1], "item": {"k": 2}})
    assert (value.text("a"), value.text("n"), value.text("none", "d")) == ("x", "3", "d")
    assert (value.flag("yes"), value.flag("one"), value.flag("none")) == (True, True, False)
    assert [(part.value, part.place) for part in value.items("list")] == [(1, "list[0]")]
    assert [part.value for part in value.items("item")] == [{"k": 2}]
    assert [*value.items("none")] == []
    assert drops.lines() == []


def test_parts_of_a_wrong_type_are_dropped_and_named() -> None:
    value, drops = given({"a": ["x"], "f": "maybe", "list": 5, "in": {"b": {}}})
    assert (value.text("a", "d"), value.flag("f"), [*value.items("list")]) == ("d", False, [])
    assert value.section("in").text("b") == ""
    assert value.section("list").object == {}
    assert drops.lines() == [
        "a, in.b: it is not a text",
        "f: it is not true or false",
        "list: it is not a list",
        "list: it is not an object",
    ]


def test_a_value_that_is_no_object_has_no_parts() -> None:
    value, drops = given([1])
    assert (value.object, value.text("a"), value.at("b").at("c").value) == ({}, "", None)
    assert drops.lines() == []


def test_a_reason_is_said_once_with_its_first_places() -> None:
    drops, more = Drops(), Drops()
    for number in range(8):
        (drops if number < 6 else more).add(f"p{number}", "wrong")
    more.add("q", "other")
    drops.extend(more)
    assert drops.lines() == ["p0, p1, p2, p3, p4 and 3 others: wrong", "q: other"]
