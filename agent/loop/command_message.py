"""The message for the model when the user runs a command from a file."""

import asyncio
from typing import TYPE_CHECKING

from ...tools.base import Interrupted, Output
from ...tools.bash import BashParams, BashTool
from ..events import Notice
from ..extensions.command_files import CommandFile, split_arguments
from ..lazy import regex
from ..models.catalog import model_of_family
from ..session.entries import Content
from .agent import AgentState

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers

_HEAD = "[/{call}, a command from {path}:]\n\n{text}"
_IS_HEAD = regex(r"\[/[^\n]+, a command from [^\n]+:\]\n")
_NOT_TRUSTED = (
    "/{name}: {path} is not trusted; ignored: {what}. Review the file, then trust it with "
    "`ctxagent config --trust`"
)


async def command_message(agent: AgentState, command: CommandFile, arguments: str) -> str:
    """Return the message of a command, with the output of its shell commands. Its `allowed-tools`
    rules apply to the next turn.

    Shell commands run under the same permission rules as calls from the model. If one may not run,
    the message has the reason. Raises RecordError, and CancelledError for an interrupt.
    """
    await agent.begin()
    parts, texts = command.parts(arguments), list[str]()
    if not command.is_trusted:
        what = {
            "`!` commands": any(is_shell for _, is_shell in parts),
            "allowed-tools": bool(command.allowed_tools),
            "model": bool(command.model),
        }
        if ignored := [name for name, there in what.items() if there]:
            told = _NOT_TRUSTED.format(
                name=command.name, path=command.shown_path, what=" and ".join(ignored)
            )
            agent.emit(Notice("warning", told))
    else:
        agent.handle.allow_for_turn(command.allowed_tools, f"/{command.name}")
    for text, is_shell in parts:
        if is_shell and command.is_trusted:
            text = await _output(agent, text)
        elif is_shell:
            text = f"!`{text}`"
        texts.append(text)
    call = f"{command.name} {arguments}".rstrip()
    return _HEAD.format(call=call, path=command.shown_path, text="".join(texts))


async def prompt_message(
    agent: AgentState, servers: "McpServers", name: str, arguments: str
) -> str:
    """Return the message of an MCP server's prompt `SERVER:NAME`. Raises ToolError."""
    text = await servers.prompt(name, split_arguments(arguments))
    call = f"{name} {arguments}".rstrip()
    source = f"the MCP server {name.partition(':')[0]}"
    return _HEAD.format(call=call, path=source, text=agent.context.redact(Output(text)).text)


def model_of_turn(command: CommandFile, own: str) -> str:
    """Return the model that the command sets for its turn; "" for the session's `own`."""
    if not command.is_trusted or command.model in ("", "inherit"):
        return ""
    return model_of_family(command.model, own)


def is_command_message(words: Content) -> bool:
    """Return True for the message of a command. The user did not type file names in it."""
    return isinstance(words, str) and _IS_HEAD.match(words) is not None


async def _output(agent: AgentState, command: str) -> str:
    runner, id = agent.runner, f"command-{agent.log.last_seq + 1}"
    try:
        output = await runner.permitted(
            BashTool(), BashParams.model_validate({"command": command}), id
        )
    except Interrupted:
        raise asyncio.CancelledError from None
    output = agent.context.redact(output)
    text = runner.files.store(BashTool.name, output, {})[0] if output.filed else output.text
    return text.strip("\n")
