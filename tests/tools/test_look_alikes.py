"""Edits whose old text differs from the file only by characters that look the same."""

import asyncio
from pathlib import Path

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context
from ctxagent.tools.edit import EditParams, EditTool
from ctxagent.tools.look_alikes import MAX_PAIRS, look_alikes, with_characters_of


def edit(folder: Path, old: str, new: str, *, replace_all: bool = False) -> str:
    params = EditParams(path="a", old_string=old, new_string=new, replace_all=replace_all)
    return asyncio.run(EditTool().run(params, Context(cwd=folder))).text


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "named"),
    [
        ("it’s “quoted”\n", "it's \"quoted\"", "it's \"said\"", "it’s “said”\n",
         "U+2019 (right single quotation mark) in the file"),
        ("a\u00a0b\n", "a b", "a b c", "a\u00a0b c\n", "U+00A0 (no-break space) in the file"),
        ("x – y\n", "x - y", "x - z", "x – z\n", "U+2013 (en dash) in the file"),
        ("a\u200bb c\n", "ab c", "ab d", "a\u200bb d\n", "U+200B (zero width space) in the file"),
        ("say 'x'\n", "say ‘x’", "say ‘y’", "say 'y'\n",
         "U+2018 (left single quotation mark) in old_string"),
        ("ｆ（１）\n", "f(1)", "f(2)", "ｆ（2）\n", "U+FF46 (fullwidth latin small letter f)"),
        ("one\r\ntwo\u3000x\r\n", "one\ntwo x", "one\n2 x", "one\r\n2\u3000x\r\n", "U+3000"),
    ],
)  # fmt: skip
def test_a_single_text_that_looks_the_same_is_edited_and_keeps_its_characters(
    tmp_path: Path, before: str, old: str, new: str, after: str, named: str
) -> None:
    (tmp_path / "a").write_text(before, newline="")
    assert named in edit(tmp_path, old, new)
    assert (tmp_path / "a").read_bytes().decode() == after


def test_several_texts_that_look_the_same_are_named_and_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("it’s a\nit’s a\n")
    with pytest.raises(ToolError, match=r"other characters: U\+2019 .* From line 1 on:"):
        edit(tmp_path, "it's", "it is")
    with pytest.raises(ToolError, match=r"U\+2019"):
        edit(tmp_path, "it's", "it is", replace_all=True)
    assert (tmp_path / "a").read_text() == "it’s a\nit’s a\n"


def test_an_equal_text_wins_over_one_that_looks_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("it’s it's\n")
    assert "U+" not in edit(tmp_path, "it's", "it is")
    assert (tmp_path / "a").read_text() == "it’s it is\n"


@pytest.mark.parametrize("old", ["а", "e\u0301", "...", " ", "\u200b"])
def test_other_characters_are_different_texts(old: str) -> None:
    assert look_alikes("a é … \u00a0\n", old, 3) == []


def test_long_texts_are_not_compared() -> None:
    half = "x" * (MAX_PAIRS // 1_000)
    assert with_characters_of(half, half, "y" * 1_000) is not None
    assert with_characters_of(half, half, "y" * 1_001) is None
