"""`ctxagent log`: what compaction did to a session, for people and for programs. It reads logs,
also of a session that another process is in, and changes nothing."""

import json
from collections.abc import Iterable, Iterator, Reversible, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import guarded, project_of, say

if TYPE_CHECKING:
    from ..record.entries import Entry


@click.command()
@click.argument("id", required=False)
@click.option("--entries", is_flag=True, help="Every entry of the log, one a line.")
@click.option("--stats", is_flag=True, help="The metrics, with their targets.")
@click.option("--project", "everything", is_flag=True, help="With --stats: of all sessions here.")
@click.option("--json", "as_json", is_flag=True, help="One object a line; for --stats, one in all.")
@click.pass_obj
def log(
    options: dict[str, Any],
    id: str | None,
    entries: bool,
    stats: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Every act of compaction in a session, by default the newest one here.

    Checkpoints, drift, phases and what was taken back stand among them.
    """

    def run() -> int:
        if entries and stats:
            raise UsageError("--entries and --stats are two things", hint="Give one of them.")
        if everything and (id or not stats):
            raise UsageError("--project takes --stats and no session")
        project = project_of(options)
        if everything:
            logs = project.logs()
        else:
            logs = [project.newest() if id is None else project.find(id)]
        if stats:
            _tell_metrics(logs, as_json)
        elif entries:
            with _entries(logs[0]) as found:
                _tell_entries(found, as_json)
        else:
            with _entries(logs[0]) as found:
                _tell_acts(found, as_json)
        return 0

    guarded(run)


def _tell_acts(entries: "Iterable[Entry]", as_json: bool) -> None:
    from ..compaction.acts import acts, marks
    from ..ui import report

    done, others = acts(entries), marks(entries)
    if as_json:
        told = [*(act.to_json() for act in done), *(mark.to_json() for mark in others)]
        for data in sorted(told, key=lambda data: int(data["ref"])):
            _say_json(data)
    else:
        say(report.events(done, others))


def _tell_entries(entries: "Iterable[Entry]", as_json: bool) -> None:
    from ..record.entries import encode
    from ..ui import report

    for entry in entries:
        if as_json:
            _say_json(encode(entry))
        else:
            say(f"#{entry.seq}  {entry.at}  {entry.kind}  {report.line(entry)}")


def _tell_metrics(logs: Sequence[Path], as_json: bool) -> None:
    from ..compaction.metrics import measure, total
    from ..ui import report

    parts = []
    for path in logs:
        with _entries(path) as entries:
            parts.append(measure(entries))
    measured = total(parts)
    if as_json:
        _say_json(measured.to_json())
    else:
        say(report.metrics(measured))


@contextmanager
def _entries(path: Path) -> "Iterator[Reversible[Entry]]":
    """The entries of a log, however long it is; in the end, a warning for each line skipped."""
    from ..record.log import Entries

    warnings: list[str] = []
    yield Entries(path, warnings)
    for warning in dict.fromkeys(warnings):
        say(f"warning: {warning}", err=True)


def _say_json(data: dict[str, Any]) -> None:
    say(json.dumps(data))
