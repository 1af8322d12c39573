"""`ctxagent recover`: how a session stands, at one of three levels, or what its archive has on a
topic. It reads logs, also of a session that another process is in, and asks no model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import guarded, project_of, say

if TYPE_CHECKING:
    from ..recall import Passage


@click.command()
@click.argument("what", metavar="1|2|3|TOPIC", nargs=-1, required=True)
@click.option("--session", "id", metavar="ID", help="By default the newest one here.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def recover(options: dict[str, Any], what: tuple[str, ...], id: str | None, as_json: bool) -> None:
    """Tell how a session stands, in about 100, 500 or 2,000 tokens, or find a TOPIC in what was
    recorded: in the session first, then in the others of its project."""

    def run() -> int:
        project = project_of(options)
        log = project.newest() if id is None else project.find(id)
        topic = " ".join(what)
        if topic in ("1", "2", "3"):
            return _tell_level(log, int(topic), as_json)
        return _tell_topic(log, topic, as_json)

    guarded(run)


def tell(passages: "Sequence[Passage]") -> None:
    """Print what was found."""
    for passage in passages:
        say(f"{passage.ref} · {passage.what} · {passage.at}")
        say("\n".join(f"    {line}" for line in passage.excerpt.split("\n")))


def _tell_level(log: Path, number: int, as_json: bool) -> int:
    from dataclasses import asdict

    from ..context.tokens import estimate
    from ..record.log import Entries
    from ..recovery import recovered

    warnings: list[str] = []
    told = recovered(Entries(log, warnings), number, disk=True)
    for warning in dict.fromkeys(warnings):
        say(f"warning: {warning}", err=True)
    if told.failure:
        say(f"warning: {told.failure}", err=True)
    if as_json:
        row = {**asdict(told), "session": log.parent.name, "tokens": estimate(told.text)}
        say(json.dumps(row, ensure_ascii=False))
    else:
        say(told.text)
    return 0


def _tell_topic(log: Path, topic: str, as_json: bool) -> int:
    from dataclasses import asdict

    from ..recall import find
    from ..record.sessions import placed

    findings = find(*placed(log), topic, "project", patience=None)
    if as_json:
        rows = [asdict(passage) for passage in findings.passages]
        say(json.dumps({"session": log.parent.name, "topic": topic, "found": rows},
                       ensure_ascii=False))  # fmt: skip
    else:
        tell(findings.passages)
    if not findings.passages:
        say(f"nothing found: {topic}\nSearched: {findings.searched}.", err=True)
    return 0 if findings.passages else 1
