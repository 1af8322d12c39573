"""`ctxagent compact`: look at the next compaction of a session, do it, or take the last one back.
Looking and taking back need no model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import CompactionFailed, UsageError
from .options import check_key, guarded, launch_of, project_of, say

if TYPE_CHECKING:
    from ..events import Event
    from ..launch import Choice, Launch
    from ..loop import Loop


@click.command()
@click.argument("id", required=False)
@click.option("--dry-run", "act", flag_value="dry-run", help="Show what it would do; no call.")
@click.option("--apply", "act", flag_value="apply", help="Do it.")
@click.option("--undo", "act", flag_value="undo", help="Take the last compaction back.")
@click.option("--instructions", metavar="TEXT", default="", help="What the summary should keep.")
@click.option("--probe-model", "examine", is_flag=True, help="Ask the model what it knows then.")
@click.pass_obj
def compact(
    options: dict[str, Any], id: str | None, act: str | None, instructions: str, examine: bool
) -> None:
    """Compact a session, by default the newest one here.

    Name what to do: --dry-run, --apply or --undo. What was taken back while later turns follow
    goes on as a copy of the session, whose id is printed.
    """

    def run() -> int:
        import asyncio

        from ..launch import Choice

        if act is None:
            raise UsageError("nothing to do", hint="Give one of --dry-run, --apply and --undo.")
        if instructions and act != "apply":
            raise UsageError("--instructions are for the summary that --apply writes")
        if examine and act != "apply":
            raise UsageError("--probe-model examines the summary that --apply writes")
        launch = launch_of(options)
        choice = Choice(newest=True) if id is None else Choice(id=id)
        if act == "dry-run":
            return asyncio.run(_preview(launch, choice))
        if act == "undo":
            return asyncio.run(_undo(options, launch, choice))
        if examine or launch.settings.compact.summarizer == "model":
            project = project_of(options)
            _ = project.newest() if id is None else project.find(id)  # before a key is asked for
            check_key(launch)
        return asyncio.run(_apply(launch, choice, instructions, examine))

    guarded(run)


async def _preview(launch: "Launch", choice: "Choice") -> int:
    from ..ui import report

    async with _opened(launch, choice) as loop:
        await _learn_window(loop, launch)
        say(report.preview(loop.engine.preview(), instead=loop.engine.instead()))
    return 0


async def _apply(launch: "Launch", choice: "Choice", instructions: str, examine: bool) -> int:
    async with _opened(launch, choice) as loop:
        if launch.settings.compact.summarizer == "model":
            await loop.window()
        else:
            await _learn_window(loop, launch)
        summary = await loop.engine.compact(instructions)
        if examine:
            say((await loop.engine.examine(summary)).table())
        say(f"Take it back: ctxagent compact {loop.log.path.parent.name} --undo")
    return 0


async def _undo(options: dict[str, Any], launch: "Launch", choice: "Choice") -> int:
    """In place, or in a copy that ends where the compaction was, when later turns follow."""
    from ..compaction.acts import last_acts, later_turn
    from ..launch import Choice

    async with _opened(launch, choice) as loop:
        entries = loop.log.entries()
        last = last_acts(entries)
        if not last:
            raise CompactionFailed("there is no compaction to take back")
        if not later_turn(entries, last[-1].seq):
            _take_back(loop)
            return 0
        copy = project_of(options).fork(loop.log.path, last[-1].seq).parent.name
    async with _opened(launch, Choice(id=copy)) as loop:
        _take_back(loop)
        say("Turns followed it, so this is a copy that ends where it was.")
    return 0


def _take_back(loop: "Loop") -> None:
    from ..compaction.acts import describe

    last = loop.engine.uncompact(loop.log.entries())
    tokens = loop.measured().tokens
    say(f"taken back: {describe(*last)}; the context holds {tokens:,} tokens again")
    say(f"Go on with: ctxagent --resume {loop.log.path.parent.name}")


async def _learn_window(loop: "Loop", launch: "Launch") -> None:
    """How large the window is, as far as that is known without asking a server."""
    from ..model.base import known

    if known(loop.model.id) or launch.settings.model.context_window:
        await loop.window()


@asynccontextmanager
async def _opened(launch: "Launch", choice: "Choice") -> AsyncIterator["Loop"]:
    from ..compose import open_loop

    loop = open_loop(launch, choice, emit=_tell, ask=None)
    try:
        yield loop
    finally:
        await loop.close()


def _tell(event: "Event") -> None:
    from ..events import Compacted, Notice
    from ..ui import report

    if isinstance(event, Compacted):
        say(report.receipt(event))
    elif isinstance(event, Notice):
        say(f"{event.level}: {event.text}", err=True)
