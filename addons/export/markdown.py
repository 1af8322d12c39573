"""A session as Markdown, without compaction; and text of a session made safe to show.

Messages, calls and results are in order. The agent's Markdown becomes HTML for the page: HTML tags
stay plain text and images become links. Only http, https and mailto addresses become links, so the
page shows exactly what was written.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...api.base import regex
from ...api.pages import clean_text as clean
from ...api.record import (
    Assistant,
    Entry,
    ToolResult,
    User,
    content_text,
    search_text,
    shell_result,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


_MAX_NESTING = 100  # blocks within blocks; the parser leaves out deeper ones
REF = regex(r"#(\d{1,15})\b")
_SAFE = regex(r"(?:https?://|mailto:)", re.IGNORECASE)

FindAddress = Callable[[int], str | None]  # address of an entry in the page, by seq


def prose(text: str, find: FindAddress | None = None) -> Markup:
    """Render Markdown. With `find`, refs such as `#42` become links to their entries."""
    parser = _parser()
    tokens = parser.parse(clean(text))
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return Markup("<pre>{}</pre>").format(clean(text))
    for token in tokens:
        _adapt_block(token)
        if token.children:
            token.children = list(_adapt_inline(token.children, find))
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING})
    # The parser would remove a reference definition from the text.
    return parser.enable(["table", "strikethrough"]).disable("reference")


def _adapt_block(token: "Token") -> None:
    if token.tag in ("h1", "h2", "h3", "h4"):  # h1 and h2 are the page's own headings
        token.tag = f"h{int(token.tag[1]) + 2}"
    side = str(token.attrs.pop("style", ""))
    if side:  # the page forbids inline styles
        token.attrs["class"] = side.replace("text-align:", "to-")


def _adapt_inline(tokens: "list[Token]", find: FindAddress | None) -> "Iterator[Token]":
    inside: list[str] = []  # the tags of open links
    for token in tokens:
        if token.type == "link_open":
            _make_safe(token, str(token.attrs.get("href", "")))
            inside.append(token.tag)
        elif token.type == "link_close":
            token.tag = inside.pop()
        elif token.type == "image":
            yield from _image_link(token, inside)
            continue
        if token.type == "text" and find and not inside:
            yield from _link_refs(token, find)
        else:
            yield token


def _make_safe(token: "Token", address: str) -> None:
    """Make a link safe to follow. Show an unsafe address without a link."""
    token.attrs.clear()
    if _SAFE.match(address):
        token.attrs.update(href=address, rel="noopener noreferrer", target="_blank")
    else:
        token.tag = "span"
        token.attrs.update({"class": "nowhere", "title": address})


def _image_link(token: "Token", inside: list[str]) -> "Iterator[Token]":
    """Yield a link that replaces an image, or only its name inside another link. Nothing is
    fetched.
    """
    name = _token("text", "", 0, f"[image: {token.content or 'no name'}]")
    if inside:
        yield name
        return
    opened = _token("link_open", "a", 1)
    _make_safe(opened, str(token.attrs.get("src", "")))
    yield from (opened, name, _token("link_close", opened.tag, -1))


def _link_refs(token: "Token", find: FindAddress) -> "Iterator[Token]":
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


def markdown(name: str, entries: Sequence[Entry]) -> str:
    """Return a session as Markdown."""
    parts = [f"# Session {name}", *filter(None, map(_section, entries))]
    return "\n\n".join(parts) + "\n"


def _section(entry: Entry) -> str:
    if isinstance(entry, User) and entry.source == "shell":
        return _shell_command(entry)
    if isinstance(entry, User):
        whose = "User" if entry.source == "person" else entry.source.capitalize()
        return f"## {whose} · #{entry.seq}\n\n{content_text(entry.content)}"
    if isinstance(entry, Assistant):
        parts = [f"## Assistant · #{entry.seq}"]
        for block in entry.content:
            if block.get("type") == "text":
                parts.append(str(block.get("text")))
            elif block.get("type") == "tool_use":
                given = json.dumps(block.get("input"), ensure_ascii=False, indent=1)
                parts.append(f"**{block.get('name')}**\n\n{_fenced(given, 'json')}")
            elif text := search_text(block):
                parts.append(_fenced(text))
        return "\n\n".join(parts)
    return _result(entry) if isinstance(entry, ToolResult) else ""


def _shell_command(entry: User) -> str:
    """Return a command that the user ran, with its output."""
    told = content_text(entry.content[:-1]) if isinstance(entry.content, list) else ""
    return f"## The user ran · #{entry.seq}\n\n{_fenced(told)}\n\n{_result(shell_result(entry))}"


def _result(entry: ToolResult) -> str:
    head = f"### Result · #{entry.seq}" + (" · error" if entry.is_error else "")
    return f"{head}\n\n{_fenced(content_text(entry.content))}"


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
