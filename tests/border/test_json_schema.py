"""Schemas of other programs."""

from typing import Any

import pytest

from ctxagent.agent.border.values import Drops, Given, sendable_schema, usable_schema

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("sent", "usable", "notes"),
    [
        ({"type": "object", "x": 1}, {"type": "object", "x": 1}, 0),
        ({"properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}, 0),
        ({"anyOf": [{}]}, {"type": "object", "anyOf": [{}]}, 0),
        ({"type": ["object", "null"]}, {"type": "object"}, 0),
        ({"$schema": 7}, {"type": "object"}, 0),
        (None, {"type": "object"}, 1),
        ("object", {"type": "object"}, 1),
        ({"type": "string"}, {"type": "object"}, 1),
        ({"properties": ["a"]}, {"type": "object", "properties": {}}, 1),
        ({"properties": None}, {"type": "object", "properties": {}}, 0),
        (
            {"properties": {"a": "string", "b": True}},
            {"type": "object", "properties": {"a": {}, "b": True}},
            1,
        ),
        ({"required": ["a", 1]}, {"type": "object", "required": ["a"]}, 1),
        ({"required": True}, {"type": "object", "required": []}, 1),
    ],
)
def test_a_schema_of_any_form_becomes_one_of_an_object(
    sent: Any, usable: dict[str, Any], notes: int
) -> None:
    drops = Drops()
    assert usable_schema(Given(sent, "tool t", drops)) == usable
    assert len(drops.lines()) == notes


def test_a_schema_in_a_request_has_only_what_every_api_accepts() -> None:
    sent = {
        "type": "object",
        "anyOf": [{"required": ["a"]}],
        "properties": {
            "type": {"type": "int"},
            "list": {"type": "array", "items": {"type": ["string", "text"]}},
            "either": {"anyOf": [{"type": "file"}, STRING]},
            "any": True,
        },
    }
    assert sendable_schema(sent) == {
        "type": "object",
        "properties": {
            "type": {},
            "list": {"type": "array", "items": {}},
            "either": {"anyOf": [{}, STRING]},
            "any": True,
        },
    }
