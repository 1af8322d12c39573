"""Edit with `lines`: which lines are replaced, and which ranges are refused."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.edit import EditParams, EditTool
from ctxagent.tools.offered import Offered
from ctxagent.tools.read import ReadParams, ReadTool


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(cwd=tmp_path)


def read(context: Context) -> None:
    asyncio.run(ReadTool().run(ReadParams(path="a"), context))


def edit(context: Context, lines: int | str, old: str, new: str) -> Output:
    params = EditParams(path="a", lines=lines, old_string=old, new_string=new)
    return asyncio.run(EditTool().run(params, context))


def refusal(context: Context, lines: int | str, old: str, new: str = "new") -> str:
    with pytest.raises(ToolError) as caught:
        edit(context, lines, old, new)
    return str(caught.value)


def lines_of(*numbers: int) -> str:
    return "".join(f"line {n}\n" for n in numbers)


@pytest.mark.parametrize(
    ("lines", "old", "new", "after"),
    [
        ("2-4", "line 2\nline 4", "two\nfour", "line 1\ntwo\nfour\nline 5\n"),
        ("2-4", "line 2\nline 4\n", "two\n", "line 1\ntwo\nline 5\n"),
        ("2-4", "line 2\nline 3\nline 4", "two\n\n", "line 1\ntwo\n\nline 5\n"),
        ("2 - 4", "line 2\nline 4", "", "line 1\nline 5\n"),
        ("3", "line 3", "\n", "line 1\nline 2\n\nline 4\nline 5\n"),
        (3, "line 3\n", "3", "line 1\nline 2\n3\nline 4\nline 5\n"),
        ("4-5", "line 4\nline 5", "", "line 1\nline 2\nline 3\n"),
        ("1-5", "line 1\nline 5", "all", "all\n"),
    ],
)
def test_the_lines_are_replaced(
    context: Context, tmp_path: Path, lines: int | str, old: str, new: str, after: str
) -> None:
    (tmp_path / "a").write_text(lines_of(*range(1, 6)))
    read(context)
    params = EditParams(path="a", lines=lines, old_string=old, new_string=new)
    preview = asyncio.run(EditTool().preview(params, context))
    output = edit(context, lines, old, new)
    assert preview == {"diff": output.details["diff"]}
    assert EditTool().title(params) == f"a:{lines}"
    assert (tmp_path / "a").read_text() == after
    assert output.text.startswith("Edited a (+")
    assert output.details["diff"].startswith("--- a/a\n+++ b/a\n@@ ")


def test_line_ends_and_a_missing_last_one_are_kept(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\n\r\nthree\r\nfour")
    read(context)
    edit(context, "1-2", "one\n", "1\n2")
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\nthree\r\nfour"
    edit(context, "3-4", "three\nfour", "3\n4\n5")
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\n3\r\n4\r\n5"


def test_a_stale_range_is_refused_with_what_is_there_now(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(lines_of(*range(1, 9)))
    read(context)
    edit(context, "1", "line 1", "a\nb\nc")
    told = refusal(context, "4-5", "line 4\nline 5")
    assert told == (
        "Lines 4-5 of a differ from old_string. Nothing was changed. Now there:\n4\tline 2\n"
        "5\tline 3\nThe lines of old_string are lines 6-7 now."
    )
    assert "has 10 lines, so there are no lines 9-11" in refusal(context, "9-11", "line 7\nline 9")
    assert (tmp_path / "a").read_text() == "a\nb\nc\n" + lines_of(*range(2, 9))


def test_lines_that_occur_again_are_refused(context: Context, tmp_path: Path) -> None:
    """The first range could be a stale name for the second one."""
    (tmp_path / "a").write_text("if x:\n    a\nend\nif x:\n    b\nend\n")
    read(context)
    assert "same first and last line also in lines 4-6" in refusal(context, "1-3", "if x:\nend")
    edit(context, "1-3", "if x:\n    a\nend", "c")
    assert (tmp_path / "a").read_text() == "c\nif x:\n    b\nend\n"


def test_the_file_must_have_been_seen_as_it_is(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    assert "Read it first, or leave lines out" in refusal(context, "1", "one")
    read(context)
    (tmp_path / "a").write_text("one\nTWO\n")
    assert "has changed on disk since you saw it" in refusal(context, "1", "one")
    read(context)
    edit(context, "1", "one", "1")
    edit(context, "2", "TWO", "2")  # what the model wrote, it has seen
    assert (tmp_path / "a").read_text() == "1\n2\n"
    context.offered = Offered(lambda: ("Edit",))
    assert "Read" not in refusal(Context(cwd=tmp_path, offered=context.offered), "1", "1")


def test_meaningless_ranges_are_refused(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\nfour\n")
    read(context)
    for wrong in ("0-1", "3-2", "two", "", "1,2", -1):
        assert "such as 12-40" in refusal(context, wrong, "one")
    assert "the first and the last of these lines, not 3" in refusal(context, "1-4", "one\ntwo\n3")
    assert "Leave the line numbers and the tab out" in refusal(context, "1-2", "1\tone\n2\ttwo")
    assert "nothing to change" in refusal(context, "1-2", "one\ntwo", "one\ntwo\n")
    params = EditParams(path="a", lines="1", old_string="one", new_string="1", replace_all=True)
    with pytest.raises(ToolError, match="Leave replace_all out"):
        asyncio.run(EditTool().preview(params, context))
    assert (tmp_path / "a").read_text() == "one\ntwo\nthree\nfour\n"


ROWS = st.lists(st.sampled_from(["a", "b", "", "}"]), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(ROWS, ROWS, st.booleans(), st.data())
def test_a_stale_range_changes_nothing(
    meant: list[str], other: list[str], grows: bool, data: st.DataObject
) -> None:
    """The model reads a file, adds or deletes lines above those that it means, and then names them
    by their old numbers.
    """
    first, last = sorted(data.draw(st.tuples(*[st.integers(1, len(meant))] * 2)))
    long, short = ("\n".join(["top", *rows, "mark"]) for rows in (other, []))
    above, changed = (short, long) if grows else (long, short)
    shift = above.count("\n") + 1
    with TemporaryDirectory() as folder:
        context, path = Context(cwd=Path(folder)), Path(folder, "a")
        path.write_text("\n".join([above, *meant, "end"]) + "\n")
        read(context)
        params = EditParams(path="a", old_string=above, new_string=changed)
        asyncio.run(EditTool().run(params, context))
        before = path.read_text()
        old = "\n".join(meant[n - 1] for n in sorted({first, last}))
        with pytest.raises(ToolError):
            edit(context, f"{first + shift}-{last + shift}", old, "NEW")
        assert path.read_text() == before
