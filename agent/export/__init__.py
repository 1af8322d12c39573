"""Export a session as Markdown for people, an HTML page for browsers, or JSON for programs. Each
export is one self-contained text made from the log and the files next to it.
"""

import json
from pathlib import Path
from typing import Literal

from ..lazy import regex
from ..session.entries import encode
from ..session.log import Redact, read_log, without_redaction
from ..session.store import locate_log
from .chart import WindowScale
from .markdown import markdown

__all__ = ["EXPORT_FORMATS", "ExportFormat", "WindowScale", "export"]

ExportFormat = Literal["md", "html", "json"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("md", "html", "json")

_SURROGATE = regex(r"[\ud800-\udfff]")  # not encodable in UTF-8, but JSON can escape it


def export(
    log: Path,
    format: ExportFormat,
    *,
    scale: WindowScale | None = None,
    redact: Redact = without_redaction,
) -> str:
    """Return a session in one of the formats; JSON is a list of its entries.

    `scale` is the context window for the page's chart. `redact` removes secrets from each entry.
    Raises SessionError if the log cannot be read.
    """
    contents = read_log(log)
    contents.entries = [redact(entry) for entry in contents.entries]
    if format == "json":
        entries = [encode(entry) for entry in contents.entries]
        text = json.dumps(entries, ensure_ascii=False, indent=1)
        return json.dumps(entries, indent=1) if _SURROGATE.search(text) else text
    if format == "html":
        from .page import page  # it loads jinja2

        return page(log, contents, scale, redact)
    text = markdown(locate_log(log)[1], contents.entries)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
