"""The commands that read a log: `ctxagent log` lists the compactions, `ctxagent recover` the state.

Both work while another process has the session open, and neither asks a model. `recover` writes
only to record a failed recovery.
"""

import json
import os
from collections.abc import Iterable, Iterator, Reversible, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import CtxagentError, UsageError
from .options import exits_with_code, load, log_of, project_of, say

if TYPE_CHECKING:
    from ...tools.base import Passage
    from ..session.entries import Entry


@click.command(epilog="Example: ctxagent log --stats")
@click.argument("id", required=False)
@click.option("--entries", is_flag=True, help="Print every entry of the log, one per line.")
@click.option("--stats", is_flag=True, help="Print metrics and their targets.")
@click.option(
    "--levels",
    is_flag=True,
    help="Show the names of the published protocol, which its presets always show.",
)
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
    levels: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """List the compactions of a session; by default the newest here.

    Checkpoints, drift, phases and undone compactions are listed too.
    """
    if entries and stats:
        raise UsageError("--entries and --stats exclude each other", hint="Give one of them.")
    if everything and (id or not stats):
        raise UsageError(
            "--project needs --stats and does not take a session",
            hint="Give `ctxagent log --stats --project`, or an ID without --project.",
        )
    if stats:
        logs = project_of(options).logs() if everything else [log_of(options, id)]
        _print_metrics(logs, as_json)
        return 0
    from ..compaction.policy import policy_of

    path = log_of(options, id)
    levels = levels or policy_of(load(options).settings).is_published
    with open_entries(path) as found:
        if entries:
            _print_entries(found, as_json)
        else:
            _print_acts(found, as_json, levels)
    return 0


def _print_acts(entries: "Iterable[Entry]", as_json: bool, levels: bool) -> None:
    from ..compaction.history import acts, marks
    from ..ui import compaction_report

    done, others = acts(entries), marks(entries)
    if as_json:
        rows = [*(act.to_json() for act in done), *(mark.to_json() for mark in others)]
        for data in sorted(rows, key=lambda data: int(data["ref"])):
            say(json.dumps(data))
    else:
        say(compaction_report.event_log(done, others, levels=levels))


def _print_entries(entries: "Iterable[Entry]", as_json: bool) -> None:
    from ..session.entries import encode
    from ..ui import compaction_report

    for entry in entries:
        if as_json:
            say(json.dumps(encode(entry)))
        else:
            say(f"#{entry.seq}  {entry.at}  {entry.kind}  {compaction_report.entry_line(entry)}")


def _print_metrics(logs: Sequence[Path], as_json: bool) -> None:
    from ..compaction.history import session_metrics, total_metrics
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


@click.command(epilog="Example: ctxagent recover 2")
@click.argument("what", metavar="1|2|3|TOPIC", nargs=-1, required=True)
@click.option("--session", "id", metavar="ID", help="The session; by default the newest one here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
@exits_with_code
def recover(options: dict[str, Any], what: tuple[str, ...], id: str | None, as_json: bool) -> int:
    """Print the state of a session, or find a TOPIC in its records.

    Levels 1, 2 and 3 print about 100, 500 and 2,000 tokens. A TOPIC is searched in the session
    first, then in the other sessions of its project.
    """
    log = log_of(options, id)
    topic = " ".join(what)
    if topic in ("1", "2", "3"):
        return _print_level(log, int(topic), as_json)
    return _print_findings(log, topic, as_json)


def print_passages(passages: "Sequence[Passage]") -> None:
    """Print passages with their references."""
    for passage in passages:
        say(f"{passage.ref} · {passage.what} · {passage.at}")
        say("\n".join(f"    {line}" for line in passage.excerpt.split("\n")))


def _print_level(log: Path, number: int, as_json: bool) -> int:
    from ..compaction.recovery import recover_session
    from ..context.tokens import estimate

    with open_entries(log) as entries:
        state = recover_session(entries, number, disk=True)
    if state.failure:
        say(f"warning: {state.failure}{_record_failure(log, state.failure)}", err=True)
    if as_json:
        row = {**asdict(state), "session": log.parent.name, "tokens": estimate(state.text)}
        say(json.dumps(row, ensure_ascii=False))
    else:
        say(state.text)
    return 0


def _record_failure(path: Path, why: str) -> str:
    """Record in a session's log that its recovery failed. Return a note about the record."""
    from ..compaction.recovery import failure_note
    from ..session.log import Log

    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":  # keep the torn line, which opening would cut off, for doctor
            return " (not recorded: the last line of the log is torn)"
    try:
        log = Log.open(path)
    except CtxagentError as error:  # open in another process
        return f" (not recorded: {error.message})"
    with closing(log):
        return f" (recorded: #{log.append(failure_note(why)).seq})"


def _print_findings(log: Path, topic: str, as_json: bool) -> int:
    from ..session.search.recall import search_sessions
    from ..session.store import locate_log

    findings = search_sessions(*locate_log(log), topic, "project", patience=None)
    if as_json:
        rows = [asdict(passage) for passage in findings.passages]
        document = {"session": log.parent.name, "topic": topic, "found": rows}
        say(json.dumps(document, ensure_ascii=False))
    else:
        print_passages(findings.passages)
    if not findings.passages:
        say(f"nothing found: {topic}\nSearched: {findings.searched}.", err=True)
    return 0 if findings.passages else 1
