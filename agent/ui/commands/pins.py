"""Commands about pins: what stands verbatim in every summary."""

import re
from typing import TYPE_CHECKING

from ...errors import UsageError
from .registry import Desk, command

if TYPE_CHECKING:
    from ...loop import Loop

MOST = 0.10  # of the window: what pins may fill
SHOWN = 80  # characters of a pinned text in a list
_REF = re.compile(r"#?(-?\d+)")


@command("keep an entry or words verbatim in every summary", argument="[REF|WORDS]")
async def _pin(desk: Desk, argument: str) -> None:
    from ...record.entries import Pin
    from ...record.sessions import whole_text
    from .. import render

    if not argument:
        _list(desk)
        return
    pin, loop = Pin(text=argument), desk.loop
    if found := _REF.fullmatch(argument):
        ref = int(found[1])
        text = whole_text(loop.log.path, ref)
        if not (text and text.strip()):
            raise UsageError(f"there is no entry #{ref} with text", hint="/log lists the newest.")
        pin = Pin(ref=ref, text=text)
    _check_room(loop, pin.text)
    recorded = loop.record(pin)
    desk.put(render.dim(f"pinned as #{pin.ref or recorded.seq}: {_start(pin.text)}"))


@command("no longer keep it", argument="REF")
async def _unpin(desk: Desk, argument: str) -> None:
    from ...record.entries import Unpin
    from .. import render

    found = _REF.fullmatch(argument)
    if found is None or int(found[1]) not in desk.loop.ledger.pins:
        raise UsageError(f"{argument or 'nothing'} is not pinned", hint="/pin lists what is.")
    desk.loop.record(Unpin(ref=int(found[1])))
    desk.put(render.dim(f"#{found[1]} is no longer pinned"))


def _check_room(loop: "Loop", text: str) -> None:
    """Raises UsageError when one more pin would leave a summary no room to make things smaller."""
    from ...compaction.summarize import pinned
    from ...context import tokens

    most = int(MOST * loop.measured().size)
    if tokens.estimate(pinned({**loop.ledger.pins, 0: text})) > most:
        raise UsageError(
            f"pins may hold {most:,} tokens together, a tenth of the window",
            hint="/unpin one first; /pin lists them.",
        )


def _list(desk: Desk) -> None:
    from .. import render

    rows = [(f"#{ref}", _start(text)) for ref, text in desk.loop.ledger.pins.items()]
    if rows:
        desk.put(render.table(rows, wrap=False))
    else:
        desk.put(render.dim("nothing is pinned: /pin REF or /pin WORDS"))


def _start(text: str) -> str:
    line = " ".join(text[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
