"""The two shell commands that the user can configure for the REPL: one runs for each notice, the
other prints a line below the status line. Like hooks, they run in the working directory, outside
the sandbox, with the session's environment without secrets; their child processes end with them.
They run in the background, at most one run of each at a time. Only the first failure is reported.
"""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.utils import get_cwidth

from ....tools.system.phrasing import shorten
from ...config.start_gate import StartRefused
from ...errors import ToolError
from ...lazy import regex
from ..cells import first_cells
from ..status import Fragment

if TYPE_CHECKING:
    from ...loop.agent import AgentState

Start = Callable[[Coroutine[Any, Any, None]], None]  # runs a task until the REPL ends
Warn = Callable[[str], None]

NOTICE_TITLE, NOTICE_TEXT = "NOTICE_TITLE", "NOTICE_TEXT"  # variables of the notice command
NOTICE_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
MIN_STATUS_INTERVAL_S = 0.3  # between two starts of the status command
MAX_LINE_CHARS = 2_000  # read from a line, including colour codes
MAX_NAME_CHARS = 60  # of the command in a warning

_COLOURS = regex(r"\x1b\[[\d;:]*m")
_SEQUENCE = regex(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~]?|.?)")


class _ConfiguredCommand:
    """A configured shell command; "" means none."""

    def __init__(self, command: str, key: str, timeout_s: float, start: Start, warn: Warn) -> None:
        self._command = command
        self._key = key
        self._timeout_s = timeout_s
        self._start = start
        self._warn = warn
        self._told = False
        self._running = False

    async def _run(self, agent: "AgentState", given: bytes, env: Mapping[str, str]) -> str:
        """Return the output of the command, or "" if it failed."""
        from ....tools.system.process import ending
        from ...features.hook_runs import HeadSink, run_command  # loaded with the session
        from ...security.program_starts import gate_of

        output, context, starts = HeadSink(), agent.context, gate_of(agent.options)
        env = {**context.env, **env}
        start = starts.of_settings(self._key, self._command, context.cwd, env)
        try:
            cleared = await starts.clear(start)
            code = await run_command(cleared, given, output, seconds=self._timeout_s)
        except (ToolError, StartRefused) as error:
            return self._failed(f"did not start: {error}")
        if code is None:
            return self._failed(f"was stopped after {self._timeout_s:g} s")
        if code:
            return self._failed(f"failed ({ending(code)}): {output.lines() or 'no output'}")
        return output.text()

    def _failed(self, how: str) -> str:
        if not self._told:
            self._told = True
            name = shorten(self._command, MAX_NAME_CHARS)
            self._warn(f"{self._key} `{name}` {how} · later failures are not reported")
        return ""


class NoticeCommand(_ConfiguredCommand):
    """The command of `ui.notify_command`."""

    def __init__(self, command: str, start: Start, warn: Warn) -> None:
        super().__init__(command, "ui.notify_command", NOTICE_TIMEOUT_S, start, warn)

    def run_for_notice(self, agent: "AgentState", title: str, text: str) -> None:
        """Run the command for a notice. Skip the notice if the previous run has not ended."""
        if self._command and not self._running:
            self._running = True
            self._start(self._run_for_notice(agent, {NOTICE_TITLE: title, NOTICE_TEXT: text}))

    async def _run_for_notice(self, agent: "AgentState", env: Mapping[str, str]) -> None:
        try:
            await self._run(agent, b"", env)
        finally:
            self._running = False


class StatusCommand(_ConfiguredCommand):
    """The command of `statusline.command`. Calls `changed` when its line may have changed."""

    def __init__(self, command: str, start: Start, warn: Warn, changed: Callable[[], None]) -> None:
        super().__init__(command, "statusline.command", STATUS_TIMEOUT_S, start, warn)
        self._changed = changed
        self._facts: Mapping[str, Any] | None = None  # input of the newest run
        self._began = -MIN_STATUS_INTERVAL_S
        self._line = ""

    @property
    def is_set(self) -> bool:
        return bool(self._command)

    def refresh(self, agent: "AgentState", facts: Mapping[str, Any]) -> None:
        """Run the command with these facts, unless it is running or its last run had the same
        facts. `changed` is called after each run; its caller can then call `refresh` again with
        newer facts.
        """
        if self._command and not self._running and facts != self._facts:
            self._running, self._facts = True, facts
            self._start(self._refresh(agent, facts))

    async def _refresh(self, agent: "AgentState", facts: Mapping[str, Any]) -> None:
        try:
            await asyncio.sleep(self._began + MIN_STATUS_INTERVAL_S - time.monotonic())
            self._began = time.monotonic()
            output = await self._run(agent, json.dumps(facts).encode() + b"\n", {})
            self._line = output.strip("\r\n").split("\n")[0][:MAX_LINE_CHARS]
        finally:
            self._running = False
        self._changed()

    def line(self, width: int) -> list[Fragment]:
        """Return the newest line, cut to `width` columns; empty if there is none."""
        return fit_coloured(self._line, width)


def fit_coloured(line: str, width: int) -> list[Fragment]:
    """Return a line in at most `width` columns, with its colours but no other escape sequences."""
    safe, at = "", 0
    for found in _SEQUENCE.finditer(line):
        safe += _printable(line[at : found.start()])
        safe += found[0] if _COLOURS.fullmatch(found[0]) else ""
        at = found.end()
    safe += _printable(line[at:])
    shown, room = list[Fragment](), width
    for style, text, *_ in ANSI(safe).__pt_formatted_text__():
        text = first_cells(text, room)
        room -= get_cwidth(text)
        if text:
            shown.append((style, text))
        else:
            break
    return shown


def _printable(text: str) -> str:
    return "".join(c for c in text.replace("\t", " ") if c.isprintable())
