"""Hooks: the person's own shell commands around an event of the agent.

Each command gets the event as one line of JSON on stdin. Before an event a command may veto it by
exit code 2, and says why in the first lines it writes; any other failure is told as a warning and
stops nothing. No command outlives its run: it is ended with all it started.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..tools.base import ToolError
from ..tools.process import Process, ending

TIMEOUT = 30.0  # seconds
VETO = 2  # the exit code

_KEPT = 4_096  # bytes of output
_TOLD = 5  # lines of them
_NAME = 60  # characters of a command in a warning


class _Beginning:
    """A sink that keeps the first bytes."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data += data[: _KEPT - len(self._data)]

    def close(self) -> None:
        pass

    def lines(self) -> str:
        text = self._data.decode("utf-8", "replace").strip()
        return "\n".join(line.rstrip() for line in text.splitlines()[:_TOLD])


async def run_hooks(
    commands: Sequence[str],
    event: Mapping[str, Any],
    *,
    cwd: Path,
    env: Mapping[str, str],
    warn: Callable[[str], None],
    seconds: float = TIMEOUT,
) -> str | None:
    """Run the commands one after another; the reason of a veto, which the rest do not run after.

    `event` names itself in "event"; only one that begins "before_" can be vetoed. Each command
    may take so many `seconds`; `warn` takes one text for each that failed. Cancelled, it leaves
    nothing running.
    """
    line = json.dumps(event).encode() + b"\n"
    vetoable = str(event["event"]).startswith("before_")
    for command in commands:
        output = _Beginning()
        name = command if len(command) <= _NAME else f"{command[: _NAME - 1]}…"
        try:
            code = await _run(command, line, output, cwd=cwd, env=env, seconds=seconds)
        except ToolError as error:
            warn(f"hook `{name}` did not start: {error}")
            continue
        if code is None:
            warn(f"hook `{name}` was ended: it took longer than {seconds:g} s")
        elif code == VETO and vetoable:
            return output.lines() or f"hook `{name}` vetoed it and gave no reason"
        elif code:
            warn(f"hook `{name}` failed ({ending(code)}): {output.lines() or 'no output'}")
    return None


async def _run(
    command: str,
    line: bytes,
    output: _Beginning,
    *,
    cwd: Path,
    env: Mapping[str, str],
    seconds: float,
) -> int | None:
    """The exit code of a command; None when it was still running at the end of its time."""
    process = await Process.start(command, cwd=cwd, env=env, sink=output, given=line)
    try:
        in_time = await process.exited(seconds)
    finally:
        await process.end()
    return process.exit_code if in_time else None
