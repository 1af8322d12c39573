"""A session as one text to take away: Markdown for people, a page for browsers, JSON for programs.

Each is made from the log and the files beside it, and needs nothing else to be read.
"""

import json
from pathlib import Path
from typing import Literal

from ..entries import encode
from ..log import read
from ..sessions import placed
from .chart import Scale
from .markdown import markdown
from .page import page

__all__ = ["FORMATS", "Format", "Scale", "export"]

Format = Literal["md", "html", "json"]
FORMATS: tuple[Format, ...] = ("md", "html", "json")


def export(log: Path, format: Format, *, scale: Scale | None = None) -> str:
    """A session in one of the formats; `json` is a list of its entries. `scale` is what the page's
    chart measures the context against. Raises SessionError for a log that cannot be read."""
    reading = read(log)
    if format == "json":
        return json.dumps([encode(e) for e in reading.entries], ensure_ascii=False, indent=1)
    if format == "html":
        return page(log, reading, scale)
    return markdown(placed(log)[1], reading.entries)
