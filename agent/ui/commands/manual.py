"""The command that is the person's own: a shell command by hand."""

from ...errors import UsageError
from .registry import Desk, command


@command("run a shell command yourself: !COMMAND", argument="COMMAND", slow=True)
async def _shell(desk: Desk, argument: str) -> None:
    from ... import manual

    if not argument:
        raise UsageError(
            "no command was given",
            hint="!COMMAND runs it here, without a question; the agent sees it, and what it said, "
            "with your next words.",
        )
    await manual.run(desk.loop, argument)
