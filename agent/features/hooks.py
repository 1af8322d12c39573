"""Hooks: shell commands of the user and of plugins that run at an event of the agent.

Each command gets the event as one line of JSON on its standard input. A command that runs before an
event can veto it with exit code 2; the first lines of its output are the reason. Any other failure
is a warning and stops nothing. When a command ends, every process that it started is ended too.

Commands of plugins were written for another agent. Their events also have the names of that agent,
and their veto may be JSON: see https://code.claude.com/docs/en/hooks.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...tools.base import Output
from ...tools.system.process import Process, ending
from ...tools.system.shorten import shorten
from ..config.settings import HookSettings
from ..errors import SessionError, ToolError
from ..events import Notice, waiting
from ..extensions.plugins import PluginHook
from ..loop.feature import Feature, ToolCall, Veto
from ..loop.session_handle import SessionHandle
from ..session.entries import End
from ..session.log import Entries
from ..session.store import AGENTS

HOOK_TIMEOUT_S = 30.0
VETO_EXIT_CODE = 2
MAX_TOOL_OUTPUT_CHARS = 16_384

_MAX_OUTPUT_BYTES = 65_536  # of an output that are read
_MAX_SHOWN_BYTES = 4_096
_MAX_OUTPUT_LINES = 5
_FOREIGN_EVENT = "hook_event_name"  # the key of an event that has the names of another agent
_MAX_COMMAND_CHARS = 60  # in a warning


class HookRun(NamedTuple):
    """The last run of a hook in this session."""

    at: float  # seconds since the epoch
    outcome: str


class HeadSink:
    """A sink that keeps the first bytes of an output."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data += data[: _MAX_OUTPUT_BYTES - len(self._data)]

    def close(self) -> None:
        pass

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    def lines(self) -> str:
        return _first_lines(self._data[:_MAX_SHOWN_BYTES].decode("utf-8", "replace"))

    def veto(self) -> str | None:
        """Return the reason of a veto in JSON, None for no veto."""
        text = self.text()
        try:
            said = json.loads(text[text.find("{") : text.rfind("}") + 1])
        except (ValueError, RecursionError):
            return None
        told = said.get("hookSpecificOutput")
        told = told if isinstance(told, dict) else {}
        if (
            said.get("decision") != "block"
            and told.get("permissionDecision") != "deny"
            and said.get("continue") is not False
        ):
            return None
        reasons = (told.get("permissionDecisionReason"), said.get("reason"), said.get("stopReason"))
        return _first_lines(str(next(filter(None, reasons), ""))[:_MAX_SHOWN_BYTES])


def _first_lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines()[:_MAX_OUTPUT_LINES])


def before_tool_event(call: ToolCall) -> dict[str, Any]:
    """Return the event of a call that is about to run."""
    return {
        "tool": call.tool, "title": call.title, "input": call.arguments, "cwd": str(call.cwd),
    }  # fmt: skip


def after_tool_event(call: ToolCall, output: Output, seconds: float) -> dict[str, Any]:
    """Return the event of a call that has run."""
    details = output.details
    changed = [row["path"] for row in details.get("changes", ())]
    if "diff" in details and "path" in details:
        changed.append(details["path"])
    return {
        **before_tool_event(call),
        "is_error": output.is_error,
        "output": output.text[:MAX_TOOL_OUTPUT_CHARS],
        "characters": output.filed.characters if output.filed else len(output.text),
        "seconds": round(seconds, 3),
        "changed": changed,
    }


class HooksFeature(Feature):
    """Runs the hook commands of one session."""

    name = "hooks"

    def __init__(
        self,
        handle: SessionHandle,
        settings: HookSettings,
        of_plugins: Sequence[PluginHook] = (),
        *,
        resumed: bool = False,
    ) -> None:
        """Commands `of_plugins` run after the user's own."""
        super().__init__(handle)
        self._settings, self.of_plugins, self._resumed = settings, of_plugins, resumed
        self.last_runs: dict[tuple[str, str], HookRun] = {}  # by event and command
        self._log_path = handle.log.path

    async def session_started(self) -> None:
        """Run the commands for the start of a session."""
        await self.run("session_start", {})

    async def session_ended(self) -> None:
        """Run the commands for the end of a session."""
        await self.run("session_end", {})

    async def before_tool(self, call: ToolCall) -> None:
        """Run the commands before a call of a tool. Raises Veto."""
        if (veto := await self.run("before_tool", before_tool_event(call))) is not None:
            raise Veto(f"a before_tool hook prevented it: {veto}")

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Run the commands after a call of a tool."""
        await self.run("after_tool", after_tool_event(call, output, seconds))

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        """Run the commands before a summary. Raises Veto."""
        if (veto := await self.run("before_compact", event)) is not None:
            raise Veto(veto)

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        """Run the commands after a summary."""
        await self.run("after_compact", event)

    async def run(self, name: str, event: Mapping[str, Any]) -> str | None:
        """Run the commands for the event `name`, if there are any; return the reason of a veto.

        A subagent's session is part of its parent's and has no start and end of its own.
        """
        commands = getattr(self._settings, name)
        subject = _subject(name, event, resumed=self._resumed)
        foreign = [h for h in self.of_plugins if h.event == name and h.matches(subject)]
        of_subagent = self._log_path.parent.parent.name == AGENTS
        if not (commands or foreign) or (of_subagent and name.startswith("session_")):
            return None
        more: dict[str, Any] = {}
        if name == "session_start":
            more = {
                "log": str(self._log_path),
                "cwd": str(self.handle.context.cwd),
                "resumed": self._resumed,
            }
        elif name == "session_end":
            more = {"log": str(self._log_path), "status": _last_status(self._log_path)}

        def ran(command: str, outcome: str) -> None:
            self.last_runs[name, command] = HookRun(time.time(), outcome)

        told = {"event": name, "session": self._log_path.parent.name, **event, **more}
        with waiting(self.handle.emit, f"the hooks of {name}"):
            veto = await run_hooks(
                commands,
                told,
                cwd=self.handle.context.cwd,
                env=self.handle.context.env,
                warn=self._warn,
                ran=ran,
            )
            for hook in foreign:
                if veto is not None:
                    break
                veto = await run_hooks(
                    [hook.command],
                    self._foreign(hook, told, subject),
                    cwd=self.handle.context.cwd,
                    env={
                        **self.handle.context.env,
                        **hook.plugin.environ,
                        "CLAUDE_PROJECT_DIR": str(self.handle.context.cwd),
                    },
                    warn=self._warn,
                    ran=ran,
                    seconds=hook.seconds,
                )
        return veto

    def _warn(self, text: str) -> None:
        self.handle.emit(Notice("warning", self.handle.context.redact(Output(text)).text))

    def _foreign(self, hook: PluginHook, told: Mapping[str, Any], subject: str) -> dict[str, Any]:
        """Return an event to which the names of the plugin's own agent are added."""
        names: dict[str, Any] = {
            _FOREIGN_EVENT: hook.foreign_event,
            "session_id": self._log_path.parent.name,
            "transcript_path": str(self._log_path),
            "cwd": str(self.handle.context.cwd),
        }
        if hook.event.endswith("_tool"):
            given = dict(told["input"])
            if isinstance(path := given.get("path"), str):
                given.setdefault("file_path", os.path.join(self.handle.context.cwd, path))  # noqa: PTH118
            names |= {"tool_name": subject, "tool_input": given}
        if hook.event == "after_tool":
            answer = {"output": told["output"], "is_error": told["is_error"]}
            names["tool_response"] = answer
        key = {"session_start": "source", "session_end": "reason", "before_compact": "trigger"}
        return {**told, **names, **({key[hook.event]: subject} if hook.event in key else {})}


def _subject(name: str, event: Mapping[str, Any], *, resumed: bool) -> str:
    """Return the text that the matcher of a plugin's hook is compared with."""
    if name.endswith("_tool"):
        return str(event["tool"])
    if name == "session_start":
        return "resume" if resumed else "startup"
    if name == "session_end":
        return "other"
    return "manual" if event.get("trigger") == "manual" else "auto"


def _last_status(log_path: Path) -> str:
    """Return how the newest turn of a log ended, "" where none has."""
    with suppress(SessionError):
        return next((e.status for e in reversed(Entries(log_path)) if isinstance(e, End)), "")
    return ""


async def run_hooks(
    commands: Sequence[str],
    event: Mapping[str, Any],
    *,
    cwd: Path,
    env: Mapping[str, str],
    warn: Callable[[str], None],
    ran: Callable[[str, str], None] = lambda command, outcome: None,
    seconds: float = HOOK_TIMEOUT_S,
) -> str | None:
    """Run the commands one after another until one vetoes. Return the reason of the veto, None for
    none.

    `event` has its name in "event". Only a name that begins with "before_" can be vetoed, also in
    JSON if the event has the names of another agent. Each command may take `seconds`. `warn` is
    called for each command that failed, `ran` after each with how it ended. A cancellation leaves
    nothing running.
    """
    line = json.dumps(event).encode() + b"\n"
    vetoable = str(event["event"]).startswith("before_")
    for command in commands:
        output = HeadSink()
        name = shorten(command, _MAX_COMMAND_CHARS)
        try:
            code = await run_command(command, line, output, cwd=cwd, env=env, seconds=seconds)
        except ToolError as error:
            failed, code = f"did not start: {error}", -1
        else:
            failed = _failure(code, output, seconds)
        reason = output.lines() if code == VETO_EXIT_CODE and vetoable else None
        if not code and code is not None and vetoable and _FOREIGN_EVENT in event:
            reason = output.veto()
        if reason is not None:
            ran(command, f"prevented it: {reason or 'no reason'}")
            return reason or f"hook `{name}` vetoed it and gave no reason"
        ran(command, failed or f"ok: {output.lines() or 'no output'}")
        if failed:
            warn(f"hook `{name}` {failed}")
    return None


def _failure(code: int | None, output: HeadSink, seconds: float) -> str:
    """Return how a command failed, "" for one that did not."""
    if code is None:
        return f"was ended: it took longer than {seconds:g} s"
    return f"failed ({ending(code)}): {output.lines() or 'no output'}" if code else ""


async def run_command(
    command: str,
    line: bytes,
    output: HeadSink,
    *,
    cwd: Path,
    env: Mapping[str, str],
    seconds: float,
) -> int | None:
    """Run a command with `line` on its stdin. Return its exit code, None if it still ran after
    `seconds`. No process of the command is left, also after a cancellation. Raises ToolError if it
    cannot be started."""
    process = await Process.start(command, cwd=cwd, env=env, sink=output, given=line)
    try:
        in_time = await process.exited(seconds)
    finally:
        await process.end()
    return process.exit_code if in_time else None
