"""Commands about the work itself: what it is for, which phase it is in, and whether the set-up lets
it be done."""

import asyncio
import re
from typing import TYPE_CHECKING

from ...errors import CompactionFailed, UsageError
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...compaction.phases import Form
    from ...loop import Loop

COMPRESSING = "compressing the work of the phase"
_NAME = re.compile(r"\w[\w -]{0,39}")


@command("what this session is for, and where that stands", anytime=True)
async def _intent(desk: Desk, argument: str) -> None:
    from .. import report
    from ..look import render

    loop = desk.loop
    desk.put(render.verbatim(report.intent(loop.view.summary, loop.ledger.words)))


@command(
    "the phase of the work; a new one compresses what is done",
    argument="[NAME]",
    complete=offers.phases,
)
async def _phase(desk: Desk, argument: str) -> None:
    from ...compaction import phases
    from ..look import render

    loop = desk.loop
    old, new = loop.ledger.phase, argument.strip().lower()
    if not new:
        desk.put(render.dim(_told(phases.form(old)) if old else "no phase is set"))
        desk.put(render.dim(f"/phase NAME changes it: {', '.join(phases.PHASES)}, or any other"))
        return
    if not _NAME.fullmatch(new):
        raise UsageError(
            f"{new!r} is no name of a phase", hint="Letters, digits, blanks and -, at most 40."
        )
    if new != old:
        await _change(desk, old, new)
    desk.put(render.dim(_told(phases.form(new))))


async def _change(desk: Desk, old: str, new: str) -> None:
    """Record the phase first, so that what is said again after the summary names it; an interrupt
    of the summary takes that back."""
    from ...compaction import phases
    from ...record.entries import Note
    from ..look import render

    loop = desk.loop
    if old:
        desk.doing(COMPRESSING)
        await loop.window()
    loop.record(Note(topic=phases.TOPIC, text=new, data={"from": old}))
    if old:
        try:
            trigger = f"phase: {old} to {new}"
            await loop.engine.compact(phases.form(old).instructions, trigger=trigger)
        except CompactionFailed as error:
            desk.put(render.dim(f"not compressed: {error.message}"))
        except asyncio.CancelledError:
            loop.record(Note(topic=phases.TOPIC, text=old, data={"from": new}))
            raise
    _tell(loop, phases.form(new))


def _tell(loop: "Loop", form: "Form") -> None:
    """Let the model know, where there is a conversation already."""
    from ...record.entries import User

    if loop.view.items:
        text = f"The phase of the work is now {form.name}. It ends with a record of {form.asks}."
        loop.record(User(content=text, source="notice"))


def _told(form: "Form") -> str:
    size = f", in {form.words[0]:,} to {form.words[1]:,} words" if form.words else ""
    return f"phase: {form.name} · leaving it compresses the work into {form.asks}{size}"


@command("show the last folded result in full; again: the one before", anytime=True)
async def _unfold(desk: Desk, argument: str) -> None:
    await desk.unfold()


@command("check the set-up", anytime=True)
async def _doctor(desk: Desk, argument: str) -> None:
    from ..look import render

    desk.put(render.table(await asyncio.to_thread(desk.checks)))
