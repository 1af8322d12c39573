"""The input of hooks in the published format: calls and modes under the names of that format.

Tools and arguments have the names of the agent that defined the format. Changed arguments are
converted back.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...tools.base import Output
from ..config.settings import PermissionMode
from ..loop.feature import ToolCall

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
