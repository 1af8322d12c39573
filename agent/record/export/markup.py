"""Markup that cannot be broken from within: every text is escaped where it enters, unless it is
`Html`, which only the functions here and the Markdown renderer make. What is wrong by mistake then
shows as tags to the reader; it never acts."""

import re
from collections.abc import Iterable
from html import escape
from typing import Any

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, moves of the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)
_VISIBLE = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\N{REPLACEMENT CHARACTER}"),
    **{c: f"\\u{c:04x}" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    **dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\N{REPLACEMENT CHARACTER}"),
    ord("\n"): "\n",
    ord("\t"): "\t",
}
_VOID = ("img", "input", "meta")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def clean(text: str) -> str:
    """The text without escape sequences of terminals, control characters, marks that turn the
    direction of writing, and lone surrogates. A return of the carriage begins a line."""
    text = _ESCAPES.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_VISIBLE)


def html(text: str) -> Html:
    """A text as markup: cleaned and escaped, or as it is when it is markup already."""
    return text if isinstance(text, Html) else Html(escape(clean(text)))


def joined(parts: Iterable[str]) -> Html:
    return Html("".join(map(html, parts)))


def element(name: str, /, *inside: str, **attributes: Any) -> Html:
    """An element. In the names of attributes `_` stands for `-`, and one at the end for nothing;
    None and False leave the attribute out, True gives it without a value."""
    given = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        given.append(label if value is True else f'{label}="{html(str(value))}"')
    opened = f"<{' '.join(given)}>"
    return Html(opened if name in _VOID else f"{opened}{joined(inside)}</{name}>")


def folded(head: str, *inside: str, open: bool = False, **attributes: Any) -> Html:
    """What shows its head alone until it is unfolded."""
    return element("details", element("summary", head), *inside, open=open, **attributes)
