"""`ctxagent recover`: the state of a session, or its records on a topic.

It asks no model. It writes only to record a failed recovery, so it also works while another process
has the session open.
"""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import CtxagentError
from .log import open_entries
from .options import exits_with_code, log_of, say

if TYPE_CHECKING:
    from ...tools.base import Passage


@click.command()
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
