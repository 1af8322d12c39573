"""What a person does by hand in a conversation, besides talking: a shell command of their own,
and a note that is kept. Both are recorded as words for the model, which sees them with the next
request; neither starts a turn.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..tools.base import Interrupted, Output
from ..tools.bash import Bash, BashParams
from .events import ToolFinished, ToolStarted
from .loop import Loop
from .record.entries import SAID, Block, Pin, Unpin, User

SHELL = "Shell"  # what a command by hand is called where tool calls are shown
NAMED = 10  # changed files that the model is told of

_RAN = "[The user ran a command in a shell of their own, in {cwd}:]\n{command}"
_NOTE = "[The user notes, to be kept in mind until they take it back:]\n{words}"
_TAKEN_BACK = "[The user takes back what they pinned in #{ref}: it need not be kept in mind.]"


class _ByHand(BashParams):
    timeout: float = math.inf  # the person who waits for it ends it


async def run(loop: Loop, command: str) -> None:
    """Run a person's command in the project and record it, with its output and what it changed.
    Nobody is asked; its output is told as that of a tool is.

    Cancelled, it ends the command and records what there was. Raises RecordError.
    """
    loop.log.check()
    await loop.begin()
    execution, id = loop.execution(), f"shell-{loop.log.last_seq + 1}"
    execution.context = replace(loop.context, sandbox=None)  # a person has none in a shell either
    given = {"command": command}
    loop.emit(ToolStarted(id, SHELL, command, given))
    started = time.monotonic()
    try:
        output = await execution.watched(Bash(), _ByHand.model_validate(given), id)
    except Interrupted as interrupted:
        output = interrupted.output
        _calm()
    except asyncio.CancelledError:
        output = Output("[interrupted by the user]", {"interrupted": True}, is_error=True)
        _calm()
    output = loop.context.redact(output)
    details = given | output.details
    text, offloaded = execution.demoted("shell", output.text, details)
    recorded = loop.record(
        User(
            content=_told(loop, command, text, details),
            source="shell",
            details=details,
            offloaded=offloaded,
        )
    )
    loop.log.sync()
    seconds = time.monotonic() - started
    loop.emit(
        ToolFinished(id, SHELL, command, output.is_error, text, seconds, details, recorded.seq)
    )


async def note(loop: Loop, words: str) -> int:
    """Pin a person's own words: the model sees them with the next request, and verbatim in every
    summary. The ref that takes them back. Raises RecordError."""
    await loop.begin()
    ref = loop.record(User(content=_NOTE.format(words=words), source="note")).seq
    loop.record(Pin(ref=ref, text=words))
    return ref


def unpin(loop: Loop, ref: int) -> None:
    """No longer keep what is pinned under a ref; the model is told, where it sees the note or the
    pin in a summary. Raises RecordError."""
    loop.record(Unpin(ref=ref))
    place, summary = loop.view.position(ref), loop.view.summary
    noted = place is not None and loop.view.items[place].source == "note"
    if noted or (summary and f"\n#{ref}: " in summary.text):
        loop.record(User(content=_TAKEN_BACK.format(ref=ref), source="notice"))


def _told(loop: Loop, command: str, text: str, details: dict[str, Any]) -> list[Block]:
    ran = _RAN.format(cwd=loop.context.cwd, command=command)
    if changes := details.get("changes"):
        ran += f"\n[It changed: {_named(loop, changes)}]"
    return [{"type": "text", "text": part} for part in (ran, SAID + text)]


def _named(loop: Loop, changes: Sequence[dict[str, Any]]) -> str:
    named = [f"{loop.ledger.shown(c['path'])} ({c['action']})" for c in changes[:NAMED]]
    more = len(changes) - NAMED
    return ", ".join([*named, *([f"and {more:,} more"] if more > 0 else [])])


def _calm() -> None:
    """The interrupt of the person ends the command, not what records it."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
