"""/add-dir: additional working directories of the session."""

from pathlib import Path

from ..status import short_path
from .command_context import CommandContext
from .registry import command


@command(
    "also work in another directory; without DIR, list them",
    argument="[DIR]",
    group="files and work",
)
async def _add_dir(repl: CommandContext, argument: str) -> None:
    from ...loop.user_commands import add_directory

    if argument:
        name = short_path(Path(await add_directory(repl.agent, argument)))
        repl.say(f"the session also works in {name}, with the same permission mode and rules")
        repl.say("checkpoints cover the project only: /rewind undoes no changes by commands there")
        return
    names = repl.agent.approval.folders.names
    for name in names:
        repl.say(short_path(Path(name)))
    if not names:
        repl.say("the session works in the project only · /add-dir DIR adds a directory")
