"""Commands that files of the project and of the person describe."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ...events import Notice
from .command_context import CommandContext
from .registry import COMMANDS, Command

if TYPE_CHECKING:
    from ...extensions.command_files import CommandFile


async def read_command_files(repl: CommandContext) -> None:
    """Read the files anew, and tell once what is wrong with one of them."""
    found, warnings = await asyncio.to_thread(repl.services.command_files)
    taken = [command for name, command in found.items() if name in COMMANDS]
    told = [f"{each.path}: this command is left out: /{each.name} is ours" for each in taken]
    for text in [*warnings, *told]:
        if text not in repl.told_of_files:
            repl.told_of_files.add(text)
            repl.notify("warning", text)
    repl.command_files = {name: file for name, file in found.items() if name not in COMMANDS}


def file_commands(repl: CommandContext) -> dict[str, Command]:
    """Return the commands that files describe, by name."""
    return {name: _command(file) for name, file in repl.command_files.items()}


def _command(file: "CommandFile") -> Command:
    help = f"{file.description} · {file.shown_path}"
    return Command(file.name, help, partial(_run, file), file.argument_hint)


async def _run(file: "CommandFile", repl: CommandContext, argument: str) -> None:
    """Have the command's words said next."""
    from ...loop.command_words import command_words, model_of_turn

    agent = repl.agent
    words = await command_words(agent, file, argument)
    if (model := model_of_turn(file)) and model != agent.model.id:
        repl.conversation.use_model_for_turn(model)
        agent.emit(Notice("info", f"this turn is for {model}, as {file.shown_path} says"))
    repl.say_next(words)
