"""JSON files of people and other programs."""

import json
from typing import Any

import pytest

from ctxagent.agent.border.values import read_object

VALUE = {"a": ["// no comment", "x,]"], "b": {"c": '"/*'}}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(VALUE).encode(),
        json.dumps(VALUE).encode("utf-8-sig"),
        json.dumps(VALUE).encode("utf-16"),
        b"""{ // the first line
            "a": ["// no comment", "x,]",],  /* a comma
            too many */
            "b": {"c": "\\"/*",}, // the last
        }""",
    ],
)
def test_an_object_is_read_from_files_of_any_habit(data: bytes) -> None:
    assert read_object(data) == VALUE


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "Expecting"),
        (b'{"a": 1} // x\n}', "Extra data"),
        (b"[1]", "it is not an object"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xff", "codec can't decode"),
    ],
)
def test_what_is_no_object_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_object(data)


def test_half_of_a_character_is_replaced() -> None:
    found: Any = read_object(b'{"a": "x\\ud83d"}')
    assert found == {"a": "x\ufffd"}
