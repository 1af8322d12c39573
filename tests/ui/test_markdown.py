"""Streaming Markdown: the same pieces however the text arrives, shown in full at any width."""

import re
from collections import Counter
from collections.abc import Iterable
from cProfile import Profile
from textwrap import wrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.ui.render import markdown_stream, render
from ctxagent.agent.ui.render.markdown import Prose, inline
from ctxagent.agent.ui.render.markdown_stream import Blocks, Piece

LINES = [
    "# h", "- a", "  - b", "1. x", "12) z", "   y", "> q", "> - z", "```py", "```", "  ```", "~~~",
    "| a | b |", "|---|--:|", "| 1 | 2 |", "", "", "text **bold** and. More", "    code", "---",
    "===", "$$ x", "/* c", "*/", "word " * 30, "字" * 50, "- [ ] t", "  ", "<div>", "a  ",
]  # fmt: skip
TEXTS = st.one_of(
    st.lists(st.sampled_from(LINES), max_size=25).map("\n".join),
    st.text(alphabet="ab`~-*#>|1. \n[]x$_", max_size=250),
    # Long enough for each kind of leaf to go out in parts.
    st.lists(
        st.sampled_from([line * 40 for line in ("a b. ", "x **y** ", "- z\n", "| 1 | 2 |\n")]),
        max_size=30,
    ).map("".join),
)


def pieces(text: str, size: int = 1_000_000) -> list[Piece]:
    cutter, out = Blocks(), []
    for start in range(0, len(text), size):
        out += cutter.feed(text[start : start + size])
    return out + cutter.finish()


def screen(found: Iterable[Piece], *, width: int = 60, depth: render.Depth = "plain") -> str:
    prose, out = Prose(), []
    for piece in found:
        out += [""] if out and piece.gap == "" else []
        out.append(prose.show(piece))
    return render.render_text(out, width=width, depth=depth)


def shown(text: str, width: int = 60) -> str:
    return screen(pieces(text), width=width)


@pytest.mark.slow
@settings(deadline=None)
@given(TEXTS, st.integers(1, 50))
def test_the_screen_is_the_same_however_the_text_arrives(text: str, size: int) -> None:
    whole, bit_by_bit = pieces(text), pieces(text, size)
    assert bit_by_bit == whole
    assert screen(bit_by_bit, depth="color") == screen(whole, depth="color")


@pytest.mark.slow
@settings(deadline=None)
@given(TEXTS, st.sampled_from([10, 20, 40, 120]))
def test_no_letter_is_lost_at_any_width(text: str, width: int) -> None:
    letter = re.compile(r"[^\W\d_]")
    said = re.sub(r"\[[ xX]\]|(`{3,}|~{3,})[^\n]*", "", text)
    assert not Counter(letter.findall(said)) - Counter(letter.findall(shown(text, width)))


@pytest.mark.slow
@settings(deadline=None)
@given(TEXTS, st.integers(1, 30))
def test_the_tail_is_what_comes_next(text: str, size: int) -> None:
    """The live part is short, and reading it changes nothing."""
    cutter, out = Blocks(), []
    for start in range(0, len(text), size):
        out += cutter.feed(text[start : start + size])
        tail = cutter.tail()
        assert sum(len(piece.text) for piece in tail) <= 2 * markdown_stream.MAX_OPEN_CHARS + 200
    assert out + cutter.finish() == pieces(text)


def test_a_long_fence_goes_out_while_it_is_written() -> None:
    cutter = Blocks()
    cutter.feed("```py\n")
    waiting = []
    for number in range(500):
        cutter.feed(f"line_{number} = {number}\n")
        waiting.append(sum(piece.text.count("\n") + 1 for piece in cutter.tail()))
    assert max(waiting) <= markdown_stream.CODE_PART_LINES


def test_code_has_the_same_colours_in_parts_as_in_one() -> None:
    code = 'def f():\n    """A text\n' + "    of words if for\n" * 30 + '    """\n    return 1\n'
    parts = pieces(f"```py\n{code}```\n")
    whole = [Piece("code", code.rstrip("\n"), gap="", about="py")]
    assert len(parts) > 3
    assert screen(parts, depth="color") == screen(whole, depth="color")


def test_a_comment_is_not_cut_in_the_middle() -> None:
    code = "int a;\n/* one\n" + "   if else\n" * 30 + "*/\nint b;\n"
    parts = pieces(f"```c\n{code}```\n")
    assert sum("/*" in part.text for part in parts) == sum("*/" in part.text for part in parts) == 1
    assert any("/*" in part.text and "*/" in part.text for part in parts)


def test_a_long_list_goes_out_item_by_item_with_its_numbers() -> None:
    text = "".join(f"{number}. item {number}\n" for number in range(8, 240))
    cutter, out = Blocks(), []
    for line in text.splitlines(keepends=True):
        out += cutter.feed(line)
        assert len(cutter.tail()) <= 1
    assert len(out) > 230
    assert screen([*out, *cutter.finish()]) == text


@pytest.mark.slow
def test_a_long_table_goes_out_in_parts_with_one_head() -> None:
    rows = "".join(f"| {number} | name {number} |\n" for number in range(200))
    cutter = Blocks()
    out = cutter.feed(f"| no | what |\n|---:|------|\n{rows}")
    assert len(out) > 10
    lines = screen([*out, *cutter.finish()]).splitlines()
    assert sum("what" in line for line in lines) == 1
    assert {line.index("name") for line in lines if "name" in line} == {lines[0].index("what")}
    assert len(lines) == 202


def test_a_long_paragraph_goes_out_between_sentences() -> None:
    text = "A **sentence of words** that ends. " * 200
    parts = pieces(text)
    assert len(parts) > 2
    assert all(part.text.rstrip().endswith("ends.") for part in parts)
    assert [part.gap for part in parts[1:]] == [None] * (len(parts) - 1)
    assert [part.ends for part in parts] == [False] * (len(parts) - 1) + [True]


@pytest.mark.parametrize("width", [37, 80])
@pytest.mark.parametrize("end", ["", "\n\n- one", "\n| a | b |\n|---|---|\n| 1 | 2 |", "\n---"])
def test_the_rows_of_a_long_paragraph_are_full(width: int, end: str) -> None:
    words = "".join(f"Sentence **{n}** of some `words` ends. " for n in range(400))
    found = screen(pieces(words.rstrip() + end), width=width).splitlines()
    plain = words.replace("*", "").replace("`", "")
    wanted = wrap(plain, width)
    assert found[: len(wanted)] == wanted


def test_an_address_and_a_line_of_code_are_not_broken() -> None:
    address, line = "https://example.com/" + 30 * "path/", "value = " + 30 * "call() + "
    shown = screen(pieces(f"See {address} for more.\n\n```\n{line}1\n```\n"), width=40)
    assert address in shown
    assert f"{line}1" in shown
    preview = render.render_text([Prose().preview(pieces(address))], width=40, depth="plain")
    assert max(map(len, preview.splitlines())) == 40  # what is painted again is folded


def test_rows_of_code_that_are_painted_again_end_between_words() -> None:
    line = "    if found_name in known_names_of_the_project and is_allowed(found_name):"
    shown = render.render_text(
        [Prose().preview(pieces(f"```\n{line}\n```\n"))], width=40, depth="plain"
    )
    words = [word for row in shown.splitlines() for word in row.split()]
    assert words == line.split()


def test_a_line_without_an_end_goes_out_too() -> None:
    cutter, out = Blocks(), []
    for _ in range(2_000):
        out += cutter.feed("some words without an end ")
        assert (
            sum(len(piece.text) for piece in cutter.tail()) <= 1.2 * markdown_stream.MAX_OPEN_CHARS
        )
    assert len(out) > 20


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("", "Some **words** of a paragraph.\n"),
        ("", "words without an end "),
        ("", "- an item with `code`\n"),
        ("", "> said\n>\n"),
        ("```py\n", "print(1)  # one\n"),
        ("", "1. a\n   ```sh\n   ls\n   ```\n"),
        ("| a | b |\n|---|---|\n", "| 1 | two |\n"),
    ],
)
def test_twice_the_text_is_twice_the_work(head: str, body: str) -> None:
    """Work is counted in function calls, with repeated reads of the live part."""

    def calls(half: int) -> list[int]:
        """After half of a text, and after the whole of it."""
        text = (head + body * (2 * half // len(body)))[: 2 * half]
        cutter, prose, profile, counts = Blocks(), Prose(), Profile(), []
        for begin in (0, half):
            with profile:
                for start in range(begin, begin + half, 40):
                    found = [prose.show(piece) for piece in cutter.feed(text[start : start + 40])]
                    prose.preview(cutter.tail())
                    assert len(found) < 10
            counts.append(sum(entry.callcount for entry in profile.getstats()))
        return counts

    calls(2_000)  # what is made once
    half, whole = calls(10_000)
    assert whole < 2.3 * half


def test_how_lists_look() -> None:
    text = """\
Steps:
1. first **one**
   over two lines
2. second:

   ```sh
   ls -la
   ```

   after it
   - [ ] open
   - [x] closed
     - deeper
10. tenth
- other

end"""
    assert shown(text) == (
        "Steps:\n1. first one over two lines\n2. second:\n\n     ls -la\n\n   after it\n"
        "   ☐ open\n   ☑ closed\n     • deeper\n10. tenth\n• other\n\nend\n"
    )


def test_items_hang_below_their_text() -> None:
    lines = shown("- " + "word " * 30 + "\n12. " + "word " * 30, width=30).splitlines()
    assert lines[0].startswith("• word")
    assert all(line.startswith(("• ", "  word", "12. ", "    word")) for line in lines)
    assert all(len(line) <= 30 for line in lines)


def test_how_quotes_look() -> None:
    assert shown("> one\n> two\n>\n> - item\n\nafter") == "▌ one two\n▌\n▌ • item\n\nafter\n"


@pytest.mark.parametrize("width", [24, 40, 60, 120])
def test_a_table_loses_no_cell(width: int) -> None:
    long = "a long description with many words " * 3 + "unbreakable" * 8
    text = f"| name | 数 | what |\n|:--|--:|---|\n| alpha | 1 | {long} |\n| 你好 | 22 | a\\|b |\n"
    seen = shown(text, width)
    for words in ("alpha", "22", "你好", "a|b", "many", "what"):
        assert words in seen
    assert Counter("".join(long.split())) <= Counter("".join(seen.split()))


def test_a_narrow_terminal_shows_a_wide_table_as_records() -> None:
    text = "| " + " | ".join("abcdefgh") + " |\n" + "|---" * 8 + "|\n"
    text += "| " + " | ".join(letter * 20 for letter in "ABCDEFGH") + " |\n"
    seen = shown(text, 40)
    assert seen.startswith("a: AAAAAAAAAAAAAAAAAAAA\n  b: BBBB")
    assert seen.endswith("  h: HHHHHHHHHHHHHHHHHHHH\n")


def test_what_stands_within_a_line() -> None:
    for said, seen in (
        ("**a** *b* ~~c~~ `d`", "a b c d"),
        ("[text](https://x.example/y)", "text (https://x.example/y)"),
        ("<https://x.example/?a=%20b>", "https://x.example/?a=%20b"),
        ("![a cat](cat.png)", "[image: a cat] (cat.png)"),
        ("$a_1 * b * c_2$ and \\(x_1\\)", "$a_1 * b * c_2$ and \\(x_1\\)"),
        ("costs $5 and **$6**", "costs $5 and $6"),
        ("<b>bold</b> &amp; <br>", "<b>bold</b> & <br>"),
        ("one  \ntwo\\\nthree", "one\ntwo\nthree"),
        ("[ref]: https://x.example", "[ref]: https://x.example"),
        ("[a][b]", "[a][b]"),
    ):
        assert inline(said).plain == seen


def test_what_is_no_markdown_is_shown_as_it_was_written() -> None:
    for text in ("<details>\n<summary>a_b_c</summary>\n</details>", "$$\nx_1 * y * z_2\n$$"):
        assert shown(text) == f"{text}\n"


def test_code_keeps_each_blank_and_folds_only_until_it_is_finished() -> None:
    code = "```\na  b" + "c" * 80 + "\n\n  d\n```"
    preview = Prose().preview(pieces(code))
    assert render.render_text([preview], width=40, depth="plain") == (
        "  a  b" + "c" * 34 + "\n  " + "c" * 38 + "\n  " + "c" * 8 + "\n\n    d\n"
    )
    assert shown(code, 40) == "  a  b" + "c" * 80 + "\n\n    d\n"


def test_headings_and_rules() -> None:
    assert shown("# One #\ntext\n\nTwo\n===\n***\n## Three") == (
        "One\n\ntext\n\nTwo\n\n" + "─" * 40 + "\n\nThree\n"
    )


def test_markdown_leaves_nothing_to_the_right() -> None:
    for text in ("# T", "- a\n- b", "```py\nx = 1\n\ny = 2\n```", "| a |\n|---|\n| 1 |", "> q"):
        seen = shown(text)
        assert seen == seen.strip("\n") + "\n"
        assert all(line == line.rstrip() for line in seen.split("\n"))
