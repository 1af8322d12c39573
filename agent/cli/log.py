"""`ctxagent log`: the compactions of a session, as text or JSON.

It only reads, so it also works while another process has the session open.
"""

import json
from collections.abc import Iterable, Iterator, Reversible, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import exits_with_code, log_of, project_of, say

if TYPE_CHECKING:
    from ..session.entries import Entry


@click.command()
@click.argument("id", required=False)
@click.option("--entries", is_flag=True, help="Print every entry of the log, one per line.")
@click.option("--stats", is_flag=True, help="Print metrics and their targets.")
@click.option(
    "--project",
    "everything",
    is_flag=True,
    help="With --stats: for all sessions of this directory.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line; with --stats, a single one.",
)
@click.pass_obj
@exits_with_code
def log(
    options: dict[str, Any],
    id: str | None,
    entries: bool,
    stats: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """List the compactions of a session; by default the newest here.

    Checkpoints, drift, phases and undone compactions are listed too.
    """
    if entries and stats:
        raise UsageError("--entries and --stats exclude each other", hint="Give one of them.")
    if everything and (id or not stats):
        raise UsageError("--project needs --stats and does not take a session")
    if stats:
        logs = project_of(options).logs() if everything else [log_of(options, id)]
        _print_metrics(logs, as_json)
        return 0
    with open_entries(log_of(options, id)) as found:
        if entries:
            _print_entries(found, as_json)
        else:
            _print_acts(found, as_json)
    return 0


def _print_acts(entries: "Iterable[Entry]", as_json: bool) -> None:
    from ..compaction.history import acts, marks
    from ..ui import compaction_report

    done, others = acts(entries), marks(entries)
    if as_json:
        rows = [*(act.to_json() for act in done), *(mark.to_json() for mark in others)]
        for data in sorted(rows, key=lambda data: int(data["ref"])):
            say(json.dumps(data))
    else:
        say(compaction_report.event_log(done, others))


def _print_entries(entries: "Iterable[Entry]", as_json: bool) -> None:
    from ..session.entries import encode
    from ..ui import compaction_report

    for entry in entries:
        if as_json:
            say(json.dumps(encode(entry)))
        else:
            say(f"#{entry.seq}  {entry.at}  {entry.kind}  {compaction_report.entry_line(entry)}")


def _print_metrics(logs: Sequence[Path], as_json: bool) -> None:
    from ..compaction.metrics import session_metrics, total_metrics
    from ..ui import compaction_report

    parts = []
    for path in logs:
        with open_entries(path) as entries:
            parts.append(session_metrics(entries))
    measured = total_metrics(parts)
    if as_json:
        say(json.dumps(measured.to_json()))
    else:
        say(compaction_report.metrics(measured))


@contextmanager
def open_entries(path: Path) -> "Iterator[Reversible[Entry]]":
    """Open the entries of a log of any length. Print a warning for each skipped line."""
    from ..session.log import Entries

    warnings: list[str] = []
    yield Entries(path, warnings)
    for warning in dict.fromkeys(warnings):
        say(f"warning: {warning}", err=True)
