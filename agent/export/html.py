"""Markup that cannot be broken from within: every text is escaped where it enters, unless it is
`Html`, which only the functions here and the Markdown renderer make. What is wrong by mistake then
shows as tags to the reader; it never acts."""

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape
from importlib import resources
from typing import Any

from ...tools.system.unicode import clean_for_page


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def clean(text: str) -> str:
    """The text without escape sequences of terminals, control characters, marks that turn the
    direction of writing, and lone surrogates. A return of the carriage begins a line."""
    return clean_for_page(_ESCAPES.sub("", text))


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


def part(package: str | None, name: str) -> Html:
    """A file of the program's own, as it is."""
    return Html(resources.files(package or "").joinpath(name).read_text("utf-8"))


def sealed(title: str, body: Iterable[str], style: Html, script: Html) -> str:
    """The document. `style` adds to the look that all pages have (base.css); the script runs when
    all of the body is there."""
    style = Html(part(__package__, "base.css") + style)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", style),
    )
    inside = element("body", *body, element("script", script))
    return f"<!doctype html>\n{element('html', head, inside, lang='en')}\n"


def _policy(style: str, script: str) -> str:
    def named(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; style-src 'sha256-{named(style)}'; "
        f"script-src 'sha256-{named(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, moves of the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)
_VOID = ("img", "input", "meta")
