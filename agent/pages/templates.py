"""Templates of exported pages: HTML and SVG files in which every inserted value is cleaned and
escaped, except `Markup`. Session texts never become `Markup`, so a tag in them is shown and has no
effect.

This module imports jinja2, so only modules that make a page may import it.
"""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...tools.system.phrasing import count_of
from ...tools.system.unicode import clean_for_page
from ..compaction.history import readable_trigger
from ..compaction.layers.known import done_by, known_layers
from ..lazy import regex

MAX_TEXT_CHARS = 256 * 1024  # of one text on a page


_ESCAPE_SEQUENCE = regex(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)


def clean(text: str) -> str:
    """Remove terminal escape sequences. Replace control characters, bidirectional marks and lone
    surrogates. A carriage return starts a new line.
    """
    if text.isascii() and text.isprintable():  # fast path for most short texts
        return text
    return clean_for_page(_ESCAPE_SEQUENCE.sub("", text))


def cut_middle(text: str, where: str) -> str:
    """Cut the middle of a text longer than MAX_TEXT_CHARS; `where` says where the whole text is."""
    return text if len(text) <= MAX_TEXT_CHARS else join_ends(text, text, len(text), where)


def join_ends(begin: str, end: str, total: int, where: str) -> str:
    """Return the two ends of a text of `total` characters, taken from the parts given."""
    head, tail = begin[: MAX_TEXT_CHARS * 3 // 4], end[-MAX_TEXT_CHARS // 4 :]
    missing = total - len(head) - len(tail)
    return f"{head}\n\n[… {missing:,} characters are left out; {where} …]\n\n{tail}"


def line_count(text: str) -> str:
    return count_of(text.count("\n") + (not text.endswith("\n")), "line")


NO_FIGURE = "-"  # shown if a figure is undefined
_AXIS_LABELS = 5


def axis_numbers(calls: int, min_step: int = 1) -> Sequence[int]:
    """Return the numbers of the calls with a label on the axis."""
    step = max(min_step, round_up(calls / _AXIS_LABELS))
    few = calls <= 2 * _AXIS_LABELS
    return range(1, calls + 1) if few else [1, *range(step, calls + 1, step)]


def round_up(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50 … that is at least `least`."""
    power: int = 10 ** max(0, math.floor(math.log10(max(least, 1))))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least)


def short_tokens(tokens: int) -> str:
    """Format a number of tokens for an axis: 500, 12.5k, 1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.4g}{unit}"
    return str(tokens)


def format_tokens(count: float) -> str:
    """Format a number of tokens in at most five characters: 812, 9.8k, 71k, 14.9M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:.0f}{unit}" if value >= 99.95 else f"{value:.1f}{unit}"
    return f"{count:.0f}"


def format_dollars(amount: float) -> str:
    return f"{amount:.4f}" if 0 < amount < 0.1 else f"{amount:,.2f}"


def format_percent(value: float | None) -> str:
    """Format a share, rounded down, so that only 1 reads as 100%."""
    if value is None:
        return NO_FIGURE
    if 0 < value < 0.01:
        return "<1%"
    if 0.99 < value < 1:
        return f"{min(math.floor(value * 1000), 999) / 10:.1f}%"
    return f"{math.floor(value * 100 + 1e-9)}%"


def format_ratio(ratio: float | None) -> str:
    return NO_FIGURE if ratio is None else f"{ratio:.2f}"


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
        "readable_trigger": readable_trigger,
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
