"""A whole page of HTML that needs no network: its own style and script stand in it and are named by
their hashes, and nothing else may load or run, whatever its text holds."""

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources

from .markup import Html, element


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
