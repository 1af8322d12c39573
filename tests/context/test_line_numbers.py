"""Line numbers of files that were read are left out of the view; the log keeps them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.context.items import UNNUMBERED, unnumbered, without_line_numbers
from ctxagent.tools.base import Context
from ctxagent.tools.read import ReadTool

from ..support.sessions.history import History

LINES = st.lists(st.text(st.characters(exclude_characters="\n\r")), min_size=3, max_size=12)
FORMS = st.sampled_from(["{n}\t", "{n:>6}→"])


def read(folder: Path, **given: Any) -> str:
    tool = ReadTool()
    params = tool.Params.model_validate(given)
    return asyncio.run(tool.run(params, Context(cwd=folder))).text


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n\treturn 1\n\n\n    # 4\tis here\n")
    text = read(tmp_path, path="a.py")
    assert text.startswith("1\tdef f():\n2\t\treturn 1\n3\t\n")
    assert without_line_numbers(text) == "def f():\n\treturn 1\n\n\n    # 4\tis here"


def test_a_page_says_where_it_begins_and_keeps_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 30)))
    text = read(tmp_path, path="a.txt", offset=8, limit=3)
    assert without_line_numbers(text) == (
        "[from line 8]\nline 8\nline 9\nline 10\n[lines 8-10 of 29; go on with offset=11]"
    )


@given(lines=LINES, form=FORMS, first=st.integers(1, 5_000))
def test_any_text_in_any_form(lines: list[str], form: str, first: int) -> None:
    numbered = "\n".join(form.format(n=n) + line for n, line in enumerate(lines, first))
    told = [] if first == 1 else [f"[from line {first}]"]
    assert without_line_numbers(numbered) == "\n".join([*told, *lines])


@given(lines=LINES)
def test_headings_and_notes_around_the_lines_stay(lines: list[str]) -> None:
    numbered = [f"{n}: {line}" for n, line in enumerate(lines, 1)]
    text = "\n".join(["<path>a</path>", "<content>", *numbered, "</content>"])
    expected = "\n".join(["<path>a</path>", "<content>", *lines, "</content>"])
    assert without_line_numbers(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no numbers\n" * 20,
        "1\ta\n2\tb",  # too few
        "id\tname\n1\ta\n2\tb\n3\tc",  # a table
        "1: a\n2: b\n3: c",  # a list
        "1\ta\n3\tb\n4\tc",  # not consecutive
        "<c>\n12: a\n13:b\n14: c",  # another form after the first line
        "<c>\n1: a\n2: b\n3: c\n4:d",  # the last number in another form
        "heading\n" * 9 + "1\ta\n2\tb\n3\tc",  # too late
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_line_numbers(text) is None


def test_only_the_view_leaves_them_out() -> None:
    text = "1\ta\n2\tb\n3\tc"
    history = History()
    history.say("go")
    plain = history.call("Read", {"path": "a"}, text, details=unnumbered("Read", text))
    as_read = history.call("Read", {"path": "a"}, text)
    view = history.view()
    shown = [result.block["content"] for result in view.results()]
    assert shown == ["a\nb\nc", text]
    assert [view.is_unnumbered(result.item) for result in view.results()] == [True, False]
    logged = {entry.seq: entry for entry in history.entries}
    assert logged[plain].content == logged[as_read].content == text


def test_a_command_that_numbers_lines_keeps_them() -> None:
    text = "1\ta\n2\tb\n3\tc"
    assert unnumbered("Read", text) == {UNNUMBERED: True}
    assert unnumbered("Bash", text) == unnumbered("Read", "abc") == {}
