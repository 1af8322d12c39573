"""Commands that show and change what the session runs with."""

from typing import TYPE_CHECKING

from ...errors import UsageError
from .registry import Desk, command

if TYPE_CHECKING:
    from ...approval import Mode

MODES: "tuple[Mode, ...]" = ("ask", "accept-edits", "plan", "bypass")
EFFORTS = ("low", "medium", "high", "xhigh", "max")


@command("show or change the model", argument="[ID]")
async def _model(desk: Desk, argument: str) -> None:
    from .. import render

    if argument:
        desk.set_model(argument)
    window = await desk.loop.window()
    limits = desk.loop.limits
    source = f", by {limits.source}" if limits else ""
    desk.put(render.dim(f"{desk.loop.model.id} · window {window.size:,} tokens{source}"))


@command("show or set how hard the model thinks", argument="[LEVEL]")
async def _effort(desk: Desk, argument: str) -> None:
    from .. import render

    if argument and argument not in EFFORTS:
        raise UsageError(f"there is no effort {argument!r}", hint=f"One of {', '.join(EFFORTS)}.")
    if argument:
        desk.loop.effort = argument
    desk.put(render.dim(f"effort: {desk.loop.effort or 'as the model has it'}"))


@command("show the rules, or set the mode", argument="[MODE]", anytime=True)
async def _permissions(desk: Desk, argument: str) -> None:
    from .. import render

    approval = desk.loop.approval
    if argument:
        mode = next((mode for mode in MODES if mode == argument), None)
        if mode is None:
            raise UsageError(f"there is no mode {argument!r}", hint=f"One of {', '.join(MODES)}.")
        approval.mode = mode
    rows: list[tuple[str, str]] = [("mode", approval.mode)]
    rows += [(name, rule) for name, rules in approval.rules().items() for rule in rules]
    desk.put(render.table(rows))


@command("the tools the model has", anytime=True)
async def _tools(desk: Desk, argument: str) -> None:
    from .. import render

    rows = [(t.name, t.effect, t.description.strip().split("\n")[0]) for t in desk.loop.tools]
    desk.put(render.table(rows))


@command("every setting, and where it came from", anytime=True)
async def _config(desk: Desk, argument: str) -> None:
    from .. import render

    desk.put(render.table(desk.settings()))
