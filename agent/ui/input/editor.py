"""The person's own editor, on a text: $VISUAL, else $EDITOR, else one that is there."""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....tools.programs import program
from ...errors import CtxagentError

COMMON = ("nano", "vim", "vi", "sensible-editor")  # the last one may ask which it shall be


class EditorKilled(CtxagentError):
    """What it had done to the terminal is left as it was."""


async def edit(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text as the editor leaves it; the terminal must be free for it.

    Raises CtxagentError when there is no editor, or it ends with a failure: the text is as before.
    """
    try:
        return await _edited(text, _command(environ))
    except OSError as error:
        raise CtxagentError(
            f"the text could not be edited: {error.strerror}", hint="It is as before."
        ) from error


async def _edited(text: str, command: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="ctxagent-") as folder:
        path = Path(folder) / "summary.md"
        path.touch(mode=0o600)
        path.write_text(text, "utf-8", errors="replace")
        try:
            process = await asyncio.create_subprocess_exec(*command, str(path))
        except OSError as error:
            raise CtxagentError(
                f"the editor {command[0]} could not be run: {error.strerror}",
                hint="Set VISUAL or EDITOR to one that is there.",
            ) from error
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:  # interrupted
                process.kill()
                await process.wait()
        if code < 0:
            raise EditorKilled(f"{command[0]} was killed; the text is as before")
        if code:
            raise CtxagentError(f"{command[0]} ended with code {code}; the text is as before")
        return path.read_text("utf-8", errors="replace")


def _command(environ: Mapping[str, str]) -> list[str]:
    chosen = environ.get("VISUAL") or environ.get("EDITOR") or ""
    try:
        command = shlex.split(chosen)
    except ValueError:  # an open quote
        command = [chosen]
    path = environ.get("PATH")
    found = command or [name for name in (program(name, path) for name in COMMON) if name][:1]
    if not found:
        raise CtxagentError("there is no editor", hint="Set VISUAL or EDITOR to yours.")
    return found
