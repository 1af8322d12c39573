"""/from-recording: continue a session of another agent."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.plural import format_size
from ....tools.system.shorten import one_line
from ...errors import UsageError
from .. import status
from ..menu import Menu, Option, Styled
from . import completions
from .command_context import CommandContext
from .registry import command
from .sessions import age

if TYPE_CHECKING:
    from ...library.from_recording import Recordings
    from ...replay.formats.places import FoundRecording

PAGE_ROWS = 20  # menu rows read at a time
MAX_TITLE_CHARS, MAX_PREVIEW_MESSAGES = 200, 4


@command(
    "continue a session of another agent",
    argument="[FILE]",
    complete=completions.paths,
    group="conversation",
)
async def _from_recording(repl: CommandContext, argument: str) -> None:
    if not argument:
        await pick_recording(repl)
    elif await repl.may_end_tasks():
        await _continue(repl, argument)


async def pick_recording(repl: CommandContext) -> bool:
    """Continue a recording that the user picks. Return True if one was picked."""
    picked = await repl.screen.pick(_menu(_recordings(repl)))
    if picked is None or (repl.session and not await repl.may_end_tasks()):
        return False
    await _continue(repl, picked.key)
    return True


async def _continue(repl: CommandContext, path: str) -> None:
    made = await asyncio.to_thread(_recordings(repl).import_session, path)
    await repl.switch_session(resume=made.id)
    repl.say(made.line)


def _recordings(repl: CommandContext) -> "Recordings":
    if repl.services.recordings is None:
        raise UsageError("sessions of other agents cannot be read here")
    return repl.services.recordings


def _menu(recordings: "Recordings") -> Menu:
    """Return a menu of the recordings, with scopes for this project and all projects."""

    def load(scope: int) -> Iterator[Sequence[Option]]:
        found = iter(recordings.find(everywhere=bool(scope)))
        while part := [*islice(found, PAGE_ROWS)]:
            options = map(partial(_option, recordings), part)
            yield [option for option in options if option.title]

    return Menu(
        title="Continue",
        load=load,
        action="continue",
        empty_text="no session of another agent was found",
        scopes=("this project", "all projects"),
        preview=partial(_preview, recordings),
    )


def _option(recordings: "Recordings", found: "FoundRecording") -> Option:
    """Return the option for a recording; its title is empty if there is no message."""
    said = recordings.first_messages(found.path)[:1] if not found.title else []
    title = one_line(found.title or "".join(said), MAX_TITLE_CHARS)
    size = format_size(found.size) if found.size else ""
    return Option(
        key=found.path,
        title=title,
        words=found.agent,
        facts=(found.agent, age(found.changed), size),
    )


def _preview(recordings: "Recordings", path: str) -> list[Styled]:
    """Return the path of a recording and the user's first messages as styled lines."""
    said = recordings.first_messages(path)[:MAX_PREVIEW_MESSAGES]
    lines = [("message", f"❯ {one_line(text, MAX_TITLE_CHARS)}") for text in said]
    return [("dim", status.short_path(Path(path))), *lines]
