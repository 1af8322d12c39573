"""Wildcard patterns and the paths they match."""

import warnings

import pytest

from ctxagent.tools.system.glob_patterns import compile_wildcard, normalize


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", "x/a.py", ".h/.a.py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["a/src/a.py", "src/b/a.py"]),
        ("./src/*.py", ["src/a.py"], ["a.py"]),
        ("/a.py", ["a.py"], ["b/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "src/a.pyc"]),
        ("**/*.py", ["a.py", "b/a.py"], ["a.c"]),
        ("**", ["a", "a/b"], []),
        ("/**", ["a", "a/b"], []),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srca"]),
        ("src/", ["src/a/b"], ["src"]),
        ("src/**.py", ["src/a.py", "src/b/a.py"], ["a.py"]),
        ("*.{ts,tsx}", ["a.ts", "b/a.tsx"], ["a.t", "a.ts,tsx"]),
        ("{a,b}/**", ["a/x", "b/c/d"], ["c/x", "a"]),
        ("{src/**,lib/**}", ["src/x", "src/a/x", "lib/x"], ["x", "src"]),
        ("{**/,}x.py", ["x.py", "a/x.py"], ["ax.py"]),
        ("{a,{b,c}d}.x", ["a.x", "cd.x"], ["c.x", "ad.x"]),
        ("[!a]b", ["cb", "x/cb"], ["ab"]),
        ("[a-c]x", ["bx"], ["dx", "-x"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("a[^b]c", ["axc"], ["a/c", "abc"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("a,b", ["a,b"], ["a", "b"]),
        (r"\[id\]/\*", ["[id]/*"], ["i/x"]),
        ("a+(b).$", ["a+(b).$"], ["aab"]),
        ("a\nb*", ["a\nbc"], ["ab"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    regex = compile_wildcard(normalize(pattern))
    assert [p for p in matching if not regex.fullmatch(p)] == []
    assert [p for p in other if regex.fullmatch(p)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a", r"the \[ in '\[a' is never closed"),
        ("*.{a,b", "the { in .* is never closed"),
        ("a}", "a } in 'a}' was never opened"),
    ],
)
def test_unclosed_sets_and_braces_are_rejected(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        compile_wildcard(pattern)


def test_many_stars_over_many_like_letters() -> None:
    """With backtracking, these would take far too long."""
    name = "a" * 255
    assert not compile_wildcard("*a" * 40 + "*b").fullmatch(name)
    assert compile_wildcard("*a" * 40 + "*a").fullmatch(name)
    assert not compile_wildcard("{*a*a*a*a*a*a*a*a*b,x}/**").fullmatch(f"{name}/{name}")


@pytest.mark.parametrize("pattern", ["[--a]", "[-a]", "[+--]", "[&&a]", "[a||b]", "[~~]", "[[a]"])
def test_punctuation_in_a_set_is_literal(pattern: str) -> None:
    """Some regular expression syntaxes have set operations, and Python warns about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expression = compile_wildcard(pattern)
    matched = {chr(c) for c in range(33, 127) if expression.fullmatch(chr(c))}
    assert matched >= set(pattern[1:-1])
