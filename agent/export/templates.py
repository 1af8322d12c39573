"""The templates of exported pages: files of HTML and SVG in which every value is cleaned and
escaped where it enters, unless it is `Markup`. A text of a session is never made `Markup`, so if it
stands in a wrong place it shows as tags to the reader and does not act.

This module loads jinja2: only modules that make a page may import it.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..session.layer_words import done_by
from .text import clean, cut_middle, line_count

_ROOT = Path(__file__).parents[1]  # the names of templates and sources are paths within it


def render(template: str, **values: Any) -> Markup:
    """Render a template, named as in `export/page.html.j2`."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_ROOT),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "source": source,
        "content_policy": content_policy,
        "cut_middle": cut_middle,
        "line_count": line_count,
        "thousands": "{:,}".format,
        "done_by": done_by,
    }
    return environment


def _cleaned(value: Any) -> Any:
    """Clean a value that a template inserts; jinja2 then escapes it."""
    return value if isinstance(value, Markup | int) else clean(str(value))


def source(*names: str) -> Markup:
    """Return styles or scripts of the program's own, as they are."""
    return Markup("".join((_ROOT / name).read_text("utf-8") for name in names))


def content_policy(style: str, script: str, connect: str = "'none'") -> Markup:
    """Return the content security policy of a page: nothing but this style and this script may load
    or run, and the script may ask `connect` alone."""
    return Markup(
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        f"connect-src {connect}; img-src data:; base-uri 'none'; form-action 'none'"
    )


def page_headers(styles: Sequence[str], scripts: Sequence[str], connect: str) -> Mapping[str, str]:
    """Return the headers that keep a served page to itself."""
    policy = content_policy(
        source("export/base.css", *styles), source("export/base.js", *scripts), connect
    )
    return {
        "content-security-policy": f"{policy}; frame-ancestors 'none'",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }


def _digest(text: str) -> str:
    """Return the name of a style or script in a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
