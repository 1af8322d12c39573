"""The part of the user's status command line that reaches the screen."""

import pytest

from ctxagent.agent.ui.repl.configured_commands import fit_coloured


@pytest.mark.parametrize(
    ("line", "width", "shown"),
    [
        ("", 10, []),
        ("plain", 10, [("", "plain")]),
        ("abcdef", 4, [("", "abcd")]),
        ("日本語", 5, [("", "日本")]),
        ("a\x1b[31mred\x1b[0mb", 10, [("", "a"), ("ansired", "red"), ("", "b")]),
        ("\x1b[38;5;208mx", 10, [("#ff8700", "x")]),
        ("\x1b[38;2;1;2;3mx", 10, [("#010203", "x")]),
        ("a\x1b[31mred", 2, [("", "a"), ("ansired", "r")]),
        ("a\x1b[2Jb\x1b[10;10Hc\x1b]0;title\x07d\x1b]52;c;AA\x1b\\e", 20, [("", "abcde")]),
        ("a\x07\x08\x9b\x00b\tc\x1b", 20, [("", "ab c")]),
        ("\x1bcx\x1b[?1049hy\x1b[6nz", 20, [("", "xyz")]),
        ("a\u202eb\x01c\x02", 20, [("", "abc")]),
    ],
)
def test_a_line_in_its_colours(line: str, width: int, shown: list[tuple[str, str]]) -> None:
    found = fit_coloured(line, width)
    merged: list[tuple[str, str]] = []
    for style, text in found:
        style = " ".join(style.split())
        if merged and merged[-1][0] == style:
            merged[-1] = (style, merged[-1][1] + text)
        else:
            merged.append((style, text))
    assert merged == shown
