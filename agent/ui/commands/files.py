"""Commands from other sources: command files of the project and the user, skills, and prompts of
MCP servers.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....tools.system.phrasing import one_line
from ....tools.system.unicode import clean
from ...events import Notice
from ...extensions.command import Command, Prompt
from .command_context import COMMANDS, CommandContext

if TYPE_CHECKING:
    from ...extensions.command_files import CommandFile
    from ...extensions.mcp.servers import McpServers


MAX_PROMPT_DESCRIPTION_CHARS = 200


async def read_command_files(repl: CommandContext) -> None:
    """Read the files of commands and skills again. Show each new problem with a command once."""
    found, warnings = await asyncio.to_thread(repl.services.command_files)
    skills, _ = await asyncio.to_thread(repl.services.skills)  # the session shows the warnings
    taken = [command for name, command in found.items() if name in COMMANDS]
    told = [f"{each.path}: command ignored: /{each.name} is built in" for each in taken]
    told += [
        f"{skill.path}: only the agent can use this skill: /{name} is a built-in command"
        for name, skill in skills.items()
        if name in COMMANDS and skill.for_user
    ]
    told += [
        f"the command /{each.name} of an extension is ignored: /{each.name} is built in"
        for each in _feature_commands(repl)
        if each.name in COMMANDS
    ]
    for text in [*warnings, *told]:
        if text not in repl.reported_problems:
            repl.reported_problems.add(text)
            repl.notify("warning", text)
    called = {name for name, skill in skills.items() if skill.for_user}
    repl.command_files = {
        name: file
        for name, file in found.items()
        if name not in COMMANDS and not (file.is_built_in and name in called)
    }
    repl.skills = {
        name: skills[name] for name in called if name not in {*COMMANDS, *repl.command_files}
    }


def added_commands(repl: CommandContext) -> dict[str, Command]:
    """Return the commands from files, skills, MCP prompts and extensions, by name."""
    found = {name: _command(repl, file) for name, file in repl.command_files.items()}
    for name, skill in repl.skills.items():
        about = f"{skill.description} · skill in {skill.folder}"
        found[name] = Command(name, about, None, "[WORDS]", plugin=skill.plugin)
    servers = _servers(repl)
    for name, prompt in (servers.prompts() if servers else {}).items():
        about = one_line(clean(prompt.description), MAX_PROMPT_DESCRIPTION_CHARS)
        takes = " ".join(
            one_line(clean(each if needed else f"[{each}]"), 40)
            for each, needed in prompt.arguments
        )
        server = name.partition(":")[0]
        found[name] = Command(
            name, f"{about} · MCP server {server}", partial(_prompt, repl, name), takes
        )
    return found | {each.name: each for each in _feature_commands(repl)}


def all_commands(repl: CommandContext) -> dict[str, Command]:
    """Return every available command by name."""
    return {**added_commands(repl), **{name: each.bound(repl) for name, each in COMMANDS.items()}}


def _feature_commands(repl: CommandContext) -> Sequence[Command]:
    return repl.agent.features.commands() if repl.conversation.is_open else ()


def _servers(repl: CommandContext) -> "McpServers | None":
    """Return the MCP servers of the open session, or None."""
    if not repl.conversation.is_open:
        return None
    from ...features.mcp import servers_of

    return servers_of(repl.agent)


def _command(repl: CommandContext, file: "CommandFile") -> Command:
    help = file.description if file.is_built_in else f"{file.description} · {file.shown_path}"
    run = partial(_run, repl, file)
    return Command(file.name, help, run, file.argument_hint, file.group, plugin=file.plugin)


async def _prompt(repl: CommandContext, name: str, argument: str) -> Prompt | None:
    """Return an MCP server's prompt."""
    from ...loop.user_commands import prompt_message

    if (servers := _servers(repl)) is None:
        return None
    return Prompt(await prompt_message(repl.agent, servers, name, argument))


async def _run(repl: CommandContext, file: "CommandFile", argument: str) -> Prompt:
    """Return the command's prompt, and set the model of its turn."""
    from ...loop.user_commands import command_message, model_of_turn

    agent = repl.agent
    words = await command_message(agent, file, argument)
    if (model := model_of_turn(file, agent.model.id)) and model != agent.model.id:
        repl.conversation.use_model_for_turn(model)
        agent.emit(Notice("info", f"this turn uses {model}, set in {file.shown_path}"))
    return Prompt(words)
