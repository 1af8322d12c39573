"""Hooks: the person's own shell commands around an event of the agent.

Each command gets the event as one line of JSON on stdin. Before an event a command may veto it by
exit code 2, and says why in the first lines it writes; any other failure is told as a warning and
stops nothing. No command outlives its run: it is ended with all it started. What an event says of
a tool call is put together here, and only where a command is there to hear it.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..tools.base import Output, ToolError
from ..tools.process import Process, ending

TIMEOUT = 30.0  # seconds
VETO = 2  # the exit code
SAID = 16_384  # characters of what a tool said

Hook = Callable[[str, Mapping[str, Any]], Awaitable[str | None]]

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


def before_tool(tool: str, title: str, given: Mapping[str, Any], cwd: Path) -> dict[str, Any]:
    """What is told of a call that is about to be made: `given` is what the model sent."""
    return {"tool": tool, "title": title, "input": given, "cwd": str(cwd)}


def after_tool(before: Mapping[str, Any], output: Output, seconds: float) -> dict[str, Any]:
    """What is told of a call that was made, besides what was told before it."""
    details = output.details
    changed = [row["path"] for row in details.get("changes", ())]
    if "diff" in details and "path" in details:
        changed.append(details["path"])
    return {
        **before,
        "is_error": output.is_error,
        "output": output.text[:SAID],
        "characters": len(output.text),
        "seconds": round(seconds, 3),
        "changed": changed,
    }


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
