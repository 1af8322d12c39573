"""The templates of exported pages: files of HTML and SVG in which every value is cleaned and
escaped where it enters, unless it is `Markup`. A text of a session is never made `Markup`, so if it
stands in a wrong place it shows as tags to the reader and does not act.

This module loads jinja2: only modules that make a page may import it.
"""

import base64
import hashlib
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
        "source": _source,
        "cut_middle": cut_middle,
        "line_count": line_count,
        "thousands": "{:,}".format,
        "done_by": done_by,
    }
    environment.filters["csp_hash"] = _csp_hash
    return environment


def _cleaned(value: Any) -> Any:
    """Clean a value that a template inserts; jinja2 then escapes it."""
    return value if isinstance(value, Markup | int) else clean(str(value))


def _source(*names: str) -> Markup:
    """Return styles or scripts of the program's own, as they are."""
    return Markup("".join((_ROOT / name).read_text("utf-8") for name in names))


def _csp_hash(text: str) -> str:
    """Return the name of a style or script in a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
