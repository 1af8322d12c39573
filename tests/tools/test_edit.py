"""Edit: matching, unchanged parts of a file, and messages for a failed call."""

import asyncio
import json
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.edit import EditParams, EditTool
from ctxagent.tools.offered import Offered
from ctxagent.tools.read import ReadParams, ReadTool
from ctxagent.tools.text import Form, NotText, decode, encode, line_end, recognise


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(cwd=tmp_path)


def edit(context: Context, old: str, new: str, path: str = "a", every: bool = False) -> Output:
    params = EditParams(path=path, old_string=old, new_string=new, replace_all=every)
    return asyncio.run(EditTool().run(params, context))


def refusal(context: Context, old: str, new: str = "new", path: str = "a") -> str:
    with pytest.raises(ToolError) as caught:
        edit(context, old, new, path)
    return str(caught.value)


def test_one_match_is_replaced(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    output = edit(context, "line 10\n", "ten\nand a half\n")
    assert (tmp_path / "a").read_text().splitlines()[8:12] == [
        "line 9", "ten", "and a half", "line 11",
    ]  # fmt: skip
    shown = ["line 7", "line 8", "line 9", "ten", "and a half", "line 11", "line 12", "line 13"]
    numbered = "\n".join(f"{n}\t{line}" for n, line in enumerate(shown, 7))
    assert output.text == f"Edited a (+2 -1):\n{numbered}"
    assert output.details["diff"].startswith("--- a/a\n+++ b/a\n@@ -7,7 +7,8 @@\n line 7\n")
    assert output.details["path"] == str(tmp_path / "a")
    assert (output.details["added"], output.details["removed"]) == (2, 1)


def test_edits_may_follow_each_other(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one two\n")
    edit(context, "one", "1")
    edit(context, "two", "2")
    assert (tmp_path / "a").read_text() == "1 2\n"


def test_all_matches(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x = 1\ny = x\nz = x\n")
    output = edit(context, "x", "long", every=True)
    assert (tmp_path / "a").read_text() == "long = 1\ny = long\nz = long\n"
    assert output.text.startswith("Edited a (+3 -3), 3 replacements; the first:\n1\tlong = 1\n")
    assert output.details["replacements"] == 3


@pytest.mark.parametrize(
    ("text", "old", "new", "every"),
    [
        ("started\n", "started", "started\ndone", False),
        ("import b\n", "import b", "import a\nimport b", False),
        ("x = 1\ny = x\n", "x", "x_new", True),
    ],
)
def test_an_addition_is_not_made_twice(
    context: Context, tmp_path: Path, text: str, old: str, new: str, every: bool
) -> None:
    """A small model repeats a call that has succeeded."""
    (tmp_path / "a").write_text(text)
    edit(context, old, new, every=every)
    once = (tmp_path / "a").read_text()
    with pytest.raises(ToolError, match="new_string is in a already"):
        edit(context, old, new, every=every)
    assert (tmp_path / "a").read_text() == once == text.replace(old, new)


@pytest.mark.parametrize(("old", "new"), [("a", "a\n"), ("}", "}\n}"), ("b", "bb")])
def test_blank_lines_brackets_and_other_words_are_added(
    context: Context, tmp_path: Path, old: str, new: str
) -> None:
    text = "a\n\n{ b\n}\n"
    (tmp_path / "a").write_text(text)
    edit(context, old, new)
    assert (tmp_path / "a").read_text() == text.replace(old, new)


def test_deleting_everything(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("gone\n")
    assert edit(context, "gone\n", "").text == "Edited a (+0 -1):"
    assert (tmp_path / "a").read_bytes() == b""


def test_a_long_replacement_is_not_repeated_whole(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before\nhere\nafter\n")
    lines = edit(context, "here", "\n".join(f"new {n}" for n in range(100))).text.split("\n")
    assert lines[1:3] == ["1\tbefore", "2\tnew 0"]
    assert lines[13] == "… 78 more lines …"
    assert lines[14] == "91\tnew 89"
    assert lines[-1] == "102\tafter"
    assert len(lines) == 26


def test_several_matches_are_named(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\nxx\n")
    message = refusal(context, "x")
    assert "old_string occurs 4 times in a, in lines 1, 3, 4." in message
    assert "replace_all" in message
    assert (tmp_path / "a").read_text() == "x\ny\nx\nxx\n"


def test_matches_that_overlap_are_not_unique(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aaa")
    assert "occurs 2 times" in refusal(context, "aa")
    edit(context, "aa", "b", every=True)
    assert (tmp_path / "a").read_text() == "ba"


def test_a_file_that_changed_since_it_was_read(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    asyncio.run(ReadTool().run(ReadParams(path="a"), context))
    (tmp_path / "a").write_text("one\ntwo\n")
    assert "a has changed on disk since you saw it. Read it again" in refusal(context, "one")
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
    asyncio.run(ReadTool().run(ReadParams(path="a"), context))
    edit(context, "one", "1")
    assert (tmp_path / "a").read_text() == "1\ntwo\n"


def test_meaningless_rules_are_rejected(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\n")
    assert "use Write" in refusal(context, "")
    assert "are the same" in refusal(context, "one", "one")
    assert "differ in line ends" in refusal(context, "one\r\n", "one\n")
    assert "old_string has a lone surrogate" in refusal(context, "\udc00")
    assert "new_string has a lone surrogate" in refusal(context, "one", "\ud83d")
    assert "b does not exist" in refusal(context, "one", path="b")
    assert "is a directory" in refusal(context, "one", path=".")
    assert (tmp_path / "a").read_bytes() == b"one\r\n"


def test_binary_is_refused(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert "a is binary, not text: PNG image, 10 bytes" in refusal(context, "PNG")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\nb\r\nc\nd\n", "b\n", "x\ny\n", b"a\nx\r\ny\r\nc\nd\n"),
        (b"a\nb\r\nc\nd\n", "c", "x\ny", b"a\nb\r\nx\ny\nd\n"),
        (b"\xef\xbb\xbfa\r\n", "a", "b", b"\xef\xbb\xbfb\r\n"),
        (b"no end", "end", "line end", b"no line end"),
        (b"end\n", "end\n", "end", b"end"),
        ("größer\n".encode("latin-1"), "größer", "größte", "größte\n".encode("latin-1")),
        ("“für a”\n".encode("cp1252"), " a", " €", "“für €”\n".encode("cp1252")),
        ("a\r\nb\n".encode("utf-16"), "a\nb", "ü\n語", "ü\r\n語\n".encode("utf-16")),
        ("größer\n".encode() + b"\xff\n", "größer", "große", "große\n".encode() + b"\xff\n"),
    ],
)
def test_form_is_kept(
    context: Context, tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "a").write_bytes(before)
    edit(context, old, new)
    assert (tmp_path / "a").read_bytes() == after


def test_a_character_the_encoding_lacks(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("Preis: 5 Währung für Größe\n".encode("latin-1"))
    message = refusal(context, "Währung", "€")
    assert "€ (U+20AC, line 1) does not exist in latin-1, the encoding of a" in message
    assert (tmp_path / "a").read_bytes() == "Preis: 5 Währung für Größe\n".encode("latin-1")


def test_mode_and_links_stay(context: Context, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old\n")
    (tmp_path / "real").chmod(0o700)
    (tmp_path / "a").symlink_to("real")
    edit(context, "old", "new")
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "real").read_text() == "new\n"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "real"]


CODE = """\
import os

def first(a):
    return a + 1

def second(name, value):
    if name:
\t\treturn value * 2
    return None
"""


def test_other_whitespace_is_pointed_out(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(CODE)
    message = refusal(context, "if name:\n        return value * 2")
    assert "It is there with other whitespace. From line 7 on:" in message
    assert "on:\n    if name:\n\t\treturn value * 2\nCopy" in message
    (tmp_path / "a").write_text("a =  1\nb\na =  1\n")
    assert "From line 1 on:\na =  1\nFrom line 3 on:\na =  1\n" in refusal(context, "a = 1")


def test_line_numbers_are_pointed_out(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(CODE)
    message = refusal(context, "3\tdef first(a):\n4\t    return a + 1")
    assert "It holds the line numbers that Read shows" in message
    assert "Without them it is there." in message
    assert "Without them" not in refusal(context, "3\tdef other(a):")


def test_the_most_similar_lines_are_shown(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(CODE)
    message = refusal(context, "def second(name):\n    if name:\n        return value * 3")
    assert "Most like it: From line 6 on:\ndef second(name, value):\n    if" in message
    assert "From line 3 on:\ndef first(a):" in refusal(context, "def firsst(b):")
    assert "Nothing in the file is like it" in refusal(context, "class Unheard_of: pass")


def test_a_preview_changes_nothing(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    params = EditParams(path="a", old_string="one", new_string="two")
    shown = asyncio.run(EditTool().preview(params, context))
    assert (tmp_path / "a").read_text() == "one\n"
    assert shown == {"diff": edit(context, "one", "two").details["diff"]}
    with pytest.raises(ToolError, match="old_string"):
        asyncio.run(EditTool().preview(params, context))


FORMS = st.sampled_from(
    [
        Form(),
        Form("utf-8", b"\xef\xbb\xbf"),
        Form("utf-16-le", b"\xff\xfe"),
        Form("utf-16-be", b"\xfe\xff"),
        Form("utf-16-le"),
        Form("utf-16-be"),
        Form("latin-1"),
        Form("cp1252"),
    ]
)
CHARACTERS = ["\n", " ", "\t", "a", "b", "()", "ä", "ß", "€", "語", "😀"]
LINES = st.lists(st.sampled_from(CHARACTERS), max_size=10).map("".join)
PIECES = st.lists(st.sampled_from([*CHARACTERS, "\r\n", "\r"]), max_size=20).map("".join)


def written(text: str, form: Form) -> bytes:
    """The text's bytes if their form can be recognised; without a BOM not all can."""
    try:
        data = encode(text, form)
        told = recognise(data)
    except (UnicodeEncodeError, NotText):
        reject()
    assume(told == form)
    return data


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_that_decode_come_back(data: bytes) -> None:
    try:
        text, form = decode(data)
    except NotText:
        return
    assert encode(text, form) == data


@pytest.mark.slow
@settings(deadline=None)
@given(FORMS, PIECES, PIECES, st.sampled_from(["new", "", "ä", "one\ntwo"]))
def test_everything_but_the_match_stays(form: Form, before: str, after: str, new: str) -> None:
    text = f"{before}OLD{after}"
    data = written(text, form)
    with TemporaryDirectory() as folder:
        (Path(folder) / "a").write_bytes(data)
        edit(Context(cwd=Path(folder)), "OLD", new)
        wanted = before + new.replace("\n", line_end(text)) + after
        assert (Path(folder) / "a").read_bytes() == encode(wanted, form)


@pytest.mark.slow
@settings(deadline=None)
@given(FORMS, st.tuples(LINES, LINES, LINES, LINES), st.sampled_from(["\n", "\r\n"]))
def test_an_edit_can_be_reversed(form: Form, parts: tuple[str, str, str, str], end: str) -> None:
    """A text over any number of lines, as Read shows it, matches; the reverse edit restores it."""
    first, before, after, last = parts
    piece = f"{before}OLD{after}"
    text = f"{first}{piece}{last}".replace("\n", end)
    data = written(text, form)
    with TemporaryDirectory() as folder:
        context = Context(cwd=Path(folder))
        (Path(folder) / "a").write_bytes(data)
        edit(context, piece, "NEW")
        edited = text.replace(piece.replace("\n", end), "NEW")
        assert (Path(folder) / "a").read_bytes() == written(edited, form)
        assume(line_end(edited) == line_end(text))
        edit(context, "NEW", piece)
        assert (Path(folder) / "a").read_bytes() == data


def test_an_empty_text_creates_a_file(context: Context, tmp_path: Path) -> None:
    output = edit(context, "", "one\ntwo\n", "new/b")
    assert (tmp_path / "new/b").read_text() == "one\ntwo\n"
    assert output.text == "Created new/b: 2 lines."
    assert output.details["created"]
    assert output.details["seen"]["path"] == str(tmp_path / "new/b")
    edit(context, "two", "2", "new/b")
    (tmp_path / "empty").touch()
    output = edit(context, "", "text\n", "empty")
    assert (tmp_path / "empty").read_text() == "text\n"
    assert not output.details["created"]


def test_an_empty_text_replaces_no_file(context: Context, tmp_path: Path) -> None:
    """The message says how to add the text at the end, if the last line is there once."""
    (tmp_path / "a").write_text("text\nend\n")
    told = refusal(context, "")
    assert '; to make a whole file, use Write. To add new_string at the end: {"old' in told
    end = json.loads(told.partition("at the end: ")[2])
    edit(context, end["old_string"], end["new_string"])
    assert (tmp_path / "a").read_text() == "text\nend\nnew\n"
    (tmp_path / "a").write_text("text\ntext\n")
    context.offered = Offered(lambda: {"Edit"})
    told = refusal(context, "")
    assert told == "old_string is empty, and a is not. Give the text to replace."
