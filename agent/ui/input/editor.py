"""Editing a text in the user's editor: $VISUAL, else $EDITOR, else an installed editor."""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....tools.system.programs import program
from ...errors import CtxagentError

FALLBACK_EDITORS = (
    "nano",
    "vim",
    "vi",
    "sensible-editor",
)  # sensible-editor is last because it may ask the user which editor to use


class EditorKilled(CtxagentError):
    """An editor that was killed, and so could not restore the terminal."""


async def edit(text: str, name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Edit a text in a file called `name`, and return the result. The terminal must be free for the
    editor. Raises CtxagentError if there is no editor or it fails.
    """
    try:
        return await _edited(text, name, _command(environ))
    except OSError as error:
        raise CtxagentError(
            f"the text could not be edited: {error.strerror}", hint="The text is unchanged."
        ) from error


async def _edited(text: str, name: str, command: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="ctxagent-") as folder:
        path = Path(folder) / name
        path.touch(mode=0o600)
        path.write_text(text, "utf-8", errors="replace")
        try:
            process = await asyncio.create_subprocess_exec(*command, str(path))
        except OSError as error:
            raise CtxagentError(
                f"the editor {command[0]} could not be run: {error.strerror}",
                hint="Set VISUAL or EDITOR to an installed editor.",
            ) from error
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:  # interrupted
                process.kill()
                await process.wait()
        if code < 0:
            raise EditorKilled(f"{command[0]} was killed; the text is unchanged")
        if code:
            raise CtxagentError(
                f"{command[0]} ended with code {code}; the text is unchanged",
                hint="Name another editor in EDITOR, or try again.",
            )
        return path.read_text("utf-8", errors="replace")


def _command(environ: Mapping[str, str]) -> list[str]:
    chosen = environ.get("VISUAL") or environ.get("EDITOR") or ""
    try:
        command = shlex.split(chosen)
    except ValueError:  # an open quote
        command = [chosen]
    if command:
        return command
    for name in FALLBACK_EDITORS:
        if found := program(name, environ.get("PATH")):
            return [found]
    raise CtxagentError("there is no editor", hint="Set VISUAL or EDITOR to your editor.")
