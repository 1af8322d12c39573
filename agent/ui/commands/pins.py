"""Commands about pins: what stands verbatim in every summary."""

import re
from typing import TYPE_CHECKING

from ...errors import UsageError
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...loop import Loop

MOST = 0.10  # of the window: what pins may fill
SHOWN = 80  # characters of a pinned text in a list
_REF = re.compile(r"#?(-?\d+)")


@command(
    "keep an entry, or #WORDS, verbatim in every summary",
    argument="[REF|WORDS]",
    complete=offers.refs,
)
async def _pin(desk: Desk, argument: str) -> None:
    from ...manual import note
    from ...record.entries import Pin
    from ...record.sessions import whole_text
    from ..look import render

    if not argument:
        _list(desk)
        return
    loop = desk.loop
    if found := _REF.fullmatch(argument):
        ref = int(found[1])
        text = whole_text(loop.log.path, ref)
        if not (text and text.strip()):
            raise UsageError(f"there is no entry #{ref} with text", hint="/log lists the newest.")
        _check_room(loop, text)
        loop.record(Pin(ref=ref, text=text))
    else:
        text = argument
        _check_room(loop, text)
        ref = await note(loop, text)
    desk.put(render.dim(f"pinned as #{ref}: {_start(text)} · /unpin {ref} takes it back"))


@command("no longer keep it", argument="REF", complete=offers.pinned)
async def _unpin(desk: Desk, argument: str) -> None:
    from ...manual import unpin
    from ..look import render

    if not argument:
        raise UsageError("say which: /unpin REF", hint="/pin lists what is pinned.")
    found = _REF.fullmatch(argument)
    if found is None or int(found[1]) not in desk.loop.ledger.pins:
        raise UsageError(f"{argument} is not pinned", hint="/pin lists what is.")
    unpin(desk.loop, int(found[1]))
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
    from ..look import render

    rows = [(f"#{ref}", _start(text)) for ref, text in desk.loop.ledger.pins.items()]
    if rows:
        desk.put(render.table(rows, wrap=False))
    else:
        desk.put(render.dim("nothing is pinned: /pin REF, or #WORDS"))


def _start(text: str) -> str:
    line = " ".join(text[: 4 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
