"""Each construct of a pattern finds the same places in a text as in ripgrep, or is refused."""

from collections.abc import Iterable
from typing import Any

import pytest

from ctxagent.tools.search.python.expression import Expression, SearchText
from ctxagent.tools.search.python.pattern_parts import PatternError
from ctxagent.tools.search.python_engine import _SETS
from ctxagent.tools.search.request import SearchEngine

from ..support.search_engines import ENGINES, engine_named, output_of

TABLE = _SETS.read_text()
LINES = (
    "abc ABC aab bbb \u03b1\u03a3\u03c3\u03c2 a.b k K\u212a s\u017f fo\u00f6 \u00e9e\u0301",
    "1 \u0663\u00b2\u2167 aa\x00 _\u203f }] {2} x{} interface{} \u24d0 \u65e5\u672c\u200d",
    "",
    "a\\b --flag [a] #c \t\x0b\x1c\x85\xa0\u2028\u3000 zz",
    "foobar foo1 bar_foo \U0001f600 \u0e01\u0e34 abab <a> \U0001d7d8",
)
TEXT = "".join(f"{line}\r\n" for line in LINES).encode()
RUST = (
    "a", "a|b", "a||b", "", "()", "(?:)", "a+", "a*", "a?b", "a??", "a{2}", "a{1,2}?", "a{ 1, 2 }",
    "a++b", "a**", "a{2}{3}", "(?:a|b)*?", "a{01}", "^", "$", "^a", "b$", "a$b", r"\bfoo\b", r"\B",
    r"\<f", r"o\>", r"\b{start}f", r"\b{end}", r"\b{start-half}f", r"o\b{end-half}", r"\b{1,2}",
    ".", "(?s).", "[]a]", "[^]a]", "[a-]", "[-a]", "[--a]", "[a-c-e]", r"[\]a]", r"[\x41-\x43]",
    "[a[bc]]", "[a&&b]", "[a-z&&[^aeiou]]", "[a-z--[b]]", "[a-f~~[b-k]]", "[&&a]", "[[:alpha:]]",
    "[[:^alpha:]]", "[[:foo:]]", "[:alpha:]", r"[\w--\d]", r"[^\W_]", r"[\W_]", r"[\D\S]",
    r"[^\d\s]", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\w+", r"[\w-]", r"\x41", r"\x{41}",
    r"\u00e9", r"\u{e9}", r"\U0001f600", r"\t", r"\v", r"\f", r"\a", r"\/", r"\-", r"\ ", r"\!",
    r"\.b", "]", "}", r"\pL", r"\PL", r"\p{L}", r"\p{Lu}", r"\p{gc=Lu}", r"\p{gc!=Lu}",
    r"\p{Letter}", r"\p{Greek}", r"\p{script=Thai}", r"\p{Han}", r"\p{lower}", r"\p{Uppercase}",
    r"\p{alpha}", r"\p{Alphabetic}", r"\p{Emoji}", r"\p{Any}", r"\p{ascii}", r"\pN", r"\p{Nd}",
    r"\p{whitespace}", r"\p{XID_Start}", r"\p{isLatin}", r"[\p{L}--\p{Lu}]", "(?i)abc", "a(?i)B",
    "(?i:A)b", "(?-i)a", "(?i)k", r"(?i)\x{212a}", "(?i)[k]", "(?i)[^k]", "(?i)s", "(?i)σ",
    "(?i)[σ]", r"(?i)\p{Lu}", r"(?i)[a-z&&[^b]]", "(?U)a+", "(?U)a+?", "(?x) a b", "(?x)a # c\n b",
    "(?x)[ a b ]", r"(?x)a\ b", "(?m)^a", "(?R)a$", r"(?-u)\w", r"(?-u:\b)f", "(?P<n>a)",
    "(?<n>a)(b)", "(?<a1_.[0]>a)", "--flag", r"\\", "é", "foo|abab|zz", "(?i)FOO|é", "(a|b)(c|d)?",
    "[^a-z]", "[é-ÿ]", "日本",
)  # fmt: skip
ONLY_IN_PCRE = (
    "a{,2}b", "x{}", "x{a", "x{", "{}", "interface{", r"a{1,x}", "(?=a)a", "foo(?!bar)", "(?<=a)b",
    "(?<!a)b", "(?<=a|bb)b", "(?<=a{1,2})b", "(?<=(?:a|bb)c?)b", "(?>a+)b", "a*+b(?!c)", r"(a)\1",
    r"(?<n>a)\k<n>", r"(?<n>a)\k{n}", r"(?<n>a)\k'n'", r"(?'n'a)\g{n}", r"(?P<n>a)(?P=n)",
    r"(a)\g1", r"(a)\g{-1}", r"(a)(b)\2", "(a)?(?(1)b|c)", "(?<y>a)?(?(<y>)b|c)", "(?#c)a",
    "a(?#c)+b", r"\h", r"\H", r"(?!a)\v", r"\N", r"\Qa.b\E", r"[\Qa]\E]", r"a\Eb", r"\e", r"\101",
    r"\0", r"\01", r"\o{101}", r"(?=a)\x61", r"(?=a)\x{61}", r"(?!q)\x4", r"\cK", r"(?=a)\N{U+61}",
    r"\é", r"(?!q)\<a", r"[\b]", r"[\h]", "(?!q)[a[b]", "(?!q)[a&&b]", "(?!q)[]a]",
    "(?!q)[[:alpha:]]", "(?!q)[[:^alpha:]]", "(?!q)[[:punct:]]", "(?!q)[[:word:]]",
    "(?!q)[[:upper:]]", "(?!q)[[:digit:]]", "(?!q)[[:graph:]]", "(?!q)[[:space:]]", r"\p{^L}",
    r"(?!q)\p{Lu}", r"(?!q)\p{L&}", r"\p{Xan}", r"\p{Xwd}", r"(?!q)\p{ lu }", r"(?!q)\w",
    r"(?!q)\W", r"(?!q)\d", r"(?!q)\s", r"(?!q)\bfoo\b", "(?!q)(?i)SΣ", "(?i)(?!q)[k]",
    "(?!q)(?:^)*a", "(?!q)a{2,}", "(?x)(?=a) a b", "(?!q)(?U)a+", "(?!q)(?s).", "(?!q).", "(?!q)]",
    r"(?!q)[\w-]", "(?!q)[a-]", "(?!q)[a-c-e]", r"(?<!\w)foo(?!\w)", r"(?<!é)e",
)  # fmt: skip
REFUSED = (
    "(", ")", "a)", "(a", "[", "[a", "[]", "[^]", "*a", "a|*", "+", "?a", "{2}", "a{2,1}", "[z-a]",
    r"[a-\d]", r"[\d-z]", "a\\", r"\i", r"\1", r"(a)(?=b)\2", r"\p{Nothing}", r"\p N", "(?",
    "(?P<1a>x)", "(?P<a>x)(?P<a>y)", "(?x)a #c", "(?=a)a**", r"(?=a)\b+a", "(?=a)^*a",
    "(?=a)a{2}{1}", r"(?=a)\x", r"(?=a)\x{}", r"(?=a)\u0061", "(?<=a+)b", r"\k<n>",
    "(?!q)[:alpha:]", "(?!q)[[:foo:]]", r"[\B]!", r"(?!q)[\N]", r"(?!q)[\X]", "(?!q)a|*b",
    r"(?=a)\Qa", r"\g", r"\N{x}", "(?i-", r"\x{110000}",
)  # fmt: skip
# PCRE2 takes these.
NOT_SUPPORTED = (
    r"a\Kb", r"\Ga", r"\X", r"\C", "(a)(?1)", "(?R)?a(?!b)", "(?P>n)(?<n>a)", "(*SKIP)a",
    "(?|(a)|b)", "(?C1)a", "(?xx)[a b](?!c)", "(?(?=a)a|b)", r"(a\1)",
)  # fmt: skip


def places(engine: SearchEngine, pattern: str) -> list[int] | None:
    """Return the offsets of the matches in TEXT; None if the pattern is refused. ripgrep also finds
    an empty match at each byte of a character.
    """
    code, found = output_of(engine.text_command(pattern, TEXT))
    offsets = [int(line.partition(b":")[0]) for line in found.splitlines()]
    return None if code == 2 else [place for place in offsets if TEXT[place] & 0xC0 != 0x80]


def different(patterns: Iterable[str]) -> list[str]:
    """Return the patterns for which the engines find different places, or only one refuses."""
    both = [engine_named(name) for name in ENGINES]
    return [each for each in patterns if places(both[0], each) != places(both[1], each)]


def is_pcre(pattern: str) -> bool:
    return Expression(pattern, by_line=True, ignore_case=False, table=TABLE).is_pcre


@pytest.mark.slow
def test_rusts_syntax() -> None:
    assert different(RUST) == []
    assert [pattern for pattern in RUST if is_pcre(pattern)] == []


@pytest.mark.slow
def test_the_syntax_of_pcre() -> None:
    assert different(ONLY_IN_PCRE) == []
    assert [pattern for pattern in ONLY_IN_PCRE if not is_pcre(pattern)] == []


@pytest.mark.slow
def test_patterns_that_are_not_valid() -> None:
    assert different(REFUSED) == []
    assert [pattern for pattern in REFUSED if places(engine_named("Python"), pattern)] == []


@pytest.mark.parametrize("pattern", NOT_SUPPORTED)
def test_what_is_not_supported_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        is_pcre(pattern)


def found(pattern: str, text: str, **options: Any) -> list[tuple[int, int]]:
    options = {"by_line": True, "ignore_case": False, "table": TABLE, **options}
    has_stray = any("\udc80" <= character <= "\udcff" for character in text)
    search = Expression(pattern, **options).for_text(SearchText(text, has_stray_bytes=has_stray))
    return [match.span() for match in search.finditer(text)]


def test_bytes_that_are_not_utf8_match_nothing() -> None:
    for pattern in (
        ".",
        r"\W",
        r"\D",
        "[^a]",
        r"\S",
        r"[^\w]",
        r"\B",
    ):
        assert found(pattern, "\udcff") == [], pattern
    assert found("a.b", "a\udcffb aéb") == [(4, 7)]
    assert found(r"\ba", "\udcffa") == [(1, 2)]


def test_no_match_by_line_has_a_line_end() -> None:
    text = "a\nb\r\nc\rd"
    for pattern in (r"\s", r"[^x]\s", r"\W", r"[^a-d]", "a.b", r"c.d"):
        assert found(pattern, text) == []
    assert found("^b$|^c$|d$", text) == [(2, 3), (5, 6), (7, 8)]
    assert found("a.b", text, by_line=False) == [(0, 3)]


def test_each_match_contains_a_required_text() -> None:
    def required(pattern: str, *, folded: bool = False) -> tuple[str, ...]:
        options = {"by_line": True, "ignore_case": folded, "table": ""}
        return Expression(pattern, **options).required(folded=folded)  # type: ignore[arg-type]

    assert required(r"\w+ needle(s|d)?") == (" needle",)
    assert required("(?:foo|bar)x") == ("foo", "bar")
    assert required("a*|b") == ()
    assert required("(?:abc){2}") == ("abc",)
    assert required("(?:abc)?d") == ("d",)
    assert required("(?i)abc") == ()
    assert required("ABCé", folded=True) == ("abc",)
    assert required("(?!abc)d") == ("d",)
    assert required("|".join(map(str, range(100, 130)))) == ()


def test_a_repeated_repetition_is_one() -> None:
    """Otherwise `re` would try each way to divide the letters."""
    assert found("(?:(a+)+)+$", "a" * 2_000 + "b") == []
