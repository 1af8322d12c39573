"""Commands defined in files, for headless runs and the REPL."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..events import Notice
from ..extensions.command_files import CommandFile, built_in_commands, load_command_files
from ..extensions.plugin_layout import part_named
from ..launch import LaunchOptions
from ..lazy import dataclass

if TYPE_CHECKING:
    from ..loop.agent import AgentState


SESSION_COMMANDS = ("compact", "uncompact")  # terminal commands that a run takes as a message


@dataclass(frozen=True, slots=True)
class Shown:
    """The text that a command prints. It ends the run."""

    text: str


async def _run_session_command(agent: "AgentState", name: str, instructions: str) -> str:
    """Run one of SESSION_COMMANDS and return what it did. Raises CtxagentError."""
    from ..compaction.history import describe, last_acts, user_wrote_since

    agent.log.check_writable()
    if name == "compact":
        await agent.model.window()
        summary = await agent.engine.compact(instructions)
        before, after = summary.tokens_before, summary.tokens_after
        return f"compacted: {before:,} to {after:,} tokens"
    entries = agent.log.entries()
    last = last_acts(entries)
    if last and user_wrote_since(entries, last[-1].seq):
        raise UsageError(
            "turns followed the last compaction",
            hint="`ctxagent compact --undo` undoes it in a copy of the session.",
        )
    undone = describe(*agent.engine.uncompact(entries))
    return f"undone: {undone}; the context has {agent.model.current_window().tokens:,} tokens again"


def command_files_of(launch: LaunchOptions) -> tuple[Mapping[str, CommandFile], Sequence[str]]:
    """Return the commands defined in files by name, and warnings about bad files. A file overrides
    the built-in command of the same name.
    """
    if launch.safe:
        return built_in_commands(), ()
    found, warnings = load_command_files(
        launch.cwd,
        config_home=launch.config_home,
        home=launch.home,
        trust_dir=launch.trust or launch.state,
        plugins=launch.plugins,
    )
    return {**built_in_commands(), **found}, warnings


async def expand_task(agent: "AgentState", launch: LaunchOptions, task: str) -> "str | Shown":
    """Return the message of a headless run: the prompt of the command that the task calls, or the
    task itself. Return Shown for a command that only prints text. Raises RecordError, CtxagentError
    for a failed command, and ToolError for a prompt of a server.
    """
    from ..app import change_model
    from ..features.extension_features import find_command, run_command
    from ..features.mcp import servers_of
    from ..features.skills import SkillsFeature
    from ..loop.command_message import command_message, model_of_turn, prompt_message
    from ..loop.feature import Prompt

    name, _, arguments = task.partition(" ")
    if not name.startswith("/"):
        return task
    if name[1:] in SESSION_COMMANDS:
        return Shown(await _run_session_command(agent, name[1:], arguments.strip()))
    if ":" in name and (servers := servers_of(agent)) is not None:
        await servers.wait_for([name[1:].partition(":")[0]])
        if name[1:] in servers.prompts():
            return await prompt_message(agent, servers, name[1:], arguments.strip())
    if (feature := find_command(agent, name[1:])) is not None:
        found = await run_command(feature, arguments.strip())
        return found.text if isinstance(found, Prompt) else Shown(found or "")
    files, warnings = await asyncio.to_thread(command_files_of, launch)
    for warning in warnings:
        agent.emit(Notice("warning", warning))
    command, skills = part_named(files, name[1:]), agent.features.find(SkillsFeature)
    if command is None or (command.is_built_in and skills and command.name in skills.known):
        return task
    if model := model_of_turn(command, agent.model.id):
        change_model(agent, launch, model)
    return await command_message(agent, command, arguments.strip())
