"""TOML with line numbers: each key and each error has its line."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.config import load
from ctxagent.agent.errors import ConfigError

_APART = ", # [\n"
_KEYS = st.sampled_from(["a", "b.c", "d . e", '"q\\"#=["', "'[x]'", "1.5", '""', "t-_"])
_SCALARS = st.sampled_from(
    ["1", "-1.5e3", "true", "1979-05-27 07:32:00", '"#]"', "'\\'", '""', "'''\n[t]\n''''",
     '"""\n\\"""]\nk = 1\n""""']
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[ # ]\n{_APART.join(items)}\n]")
        | st.lists(st.tuples(_KEYS, inner).map(" = ".join), max_size=3).map(
            lambda pairs: f"{{ {', '.join(pairs)} }}"
        )
    ),
    max_leaves=6,
)
_STATEMENTS = (
    st.tuples(_KEYS, _VALUES).map(" = ".join)
    | _KEYS.map("[{}]".format)
    | _KEYS.map("[[ {} ]] # [c]".format)
    | st.sampled_from(["", "  # k = [1"])
)


def places_of(node: object, at: load.KeyPath = ()) -> list[load.KeyPath]:
    """Return every key of a document, without the items of arrays."""
    if not isinstance(node, dict):
        return []
    return [p for k, v in node.items() for p in [(*at, k), *places_of(v, (*at, k))]]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_STATEMENTS, max_size=6).map("\n".join))
def test_every_key_of_any_sound_document_has_a_line(text: str) -> None:
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a name given twice
        return
    document, lines = load.parse_toml(text.encode(), Path("f"))
    assert document == expected
    written = text.replace('\\"', '"').split("\n")
    for place in places_of(document):
        assert str(place[-1]) in written[lines[place] - 1]


def test_lines_of_everything_that_can_hold_a_key() -> None:
    text = (
        'top = 1\n[a]\nb.c = """\nx = 1\n[no]\n"""\n"d e" = [ # ]\n  1, "]",\n  [2,\n   3],\n]\n'
        "f = { g = 1, h = { i = [4] } }\n[a.j]\n[[k]]\nl = 2024-01-01 10:00:00\nm = 1.5\n"
    )
    _, lines = load.parse_toml(text.encode(), Path("f"))
    assert lines == {
        ("top",): 1, ("a",): 2, ("a", "b"): 3, ("a", "b", "c"): 3, ("a", "d e"): 7,
        ("a", "d e", 0): 8, ("a", "d e", 1): 8, ("a", "d e", 2): 9, ("a", "d e", 2, 0): 9,
        ("a", "d e", 2, 1): 10, ("a", "f"): 12, ("a", "f", "g"): 12, ("a", "f", "h"): 12,
        ("a", "f", "h", "i"): 12, ("a", "f", "h", "i", 0): 12, ("a", "j"): 13, ("k",): 14,
        ("k", "l"): 15, ("k", "m"): 16,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"a = 1\nb = \xff\n", 2, "not UTF-8"),
        (b"\xff", 1, "not UTF-8"),
        (b"a = 1\n\nb = = 2\n", 3, "not TOML: Invalid value"),
        (b"a = 1\nb = [1,\n2\n", 3, "not TOML: "),  # the end is no line of its own
        (b"a = \n", 1, "not TOML: "),
        (b"a = 1\na = 2\n", 2, "not TOML: Cannot overwrite a value"),
        (b"a = " + b"9" * 5_000, 1, "not TOML: "),
        (b"a = " + b"[" * 100_000, 1, "not a settings file: nested too deeply"),
    ],
)
def test_an_invalid_document_is_reported_with_its_line(
    data: bytes, line: int, message: str
) -> None:
    with pytest.raises(ConfigError) as told:
        load.parse_toml(data, Path("f"))
    assert told.value.where == f"f:{line}"
    assert told.value.message.startswith(f"f:{line}: {message}")
    assert "(at " not in told.value.message


def test_a_mark_of_its_encoding_and_windows_lines_do_no_harm() -> None:
    document, lines = load.parse_toml(b"\xef\xbb\xbfa = 1\r\n[b]\r\nc = 2\r\n", Path("f"))
    assert document == {"a": 1, "b": {"c": 2}}
    assert lines == {("a",): 1, ("b",): 2, ("b", "c"): 3}


def test_a_table_has_the_line_where_it_is_named_first() -> None:
    text = "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\n[c.d]\n[c]\n"
    _, lines = load.parse_toml(text.encode(), Path("f"))
    assert lines == {
        ("a",): 1, ("a", "x"): 2, ("a", "b"): 5, ("c",): 6, ("c", "d"): 6,
    }  # fmt: skip


def test_an_empty_document_has_no_lines() -> None:
    for text in (b"", b"\n", b"# a = 1", b"  "):
        assert load.parse_toml(text, Path("f")) == ({}, {})
