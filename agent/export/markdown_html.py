"""The agent's Markdown as HTML. Markup in it stays text, images become links, and only addresses
of the web and of mail become links at all; a page shows exactly what was written."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from .html import Html, clean, element

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DEEPEST = 100  # blocks within blocks; the parser leaves out what nests deeper
REF = re.compile(r"#(\d{1,15})\b")
_SAFE = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)

Find = Callable[[int], str | None]  # the address, in the page, of the entry of that number


def prose(text: str, find: Find | None = None) -> Html:
    """Markdown as markup. With `find`, refs such as `#42` lead to their entries."""
    parser = _parser()
    tokens = parser.parse(clean(text))
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return element("pre", text)
    for token in tokens:
        _block(token)
        if token.children:
            token.children = list(_inline(token.children, find))
    return Html(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST})
    # Definitions of links would not be seen.
    return parser.enable(["table", "strikethrough"]).disable("reference")


def _block(token: "Token") -> None:
    if token.tag in ("h1", "h2", "h3", "h4"):  # the page's own headings stand above
        token.tag = f"h{int(token.tag[1]) + 2}"
    side = str(token.attrs.pop("style", ""))
    if side:  # the page allows no styles but its own
        token.attrs["class"] = side.replace("text-align:", "to-")


def _inline(tokens: "list[Token]", find: Find | None) -> "Iterator[Token]":
    inside: list[str] = []  # the tags of open links
    for token in tokens:
        if token.type == "link_open":
            _check(token, str(token.attrs.get("href", "")))
            inside.append(token.tag)
        elif token.type == "link_close":
            token.tag = inside.pop()
        elif token.type == "image":
            yield from _pictured(token, inside)
            continue
        if token.type == "text" and find and not inside:
            yield from _referring(token, find)
        else:
            yield token


def _check(token: "Token", address: str) -> None:
    """Make a link safe to follow; one that leads elsewhere only names its target."""
    token.attrs.clear()
    if _SAFE.match(address):
        token.attrs.update(href=address, rel="noopener noreferrer", target="_blank")
    else:
        token.tag = "span"
        token.attrs.update({"class": "nowhere", "title": address})


def _pictured(token: "Token", inside: list[str]) -> "Iterator[Token]":
    """A link in the place of an image, or its name in a link that stands around it: nothing is
    fetched."""
    name = _token("text", "", 0, f"[image: {token.content or 'no name'}]")
    if inside:
        yield name
        return
    opened = _token("link_open", "a", 1)
    _check(opened, str(token.attrs.get("src", "")))
    yield from (opened, name, _token("link_close", opened.tag, -1))


def _referring(token: "Token", find: Find) -> "Iterator[Token]":
    end = 0
    for match in REF.finditer(token.content):
        address = find(int(match[1]))
        if address is None:
            continue
        yield _token("text", "", 0, token.content[end : match.start()])
        opened = _token("link_open", "a", 1)
        opened.attrs["href"] = address
        yield opened
        yield _token("text", "", 0, match[0])
        yield _token("link_close", "a", -1)
        end = match.end()
    yield _token("text", "", 0, token.content[end:])


def _token(kind: str, tag: str, nesting: int, content: str = "") -> "Token":
    from markdown_it.token import Token

    return Token(kind, tag, nesting, content=content)  # type: ignore[arg-type]
