"""Path patterns match correctly and in linear time."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.permissions.paths import path_glob

PIECES = ("/", "a", "b", "*", "**", "?", "/**/", "\\*", "\\?", "\\", "\n", ".")
MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def expression(pattern: str) -> re.Pattern[str]:
    """The same pattern as a regular expression, which may backtrack for ever."""
    pieces = re.split(r"(\\[*?]|(?:(?<=/)|^)\*\*/|\*\*|\*|\?)", pattern)
    plain = (re.escape(re.sub(r"\\([*?])", r"\1", piece)) for piece in pieces)
    body = "".join(MEANINGS.get(p, text) for p, text in zip(pieces, plain, strict=True))
    if not re.search(r"(?<!\\)[*?]", pattern.rpartition("/")[2]):
        body = f"{body.removesuffix('/')}(?:/.*)?"
    return re.compile(body, re.DOTALL)


@given(
    st.lists(st.sampled_from(PIECES), max_size=7).map("".join),
    st.lists(st.sampled_from(("", "a", "a/b", "*", "/", "\n")), min_size=7, max_size=7),
)
def test_a_pattern_matches_what_its_expression_does(pattern: str, texts: list[str]) -> None:
    left = iter(texts)
    path = re.sub(r"\\?[*?]+", lambda found: next(left), f"/{pattern}")
    for text in (path, f"{path}/a", f"{path}a", path[:-1], f"/{''.join(texts)}"):
        is_match = bool(expression(f"/{pattern}").fullmatch(text))
        assert path_glob(f"/{pattern}").matches(text) is is_match, (pattern, text)


@pytest.mark.parametrize("pattern", ["**/" * 300 + "zz", "**/a*" * 100 + "zz", "*a" * 300 + "b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    before = process_time()
    glob = path_glob(f"/p/{pattern}")
    assert not glob.matches("/p/" + "a/" * 20 + "a" * 200)
    assert not glob.matches("/p/" + "a/" * 20 + "zz" + "a" * 200 + "b/a")
    assert process_time() - before < 1
