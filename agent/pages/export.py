"""The export of a session, which an add-on writes."""

from pathlib import Path
from typing import Literal

from ..border.entry_points import service
from ..session.log import Redact, without_redaction

ExportFormat = Literal["md", "html", "json"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("md", "html", "json")


def export(
    log: Path,
    format: ExportFormat,
    *,
    window: int | None = None,
    redact: Redact = without_redaction,
) -> str:
    """Return a session in one of the formats; JSON is a list of its entries.

    `window` is the context window for the page's chart, in tokens; by default that of the session's
    model. `redact` removes secrets from each entry. Raises SessionError if the log cannot be read,
    and UsageError without the add-on.
    """
    text: str = service("export")(log, format, window, redact)
    return text
