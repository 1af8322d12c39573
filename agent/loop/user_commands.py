"""Manual commands of the user, and the message for the model when a command comes from a file.

The commands run a shell command (`!cmd`), pin a note (`#words`), unpin it, set the session's title,
or add a directory.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...tools.base import Interrupted, Output
from ...tools.bash import BashParams, BashTool
from ..errors import UsageError
from ..events import Notice, ToolFinished, ToolStarted
from ..extensions.command import MESSAGE
from ..extensions.command_files import CommandFile, split_arguments
from ..models.catalog import model_of_family
from ..permissions.paths import checked_directory
from ..session.entries import SHELL_OUTPUT_HEADING, Block, Pin, Unpin, User
from ..session.titles import save_title, title_note
from .agent import AgentState
from .directories import add_folder, new_directory_entries

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers

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
        agent.allow_for_turn(command.allowed_tools, f"/{command.name}")
    for text, is_shell in parts:
        if is_shell and command.is_trusted:
            text = await _output(agent, text)
        elif is_shell:
            text = f"!`{text}`"
        texts.append(text)
    call = f"{command.name} {arguments}".rstrip()
    return MESSAGE.format(call=call, path=command.shown_path, text="".join(texts))


async def prompt_message(
    agent: AgentState, servers: "McpServers", name: str, arguments: str
) -> str:
    """Return the message of an MCP server's prompt `SERVER:NAME`. Raises ToolError."""
    text = await servers.prompt(name, split_arguments(arguments))
    call = f"{name} {arguments}".rstrip()
    source = f"the MCP server {name.partition(':')[0]}"
    return MESSAGE.format(call=call, path=source, text=agent.context.redact(Output(text)).text)


def model_of_turn(command: CommandFile, own: str) -> str:
    """Return the model that the command sets for its turn; "" for the session's `own`."""
    if not command.is_trusted or command.model in ("", "inherit"):
        return ""
    return model_of_family(command.model, own)


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


SHELL = "Shell"  # the tool name of manual commands
MAX_CHANGES_NAMED = 10  # changed files in the message for the model

_RAN = "[The user ran a command in a shell of their own, in {cwd}:]\n{command}"
_NOTE = "[The user notes, to be kept in mind until they take it back:]\n{words}"
_TAKEN_BACK = "[The user takes back what they pinned in #{ref}: it need not be kept in mind.]"


class _ShellParams(BashParams):
    timeout: float = math.inf  # only the user ends the command


async def run_shell_command(agent: AgentState, command: str) -> None:
    """Run a shell command of the user in the project, and record it with its output and changes.

    No permission is needed. A cancellation ends the command and records the partial output. Raises
    RecordError.
    """
    agent.log.check_writable()
    await agent.begin()
    id = f"shell-{agent.log.last_seq + 1}"
    shell = copy(agent)
    shell.context = replace(agent.context, sandbox=None)  # as in a shell of the user
    runner = replace(agent.runner, session=shell)
    given = {"command": command}
    agent.emit(ToolStarted(id, SHELL, command, given))
    started = time.monotonic()
    try:
        output = await runner.watched(BashTool(), _ShellParams.model_validate(given), id)
    except Interrupted as interrupted:
        output = interrupted.output
        _clear_cancellation()
    except asyncio.CancelledError:
        output = Output("[interrupted by the user]", {"interrupted": True}, is_error=True)
        _clear_cancellation()
    output = agent.context.redact(output)
    details = given | output.details
    text, offloaded = runner.files.store("shell", output, details)
    recorded = agent.record(
        User(
            content=_shown_to_model(agent, command, text, details),
            source="shell",
            details=details,
            offloaded=offloaded,
        )
    )
    agent.log.sync()
    seconds = time.monotonic() - started
    agent.emit(
        ToolFinished(id, SHELL, command, output.is_error, text, seconds, details, recorded.seq)
    )


def rename(agent: AgentState, words: str) -> str:
    """Set the session's title and return it. Raises UsageError and RecordError."""
    note = agent.log.redact(title_note(words))
    agent.log.check_writable()
    agent.open()
    agent.record(note)
    save_title(agent.folder, note.text)
    return note.text


async def add_directory(agent: AgentState, text: str) -> str:
    """Add a working directory to the session, record it, and return its path.

    Raises UsageError for a directory that cannot be added, and RecordError.
    """
    approval = agent.approval
    name = checked_directory(text, approval.folders.cwd, approval.own)
    await agent.begin()
    if not add_folder(approval, name, agent.options.places.state):
        raise UsageError(
            f"{name} is already a directory of this session", hint="/add-dir lists them."
        )
    for entry in new_directory_entries(agent):
        agent.record(entry)
    return name


async def pin_note(agent: AgentState, words: str) -> int:
    """Pin a note of the user, and return its number for `unpin`.

    The next request and every summary contain the note verbatim. Raises RecordError.
    """
    await agent.begin()
    ref = agent.record(User(content=_NOTE.format(words=words), source="note")).seq
    agent.record(Pin(ref=ref, text=words))
    return ref


def unpin(agent: AgentState, ref: int) -> None:
    """Remove a pin. Tell the model if its view has the note or a summary with the pin.

    Raises RecordError.
    """
    agent.record(Unpin(ref=ref))
    place, summary = agent.view.position(ref), agent.view.summary
    noted = place is not None and agent.view.items[place].source == "note"
    if noted or (summary and f"\n#{ref}: " in summary.text):
        agent.record(User(content=_TAKEN_BACK.format(ref=ref), source="notice"))


def _shown_to_model(
    agent: AgentState, command: str, text: str, details: dict[str, Any]
) -> list[Block]:
    ran = _RAN.format(cwd=agent.context.cwd, command=command)
    changes = details.get("changes", [])
    if own := [row for row in changes if row.get("certain", True)]:
        ran += f"\n[It changed: {_named(agent, own)}]"
    others = [row for row in changes if not row.get("certain", True)]
    if others := [*others, *details.get("changed_meanwhile", [])]:
        ran += f"\n[Changed while it ran: {_named(agent, others)}]"
    return [{"type": "text", "text": part} for part in (ran, SHELL_OUTPUT_HEADING + text)]


def _named(agent: AgentState, changes: Sequence[dict[str, Any]]) -> str:
    named = [
        f"{agent.ledger.display_path(c['path'])} ({c['action']})"
        for c in changes[:MAX_CHANGES_NAMED]
    ]
    more = len(changes) - MAX_CHANGES_NAMED
    return ", ".join([*named, *([f"and {more:,} more"] if more > 0 else [])])


def _clear_cancellation() -> None:
    """Clear the cancellation: an interrupt ends the command, but its output must be recorded."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
