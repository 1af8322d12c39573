"""The properties of characters and the tables are those of ripgrep."""

import unicodedata
from pathlib import Path

import pytest

from ctxagent.tools.search.python.char_sets import CharSet, is_pcre_word, is_word
from ctxagent.tools.search.python.pattern_parts import PatternError
from ctxagent.tools.search.python.properties import Properties
from ctxagent.tools.search.python_engine import _SETS, _TYPES, PythonEngine
from ctxagent.tools.search.request import Refused, Search

from ..support.search_tables import CODES, file_types, members, ranges

PROPERTIES = Properties(_SETS.read_text())
# Python may know an older Unicode than ripgrep: these characters and properties do not change.
SAMPLE = [
    code for code in CODES if code < 0x600 or 0x2000 <= code < 0x2300 or 0x4E00 <= code < 0x4E20
]
NAMES = (
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "LC", "M", "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd",
    "Ps", "S", "Sc", "Sm", "Z", "Zs", "Cc", "Cf", "Uppercase_Letter", "Decimal Number", "lower",
    "Uppercase", "XID_Start", "White_Space", "emoji", "Alphabetic", "Han", "Greek",
    "script=Cyrillic", "Latn", "gc=Lu", "isHebrew", "Common", "Extended_Pictographic", "Any",
    "ASCII",
)  # fmt: skip


def assigned(codes: list[int]) -> str:
    return ranges([code for code in codes if unicodedata.category(chr(code)) != "Cn"])


def contained(chars: CharSet) -> str:
    return assigned([code for code in SAMPLE if chr(code) in chars])


@pytest.mark.slow
def test_sets_have_the_members_that_ripgrep_finds(tmp_path: Path) -> None:
    for name in NAMES:
        expected = assigned(members(rf"\p{{{name}}}", tmp_path, SAMPLE))
        assert contained(PROPERTIES.rust(name)) == expected, name
    assert contained(CharSet(tests=[is_word])) == assigned(members(r"\w", tmp_path, SAMPLE))
    pcre = members(r"(?!\n)\w", tmp_path, SAMPLE)
    assert contained(CharSet(tests=[is_pcre_word])) == assigned(pcre)


@pytest.mark.parametrize("name", ["Nothing", "age=3.0", "scx=Greek", "^L", "", "sc=Nothing"])
def test_an_unknown_property_is_refused(name: str) -> None:
    with pytest.raises(PatternError, match="unknown property"):
        PROPERTIES.rust(name)


def test_pcre_has_other_names() -> None:
    for name in ("Letter", "gc=Lu", "Nothing"):
        with pytest.raises(PatternError, match="unknown property"):
            PROPERTIES.pcre(name)
    assert contained(PROPERTIES.pcre("Xps")) == contained(PROPERTIES.rust("White_Space"))
    assert contained(PROPERTIES.pcre("L&")) == contained(PROPERTIES.rust("LC"))


def test_the_table_of_file_types_is_ripgreps() -> None:
    """If it fails with a new ripgrep: python -m ctxagent.tests.support.search_tables."""
    assert _TYPES.read_text() == file_types()


def test_an_unknown_type_is_refused() -> None:
    search = Search(root=Path(), pattern="x", mode="files", type="nothing")
    with pytest.raises(Refused, match="unrecognized file type: nothing"):
        PythonEngine().command(search)
