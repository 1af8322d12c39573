"""Wildcard patterns for paths, as ripgrep and ignore files read them, made regular expressions.

`*` and `?` stay inside one path component, `**` as a component spans any number of them, `[a-z]`
and `[!a-z]` are sets, `{a,b}` are alternatives and may nest, `\\` takes the next character as it
is. A pattern without a slash matches a file name at any depth; one with a slash is anchored at the
root of the search, and one that ends in a slash means everything below.
"""

import re

_TOKEN = re.compile(
    r"(?<![^/{,])\*\*(?:(?P<deep>/)|(?P<rest>(?=[,}]|$)))"  # a component of its own
    r"|(?P<stars>\*+)"
    r"|(?P<one>\?)"
    r"|\[(?P<set>[!^]?\]?[^\]]*)\]"
    r"|\\(?P<escaped>.)"
    r"|(?P<brace>[{},])"
    r"|(?P<plain>.)",
    re.DOTALL,
)


def tidy(pattern: str) -> str:
    """The pattern as people mean it: without a leading `./`, `dir/` as `dir/**`, and `**.py` as
    `**/*.py`."""
    pattern = pattern.removeprefix("./")
    if pattern.endswith("/"):
        pattern += "**"
    return re.sub(r"(^|[/{,])\*\*(?=[^/*,}])", r"\1**/*", pattern)


def compile_wildcard(pattern: str) -> re.Pattern[str]:
    """A regular expression to `fullmatch` relative paths with. Raises ValueError, with the reason,
    for a set or a brace that is never closed."""
    body = pattern.removeprefix("/")
    anchored = "/" in pattern
    out, depth = [] if anchored else ["(?:.*/)?"], 0
    for token in _TOKEN.finditer(body):
        kind, text = token.lastgroup, token[token.lastgroup or 0]
        if kind == "brace":
            depth += {"{": 1, "}": -1}.get(text, 0)
            text = _brace(text, depth)
        elif kind == "plain" and text == "[":
            raise ValueError(f"the [ in {pattern!r} is never closed; write \\[ for a plain one")
        else:
            text = _expression(kind, text)
        if depth < 0:
            raise ValueError(f"a }} in {pattern!r} was never opened; write \\}} for a plain one")
        out.append(text)
    if depth:
        raise ValueError(f"the {{ in {pattern!r} is never closed; write \\{{ for a plain one")
    return re.compile("".join(out), re.DOTALL)


def _brace(text: str, depth: int) -> str:
    if text == ",":
        return "|" if depth else ","
    return "(?:" if text == "{" else ")"


def _expression(kind: str | None, text: str) -> str:
    if kind == "set":
        negated = text[:1] in ("!", "^")
        members = re.sub(r"([\\\[\]&~|^])", r"\\\1", text[negated:])
        return f"(?!/)[{'^' if negated else ''}{members}]"
    return {
        "deep": "(?:.*/)?",
        "rest": ".*",
        "stars": "[^/]*",
        "one": "[^/]",
    }.get(kind or "", re.escape(text))
