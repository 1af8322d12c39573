"""The export of one session."""

import json
from pathlib import Path

from ...api.base import regex
from ...api.context import LEVELS
from ...api.models import known_limits
from ...api.pages import ExportFormat
from ...api.record import Entry, Redact, Session, encode, locate_log, read_log
from .chart import WindowScale
from .markdown import markdown

_SURROGATE = regex(r"[\ud800-\udfff]")  # not encodable in UTF-8, but JSON can escape it


def export(log: Path, format: ExportFormat, window: int | None, redact: Redact) -> str:
    """Return a session in a format, as `ctxagent.agent.pages.export` describes."""
    contents = read_log(log)
    contents.entries = [redact(entry) for entry in contents.entries]
    if format == "json":
        entries = [encode(entry) for entry in contents.entries]
        text = json.dumps(entries, ensure_ascii=False, indent=1)
        return json.dumps(entries, indent=1) if _SURROGATE.search(text) else text
    if format == "html":
        from .page import page  # it loads jinja2

        return page(log, contents, _scale(contents.entries, window), redact)
    text = markdown(locate_log(log)[1], contents.entries)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _scale(entries: list[Entry], window: int | None) -> WindowScale | None:
    """Return the scale of the window, by default that of the session's model, if known."""
    if window is None:
        models = [entry.model for entry in entries if isinstance(entry, Session)]
        limits = known_limits(models[-1]) if models else None
        window = limits.window if limits else None
    return WindowScale(window, LEVELS) if window else None
