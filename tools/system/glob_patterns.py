r"""Convert wildcard patterns for paths, with the syntax of ripgrep and ignore files, to regular
expressions.

`*` and `?` stay within one path component, `**` as a component spans any number of them, `[a-z]`
and `[!a-z]` are sets, `{a,b}` are alternatives and may nest, `\` escapes the next character. A
pattern without a slash matches a file name at any depth. A pattern with a slash is anchored at the
root of the search; one that ends in a slash matches everything below.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations

MAX_LITERAL_PARTS = 4  # parts of a path whose brackets may be literal
# The expressions are compiled on first use, which `re` remembers.
_TOKEN = (
    r"(?<![^/{,])\*\*(?:(?P<deep>/)|(?P<rest>(?=[,}]|$)))"  # a whole component
    r"|(?P<stars>\*+)"
    r"|(?P<one>\?)"
    r"|\[(?P<set>[!^]?\]?[^\]]*)\]"
    r"|\\(?P<escaped>.)"
    r"|(?P<brace>[{},])"
    r"|(?P<plain>.)"
)

_FIXED = ("one", "set", "escaped", "plain")  # match one character each
_MEMBER = r"(.)(?:-(.))?"
_BRACKET = r"(?<!\\)[\[\]{}]"
_PERHAPS_LITERAL = r"\[|\{[^,{}]*\}"  # a set, or braces without a choice


def normalize(pattern: str) -> str:
    """Drop a leading `./` of a pattern, and change `dir/` to `dir/**` and `**.py` to `**/*.py`."""
    pattern = pattern.removeprefix("./")
    if pattern.endswith("/"):
        pattern += "**"
    return re.sub(r"(^|[/{,])\*\*(?=[^/*,}])", r"\1**/*", pattern)


def may_be_literal(pattern: str) -> bool:
    """Return True if brackets or braces in a pattern may be characters of a name."""
    return re.search(_PERHAPS_LITERAL, pattern) is not None


def literal_first(pattern: str, paths: Sequence[str]) -> str:
    """Return a pattern with escaped brackets and braces if a path or its folder has them in its
    name, as in `app/[id]/page.tsx`. If the pattern has sets too, escape as many as possible.
    """
    parts = pattern.split("/")
    places = [n for n, part in enumerate(parts) if may_be_literal(part)][:MAX_LITERAL_PARTS]
    named = (path for path in paths if "[" in path or "{" in path) if places else ()
    folders = {path[:end] for path in named for end in path_ends(path)}
    for count in range(len(places), 0, -1):
        for chosen in combinations(places, count) if folders else ():
            tried = [
                re.sub(_BRACKET, r"\\\g<0>", part) if n in chosen else part
                for n, part in enumerate(parts)
            ]
            with suppress(ValueError, re.error):
                regex = compile_wildcard(normalize("/".join(tried)))
                if any(map(regex.fullmatch, folders)):
                    return "/".join(tried)
    return pattern


def path_ends(path: str) -> Iterator[int]:
    """Yield the end of each folder in a path, and of the path itself."""
    yield from (place for place, character in enumerate(path) if character == "/")
    yield len(path)


def compile_wildcard(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for `fullmatch` on relative paths.

    Raises ValueError, with the reason, for an unclosed set or brace, and for a last backslash.
    """
    body = pattern.removeprefix("/")
    anchored = "/" in pattern
    out: list[tuple[str | None, str]] = [] if anchored else [("deep", "(?:.*/)?")]
    depth = 0
    for token in re.finditer(_TOKEN, body, re.DOTALL):
        kind, text = token.lastgroup, token[token.lastgroup or 0]
        if kind == "brace":
            depth += {"{": 1, "}": -1}.get(text, 0)
            text = _brace(text, depth)
        elif kind == "plain" and text == "[":
            raise ValueError(f"the [ in {pattern!r} is never closed; write \\[ for a plain one")
        elif kind == "plain" and text == "\\":
            raise ValueError(f"the \\ at the end of {pattern!r} escapes nothing")
        else:
            text = _expression(kind, text)
        if depth < 0:
            raise ValueError(f"a }} in {pattern!r} was never opened; write \\}} for a plain one")
        out.append((kind, text))
    if depth:
        raise ValueError(f"the {{ in {pattern!r} is never closed; write \\{{ for a plain one")
    return re.compile(_joined(out), re.DOTALL)


def _brace(text: str, depth: int) -> str:
    if text == ",":
        return "|" if depth else ","
    return "(?:" if text == "{" else ")"


def _member(found: re.Match[str]) -> str:
    """Return a character or a range of a set for a regular expression."""
    return "-".join(f"\\{c}" if c in r"\[]&~|^-" else c for c in found.groups() if c)


def _joined(parts: list[tuple[str | None, str]]) -> str:
    """Join the expressions to one.

    The text between two stars uses the first position where it matches, without backtracking.
    Without this, a pattern with many stars could take hours on a name with many equal letters.
    """
    out: list[str] = []
    following, before_it = "", 0
    for kind, text in reversed(parts):
        if kind == "stars":
            paired = following == "stars"
            if paired:
                out[before_it] = ")"
            out += ["(?>[^/]*?" if paired else text, ""]
            before_it = len(out) - 1
        else:
            out.append(text)
        following = following if kind in _FIXED else str(kind)
    return "".join(reversed(out))


def _expression(kind: str | None, text: str) -> str:
    if kind == "set":
        negated = text[:1] in ("!", "^")
        members = re.sub(_MEMBER, _member, text[negated:], flags=re.DOTALL)
        return f"(?!/)[{'^' if negated else ''}{members}]"
    return {
        "deep": "(?:.*/)?",
        "rest": ".*",
        "stars": "[^/]*",
        "one": "[^/]",
    }.get(kind or "", re.escape(text))
