"""A session as one text to take away: Markdown for people, a page for browsers, JSON for programs.

Each is made from the log and the files beside it, and needs nothing else to be read.
"""

import json
import re
from pathlib import Path
from typing import Literal

from ..session.entries import encode
from ..session.log import Redact, read_log, without_redaction
from ..session.store import locate_log
from .chart import Scale
from .markdown import markdown
from .page import page

__all__ = ["FORMATS", "Format", "Scale", "export"]

Format = Literal["md", "html", "json"]
FORMATS: tuple[Format, ...] = ("md", "html", "json")

_HALF = re.compile(r"[\ud800-\udfff]")  # of a character: no file can hold it, JSON can escape it


def export(
    log: Path, format: Format, *, scale: Scale | None = None, redact: Redact = without_redaction
) -> str:
    """A session in one of the formats; `json` is a list of its entries. `scale` is what the page's
    chart measures the context against; `redact` takes out of each entry what must not be told.
    Raises SessionError for a log that cannot be read."""
    reading = read_log(log)
    reading.entries = [redact(entry) for entry in reading.entries]
    if format == "json":
        told = [encode(entry) for entry in reading.entries]
        text = json.dumps(told, ensure_ascii=False, indent=1)
        return json.dumps(told, indent=1) if _HALF.search(text) else text
    if format == "html":
        return page(log, reading, scale, redact)
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", markdown(locate_log(log)[1], reading.entries))
