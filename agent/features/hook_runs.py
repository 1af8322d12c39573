"""Run hooks: a shell command or an HTTP request gets an event as one line of JSON.

When a command ends, all processes that it started are killed too. Hooks in the published format get
calls and modes under the names of the agent that defined the format. Changed arguments are
converted back.
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
from typing import Any

from ...tools.base import Output
from ...tools.system.environment import is_secret
from ...tools.system.phrasing import shorten
from ...tools.system.process import Process, ending
from ..config.settings import PermissionMode
from ..config.start_gate import ClearedStart, StartGate, StartRefused
from ..errors import ToolError
from ..extensions.hook_files import PublishedHook
from ..lazy import dataclass, regex
from ..loop.interface import ToolCall
from ..models.http_client import post
from ..models.providers import variables

MODES: Mapping[PermissionMode, str] = {
    "plan": "plan",
    "ask": "default",
    "accept-edits": "acceptEdits",
    "sandboxed": "default",
    "bypass": "bypassPermissions",
}
# Published names of our tools. Hooks get the first; matchers may use all of them, and our own.
_TOOLS: Mapping[str, tuple[str, ...]] = {
    "Task": ("Task", "Agent"),
    "Todo": ("TodoWrite",),
    "AskUser": ("AskUserQuestion",),
    "Plan": ("ExitPlanMode",),
}
_SUBAGENTS = {"explore": "Explore", "general": "general-purpose"}
# Arguments whose names differ, by tool.
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "Read": {"path": "file_path"},
    "Edit": {"path": "file_path"},
    "Write": {"path": "file_path"},
    "Grep": {
        "ignore_case": "-i", "before": "-B", "after": "-A", "context": "-C", "limit": "head_limit",
    },
    "Task": {"type": "subagent_type", "background": "run_in_background"},
    "Bash": {"unsandboxed": "dangerouslyDisableSandbox"},
    "WebFetch": {"find": "prompt"},
    "Skill": {"name": "skill"},
}  # fmt: skip
_MS_PER_S = 1_000  # the published format has timeouts in milliseconds
_GREP_MODES = {"files": "files_with_matches"}


def tool_names(tool: str) -> tuple[str, ...]:
    """Return the names of a tool that a matcher may use, the published one first."""
    return (*_TOOLS.get(tool, ()), tool)


def subagent_names(kind: str) -> tuple[str, ...]:
    """Return the names of a subagent type that a matcher may use, the published one first."""
    return (*filter(None, [_SUBAGENTS.get(kind)]), kind)


def published_arguments(tool: str, given: Mapping[str, Any], cwd: Path) -> dict[str, Any]:
    """Return the arguments of a call under their published names."""
    names = _ARGUMENTS.get(tool, {})
    return {
        names.get(key, key): _published_value(tool, key, value, cwd) for key, value in given.items()
    }


def changed_arguments(
    tool: str, given: Mapping[str, Any], changed: Mapping[str, Any], cwd: Path
) -> Mapping[str, Any]:
    """Return changed arguments of a call under our names, or `given` if nothing changed."""
    names = {theirs: ours for ours, theirs in _ARGUMENTS.get(tool, {}).items()}
    before, arguments = published_arguments(tool, given, cwd), dict[str, Any]()
    for theirs, value in changed.items():
        ours = names.get(theirs, theirs)
        same = theirs in before and before[theirs] == value and ours in given
        arguments[ours] = given[ours] if same else _own_value(tool, ours, value)
    return given if arguments == dict(given) else arguments


def _published_value(tool: str, key: str, value: Any, cwd: Path) -> Any:
    if _ARGUMENTS.get(tool, {}).get(key) == "file_path" and isinstance(value, str):
        return os.path.join(cwd, value)  # noqa: PTH118 (it keeps `..`)
    if tool == "Bash" and key == "timeout" and isinstance(value, int | float):
        return round(value * _MS_PER_S)
    if tool == "Task" and key == "type":
        return subagent_names(str(value))[0]
    if tool == "Grep" and key == "output_mode":
        return _GREP_MODES.get(str(value), value)
    return value


def _own_value(tool: str, key: str, value: Any) -> Any:
    if tool == "Bash" and key == "timeout" and isinstance(value, int | float):
        return value / _MS_PER_S
    if tool == "Task" and key == "type":
        return next((ours for ours, theirs in _SUBAGENTS.items() if theirs == value), value)
    if tool == "Grep" and key == "output_mode":
        return next((ours for ours, theirs in _GREP_MODES.items() if theirs == value), value)
    return value


def tool_response(call: ToolCall, output: Output, text: str) -> dict[str, Any]:
    """Return the result of a call; `text` is its truncated output."""
    response: dict[str, Any] = {"output": text, "is_error": output.is_error}
    if call.tool == "Bash":
        response |= {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    elif isinstance(path := call.arguments.get("path"), str) and call.tool in _ARGUMENTS:
        response |= {"filePath": os.path.join(call.cwd, path), "success": not output.is_error}  # noqa: PTH118
    return response


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
