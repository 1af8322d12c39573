"""Text in files: encodings that are restored byte for byte, lines, and diffs."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.tools import text as module
from ctxagent.tools.text import Diff, Form, NotText, compare, decode, encode, recognise


@pytest.mark.parametrize(
    ("data", "text", "form"),
    [
        (b"", "", Form()),
        ("é🙂\r\n".encode(), "é🙂\r\n", Form()),
        (codecs.BOM_UTF8 + b"a", "a", Form("utf-8", codecs.BOM_UTF8)),
        ("\ufeffaé".encode("utf-16-le"), "aé", Form("utf-16-le", codecs.BOM_UTF16_LE)),
        ("\ufeffaé".encode("utf-16-be"), "aé", Form("utf-16-be", codecs.BOM_UTF16_BE)),
        ("\ufeffaé".encode("utf-32-le"), "aé", Form("utf-32-le", codecs.BOM_UTF32_LE)),
        ("\ufeffaé".encode("utf-32-be"), "aé", Form("utf-32-be", codecs.BOM_UTF32_BE)),
        ("some words".encode("utf-16-le"), "some words", Form("utf-16-le")),
        ("some words".encode("utf-16-be"), "some words", Form("utf-16-be")),
        (b"caf\xe9", "café", Form("latin-1")),
        (b"\x93caf\xe9\x94", "“café”", Form("cp1252")),
        (b"\x81caf\xe9", "پcafé", Form("cp1256", is_certain=False)),
        ("é".encode() * 9 + b"\xff", "é" * 9 + "\udcff", Form("utf-8", b"", "surrogateescape")),
        (b"tab\t, form feed\x0c, escape \x1b[31m", "tab\t, form feed\x0c, escape \x1b[31m", Form()),
    ],
)
def test_a_text_is_known_by_its_bytes_and_comes_back(data: bytes, text: str, form: Form) -> None:
    assert decode(data) == (text, form)
    assert encode(text, form) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\xff\xfe",
        b"\x7fELF\0\0\0",
        b"a\0b\0\0\0c",
        codecs.BOM_UTF8 + b"a\0b",
        codecs.BOM_UTF16_LE + b"a",
        codecs.BOM_UTF16_LE + "\x01\x02".encode("utf-16-le"),
        bytes(range(1, 32)) + b"\xff" * 9,
        "\x01\x02 words and words".encode("utf-16-le"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(NotText):
        decode(data)


def test_few_control_characters_do_not_make_a_text_binary() -> None:
    assert recognise(b"\xe9" + b"x" * 98 + b"\x01").encoding == "latin-1"
    with pytest.raises(NotText):
        recognise(b"\xe9" + b"x" * 96 + b"\x01\x01")


def test_the_first_bytes_of_a_file_may_end_within_a_character() -> None:
    data = "words 🙂".encode()
    assert recognise(data[:-1], whole=False) == Form()
    assert recognise(data[:-1], whole=True) != Form()
    wide = "\ufeffwords".encode("utf-16-le")[:-1]
    assert recognise(wide, whole=False).encoding == "utf-16-le"


@given(st.binary(max_size=60))
def test_every_text_comes_back(data: bytes) -> None:
    try:
        text, form = decode(data)
    except NotText:
        return
    assert encode(text, form) == data


def test_a_character_that_the_encoding_lacks_is_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode("🙂", Form("latin-1"))


def test_binary_data_is_named_by_its_first_bytes() -> None:
    assert module.kind(b"%PDF-1.7") == "PDF document"
    assert module.kind(b"GIF89a") == "GIF image"
    assert module.kind(b"\x7fELF\2\1") == "ELF program or library"
    assert module.kind(b"BZh91AY") == "bzip2 data"
    assert module.kind(b"OggS\0") == "Ogg media"
    assert module.kind(b"PK\x03\x04 and more").startswith("zip archive")
    assert module.kind(b"words") == ""


def test_lines() -> None:
    assert module.line_end("a\r\nb\r\nc\n") == "\r\n"
    assert module.line_end("a\r\nb\n") == module.line_end("") == "\n"
    assert module.unix("a\r\nb\rc\n") == "a\nb\rc\n"
    assert module.split("a\r\nb\rc\n\n") == ["a", "b\rc", ""]
    assert (module.split("a\nb"), module.split("")) == (["a", "b"], [])
    assert [module.count_lines(text) for text in ("", "a", "a\n", "a\nb")] == [0, 1, 1, 2]
    assert [module.line_at("a\nb\n", place) for place in (0, 1, 2, 4)] == [1, 1, 2, 3]
    assert module.printable("a\udcffb\ud800") == "a\ufffdb\ufffd"
    found = module.lone_surrogate("ab\ud800\udcff")
    assert found is not None
    assert found.start() == 2
    assert module.lone_surrogate("🙂") is None


def test_long_lines_are_cut_where_they_are_shown() -> None:
    assert module.cut_long_line("x" * 10, 10) == "x" * 10
    assert module.cut_long_line("x" * 1_001, 10) == "xxxxxxxxxx… [1,001 characters]"
    assert module.number(["a", "b\udcff"], 9) == "9\ta\n10\tb\ufffd"
    assert module.number(["x" * 301], 1) == f"1\t{'x' * 300}… [301 characters]"


def changed(before: str | None, after: str) -> list[str]:
    return compare(before, after, "f").whole.splitlines()


def test_a_diff_has_three_lines_of_context() -> None:
    before = "".join(f"{number}\n" for number in range(1, 21))
    after = before.replace("10\n", "ten\n").replace("11\n", "")
    diff = compare(before, after, "f")
    assert (diff.added, diff.removed) == (1, 2)
    assert (
        diff.text
        == diff.whole
        == ("--- a/f\n+++ b/f\n@@ -7,8 +7,7 @@\n 7\n 8\n 9\n-10\n-11\n+ten\n 12\n 13\n 14\n")
    )


def test_changes_that_are_far_apart_are_hunks_of_their_own() -> None:
    before = "".join(f"{number}\n" for number in range(1, 41))
    heads = [line for line in changed(before, f"0\n{before}41\n") if line.startswith("@@")]
    assert heads == ["@@ -1,3 +1,4 @@", "@@ -38,3 +39,4 @@"]


def test_a_new_and_an_emptied_file() -> None:
    assert changed(None, "a\n") == ["--- /dev/null", "+++ b/f", "@@ -0,0 +1,1 @@", "+a"]
    assert changed("a\n", "") == ["--- a/f", "+++ b/f", "@@ -1,1 +0,0 @@", "-a"]
    assert compare(None, "", "f") == compare("a\r\n", "a\n", "f") == Diff("", "", 0, 0)


def test_a_missing_last_line_end_is_a_change() -> None:
    none = "\\ No newline at end of file"
    assert changed("a\nb", "a\nb\n")[3:] == [" a", "-b", none, "+b"]
    assert compare("a\nb", "a\nb\n", "f").added == 1


def test_a_diff_for_a_record_is_bounded() -> None:
    diff = compare("", "a\n" * (module.MAX_DIFF_LINES + 9), "f")
    lines = diff.text.splitlines()
    assert len(lines) == 2 + module.MAX_DIFF_LINES + 1
    assert lines[-1] == "… 10 more lines of diff are not shown"
    assert diff.whole.count("\n+a") == diff.added == module.MAX_DIFF_LINES + 9
    wide = compare("", "x" * 1_999 + "\n" + ("y" * 1_999 + "\n") * 30, "f").text
    assert wide.endswith("more lines of diff are not shown\n")
    assert module.MAX_DIFF_CHARS - 2_100 < len(wide) < module.MAX_DIFF_CHARS + 100
    long = compare("", "z" * 5_000, "f").text
    assert f"+{'z' * module.MAX_DIFF_LINE_CHARS}… [" in long


@pytest.mark.parametrize(("most", "removed"), [(5, 1), (4, 4)])
def test_files_with_too_many_equal_lines_are_compared_as_wholes(
    monkeypatch: pytest.MonkeyPatch, most: int, removed: int
) -> None:
    """difflib might take minutes for them. Here the limit is five pairs."""
    monkeypatch.setattr(module, "MAX_EQUAL_PAIRS", most)
    assert compare("1\nx\n2\nx\n", "x\n2\nx\n3\n", "f").removed == removed
