"""Run hooks: a shell command or an HTTP request gets an event as one line of JSON.

When a command ends, all processes that it started are killed too.
"""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...tools.system.environment import is_secret
from ...tools.system.process import Process, ending
from ...tools.system.shorten import shorten
from ..config.start_gate import ClearedStart, StartGate, StartRefused
from ..errors import ToolError
from ..extensions.hook_files import PublishedHook
from ..lazy import dataclass, regex
from ..models.http_client import post
from ..models.providers import variables

VETO_EXIT_CODE = 2
CHECKING_EVENTS = ("PreToolUse", "before_tool")  # whose hooks can deny a call
NOT_STARTED_EXIT_CODES = (126, 127)  # of a shell: not executable, not found
MAX_COMMAND_CHARS = 60  # in a warning
MAX_OUTPUT_BYTES = 1_000_000  # read from an output
MAX_OUTPUT_LINES = 5  # shown of an output
MAX_SHOWN_BYTES = 4_096
MAX_FIRST_LINE_BYTES = 4_096  # of a first line that can send the hook to the background
_MAX_PIPE_READS = 32  # after the end of a command; enough to empty a full pipe
_CHUNK_BYTES = 65_536
_VARIABLE = regex(r"\$(?:\{(\w+)\}|(\w+))")
_MODEL_PREFIXES = ("ANTHROPIC_", "AWS_")  # of secrets for model requests
_SUCCESS = range(200, 300)  # status codes


class HeadSink:
    """A sink that keeps the first bytes of an output."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data += data[: MAX_OUTPUT_BYTES - len(self._data)]

    def close(self) -> None:
        pass

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    def lines(self) -> str:
        return first_lines(self._data[:MAX_SHOWN_BYTES].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class HookOutput:
    """The output of a hook and how the hook ended."""

    code: int | None  # the exit code, None if it was killed
    stdout: str = ""
    stderr: str = ""
    problem: str = ""  # why there is no output, or ""
    warnings: tuple[str, ...] = ()  # about the hook, independent of its answer


class AnswerSink(HeadSink):
    """The stdout of a hook. Its first line may say that the hook continues in the background."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_to_background = asyncio.Event()
        self._first: bytes | None = b""  # start of the first line; None after the line

    def feed(self, data: bytes) -> None:
        if self._first is not None:
            data = self._first + data
            line, end, _ = data[: MAX_FIRST_LINE_BYTES + 1].partition(b"\n")
            if not end and len(data) <= MAX_FIRST_LINE_BYTES:
                self._first = data
                return
            self._first = None
            if end and _continues_in_background(line):
                self.goes_to_background.set()
                data = data[len(line) + 1 :]
        super().feed(data)

    def close(self) -> None:
        first, self._first = self._first, None
        super().feed(first or b"")


def _continues_in_background(line: bytes) -> bool:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("async") is True


def first_lines(text: str) -> str:
    """Return the first lines of a text, for display."""
    lines = text.strip()[:MAX_SHOWN_BYTES].splitlines()[:MAX_OUTPUT_LINES]
    return "\n".join(line.rstrip() for line in lines)


def failure(code: int | None, shown: str, seconds: float) -> str:
    """Return how a command failed, or ""."""
    if code is None:
        return f"was killed: it took longer than {seconds:g} s"
    return f"failed ({ending(code)}): {shown or 'no output'}" if code else ""


async def run_command(
    cleared: ClearedStart,
    line: bytes,
    output: HeadSink,
    *,
    seconds: float,
    errors: HeadSink | None = None,
) -> int | None:
    """Run a shell command with `line` on its stdin. Return its exit code, or None after a timeout
    of `seconds`. Its stderr goes to `errors`, by default to `output`. No process of the command
    survives, even after a cancellation. Raises ToolError if it cannot be started.
    """
    if cleared.watch is not None:
        await cleared.watch.begin()
        try:
            return await run_command(
                replace(cleared, watch=None), line, output, seconds=seconds, errors=errors
            )
        finally:
            await cleared.watch.end()
    if errors is None:
        process = await _started(cleared, line, output)
        return await _wait_and_end(process, seconds)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    loop = asyncio.get_running_loop()
    try:
        try:
            process = await _started(cleared, line, output, writer)
        finally:
            os.close(writer)
        loop.add_reader(reader, _read, reader, errors)
        try:
            return await _wait_and_end(process, seconds)
        finally:
            loop.remove_reader(reader)
            for _ in range(_MAX_PIPE_READS):
                if not _read(reader, errors):
                    break
    finally:
        os.close(reader)


async def _started(
    cleared: ClearedStart, line: bytes, output: HeadSink, stderr: int = subprocess.STDOUT
) -> Process:
    assert isinstance(cleared.command, str)
    return await Process.start(
        cleared.command,
        cwd=cleared.cwd,
        env=cleared.env,
        sink=output,
        given=line,
        enclose=cleared.enclose,
        stderr=stderr,
    )


async def _wait_and_end(process: Process, seconds: float) -> int | None:
    try:
        in_time = await process.exited(seconds)
    finally:
        await process.end()
    return process.exit_code if in_time else None


def _read(reader: int, sink: HeadSink) -> bool:
    """Read the data in a pipe. Return True if there may be more."""
    try:
        data = os.read(reader, _CHUNK_BYTES)
    except BlockingIOError:
        return False
    if not data:
        with suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(reader)
    sink.feed(data)
    return bool(data)


async def run_hook(
    hook: PublishedHook,
    line: bytes,
    output: AnswerSink,
    *,
    cwd: Path,
    env: Mapping[str, str],
    starts: StartGate,
) -> HookOutput:
    """Run a hook in the published format with an event. The stdout of a command goes to `output`.
    Headers of a request may use variables from `env`. A hook before a call that may not start
    denies the call: it may be there to check it.
    """
    if hook.kind == "http":
        return await _post_event(hook, line, env)
    errors = HeadSink()
    try:
        cleared = await starts.clear(hook.program(cwd, env))
        code = await run_command(cleared, line, output, seconds=hook.seconds, errors=errors)
    except StartRefused as refused:
        if hook.event in CHECKING_EVENTS:
            return HookOutput(VETO_EXIT_CODE, stderr=str(refused))
        return HookOutput(-1, problem=f"did not start: {refused}")
    except ToolError as error:
        return HookOutput(-1, problem=f"did not start: {error}")
    shown = errors.lines() or output.lines()
    problem = "" if code == VETO_EXIT_CODE else failure(code, shown, hook.seconds)
    if code in NOT_STARTED_EXIT_CODES:
        problem = f"could not start `{shorten(hook.run, MAX_COMMAND_CHARS)}`: it {problem}"
    return HookOutput(code, output.text(), errors.text(), problem)


async def _post_event(hook: PublishedHook, line: bytes, env: Mapping[str, str]) -> HookOutput:
    """Post an event. The body of a successful response counts as the output of a command."""
    headers, warnings = _headers(hook, env)
    headers["Content-Type"] = "application/json"
    try:
        async with asyncio.timeout(hook.seconds):
            status, body = await post(hook.run, line, headers)
    except TimeoutError:
        return HookOutput(None, "", "", failure(None, "", hook.seconds), warnings)
    except ToolError as error:
        return HookOutput(-1, "", "", f"did not answer: {error}", warnings)
    if status not in _SUCCESS:
        problem = f"failed (status {status}): {first_lines(body)}"
        return HookOutput(1, "", "", problem, warnings)
    return HookOutput(0, body[:MAX_OUTPUT_BYTES], warnings=warnings)


def _headers(
    hook: PublishedHook, environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the headers of a request, and warnings about variables without a value."""
    warnings = list[str]()

    def value(header: str, found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in hook.allowed_variables:
            why = "allowedEnvVars does not list it. Add it there"
        elif is_secret(name) and (name in {*variables()} or name.startswith(_MODEL_PREFIXES)):
            why = (
                "hooks never get the keys of models. Put what the server needs in another variable"
            )
        elif not environ.get(name):
            why = "it is not set. Export it before you start ctxagent"
        else:
            return environ[name]
        warnings.append(f"sends its header {header} without ${name}: {why}")
        return ""

    headers = {
        header: _VARIABLE.sub(partial(value, header), text).strip()
        for header, text in hook.headers.items()
    }
    return headers, tuple(warnings)
