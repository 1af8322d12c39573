"""The command that is the person's own: a shell command by hand."""

import re

from ...errors import UsageError
from .registry import Desk, command

_CD = re.compile(r"(?:cd|pushd)(?:\s+[^;&|\n]*)?")


@command("run a shell command yourself: !COMMAND", argument="COMMAND")
async def _shell(desk: Desk, argument: str) -> None:
    from ... import manual
    from ..look import render

    if not argument:
        raise UsageError(
            "no command was given",
            hint="!COMMAND runs it here, without a question; the agent sees it, and what it said, "
            "with your next words.",
        )
    await manual.run(desk.loop, argument)
    if _CD.fullmatch(argument):
        desk.put(render.dim("a cd lasts for one command: the next one runs in the project again"))
