"""Commands about what a compaction keeps: the rules, and whether what they name is there."""

from ...errors import UsageError
from . import offers
from .registry import Desk, command


@command("what every compaction keeps, and what it may take", anytime=True)
async def _rules(desk: Desk, argument: str) -> None:
    from .. import preserved
    from ..look import render

    if argument:
        raise UsageError(f"/rules does not take {argument!r}", hint="/preserve checks a section.")
    origins = {row[0]: row[2] for row in desk.settings()}
    desk.put(render.verbatim(preserved.rules(desk.loop.policy.rules, origins)))


@command(
    "whether what is kept is there; write what is missing",
    argument="[SECTION] [--create]",
    complete=offers.preserved,
)
async def _preserve(desk: Desk, argument: str) -> None:
    from .. import preserved
    from ..look import render

    words = argument.split()
    names = [word for word in words if word != "--create"]
    if len(names) > 1 or any(name.startswith("--") for name in names):
        raise UsageError(f"/preserve does not take {argument!r}", hint="/rules lists the sections.")
    loop = desk.loop
    found = preserved.check(
        desk.cwd,
        loop.policy.rules,
        loop.ledger,
        loop.ledger.phase,
        "".join(names),
        create="--create" in words,
    )
    desk.put(render.verbatim(preserved.sections(found)))
