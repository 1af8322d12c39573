"""Templates of exported pages: HTML and SVG files in which every inserted value is cleaned and
escaped, except `Markup`. Session texts never become `Markup`, so a tag in them is shown and has no
effect.

This module imports jinja2, so only modules that make a page may import it.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...tools.system.plural import count_of
from ..compaction.layers.known import done_by, known_layers
from .figures import axis_numbers, format_dollars, format_ratio, format_tokens, short_tokens
from .text import clean, cut_middle, line_count

_ROOT = Path(__file__).parents[2]  # names of templates and sources are relative to it


def render(template: str, **values: Any) -> Markup:
    """Render a template, named by its path in the package, e.g. `agent/pages/base.html.j2`."""
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
        "count_of": count_of,
        "axis_numbers": axis_numbers,
        "short_tokens": short_tokens,
        "format_tokens": format_tokens,
        "format_dollars": format_dollars,
        "format_ratio": format_ratio,
        "done_by": done_by,
        "known_layers": known_layers,
    }
    return environment


def _cleaned(value: Any) -> Any:
    """Clean a value that a template inserts. jinja2 then escapes it."""
    return value if isinstance(value, Markup | int) else clean(str(value))


def source(*names: str) -> Markup:
    """Return the program's own style or script files, concatenated."""
    return Markup("".join((_ROOT / name).read_text("utf-8") for name in names))


def content_policy(style: str, script: str, connect: str = "'none'") -> Markup:
    """Return the content security policy of a page: only this style and this script may load or
    run, and the script may connect only to `connect`.
    """
    return Markup(
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        f"connect-src {connect}; img-src data:; base-uri 'none'; form-action 'none'"
    )


def page_headers(styles: Sequence[str], scripts: Sequence[str], connect: str) -> Mapping[str, str]:
    """Return HTTP headers that isolate a served page."""
    policy = content_policy(
        source("agent/pages/base.css", *styles), source("agent/pages/base.js", *scripts), connect
    )
    return {
        "content-security-policy": f"{policy}; frame-ancestors 'none'",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }


def _digest(text: str) -> str:
    """Return the hash of a style or script for a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
