"""`ctxagent sessions show` and `ctxagent sessions export`."""

import os
from typing import TYPE_CHECKING, Any

import click

from ...api.cli import exits_with_code, load_for_reading, project_of, say

if TYPE_CHECKING:
    from ...api.pages import ExportFormat


@click.command("show", epilog="Example: ctxagent sessions show 20261130-0912")
@click.argument("id")
@click.pass_obj
@exits_with_code
def show_session(options: dict[str, Any], id: str) -> int:
    """Print a session as Markdown."""
    return _export(options, id, "md")


@click.command(
    "export", epilog="Example: ctxagent sessions export 20261130-0912 --format html > session.html"
)
@click.argument("id")
@click.option(
    "--format",
    type=click.Choice(["md", "html", "json"]),
    default="md",
    show_default=True,
    help="The format: Markdown, an HTML page or JSON.",
)
@click.pass_obj
@exits_with_code
def export_session(options: dict[str, Any], id: str, format: "ExportFormat") -> int:
    """Write a session to standard output."""
    return _export(options, id, format)


def _export(options: dict[str, Any], id: str, format: "ExportFormat") -> int:
    from ...api.guard import redaction_for
    from .export import export

    loaded = load_for_reading(options)
    redaction = redaction_for(os.environ, shapes=loaded.settings.state.redact)
    log = project_of(options, loaded).find_log(id)
    window = loaded.settings.model.context_window
    say(export(log, format, window, redaction.clean), nl=False)
    return 0
