"""JSON values of any shape."""

from typing import Any

import pytest

from ctxagent.agent.border.values import (
    MAX_JSON_DEPTH,
    as_arguments,
    as_count,
    as_seconds,
    is_too_deep,
    parse_json,
    plain_text,
    without_surrogates,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_depth_counts_levels_of_lists_and_objects() -> None:
    assert not is_too_deep(nested(MAX_JSON_DEPTH))
    assert is_too_deep(nested(MAX_JSON_DEPTH + 1))
    assert is_too_deep({"a": nested(3)}, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "too deep"),
        ("[" * 200 + "]" * 200, "too deep"),
        ("{", "Expecting"),
        ("", "Expecting"),
    ],
)
def test_a_text_that_is_no_json_or_too_deep_is_an_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)


def test_lone_surrogates_are_replaced_in_values_and_keys() -> None:
    assert parse_json(r'{"\ud83d": ["a\udc00", "\ud83d\ude00"]}') == {"\ufffd": ["a\ufffd", "😀"]}
    assert without_surrogates(["\ud800", 1, None]) == ["\ufffd", 1, None]


def test_values_of_a_wrong_type_become_empty() -> None:
    assert [as_count(each) for each in (3, -1, True, "3", 2**60)] == [3, 0, 0, 0, 0]
    assert [as_seconds(each) for each in ("x", None, True, float("nan"), [])] == [None] * 5
    assert as_seconds(1_700_000_000_000) == as_seconds("2023-11-14T22:13:20") == 1_700_000_000
    assert [as_arguments(each) for each in (None, '{"a": 1}', "x", 3)] == [
        {}, {"a": 1}, {"input": "x"}, {"input": 3},
    ]  # fmt: skip


def test_the_text_of_blocks() -> None:
    blocks = ["a", {"text": "b"}, {"type": "image", "data": "…"}, {"kind": 1}, None]
    assert plain_text(blocks) == 'a\nb\n[image]\n{"kind": 1}\n'
