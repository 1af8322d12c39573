"""Errors caused by file changes, as reported by language servers.

A server starts at the first change of a file of its language. New errors are added to the result of
the call that changed the file or, if the server is slow, to a later result.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api.extension import Feature, Output, ToolCall
from ...api.files import linked_folders
from ...api.guard import gate_of
from ...api.record import change_rows
from ...api.session import AgentState
from ...api.tools import CommandLimits

if TYPE_CHECKING:
    from .server import Problem
    from .servers import LanguageServers

EDITING_TOOLS = ("Edit", "Write")
MAX_TRACKED_FILES = 5_000  # in larger repositories, servers start only with lsp.enabled = "on"
MAX_ERRORS_SHOWN = 10
HEADING = "[New errors, says the language server:"


class DiagnosticsFeature(Feature):
    """Reports new errors to the model. Subagents share the servers of their parent."""

    name = "diagnostics"

    def __init__(self, agent: AgentState) -> None:
        super().__init__(agent)
        self._runner, self._settings = agent.runner, agent.options.settings.lsp
        self._parent = agent.parent.features.find(DiagnosticsFeature) if agent.parent else None
        self._servers: LanguageServers | None = None
        # (call ID, earlier text of its file)
        self._before: tuple[str, str | None] = ("", None)
        self.touched: dict[Path, None] = {}  # changed files, in order
        self.refusal: str | None = None  # why no server may start; None until decided

    async def before_tool(self, call: ToolCall) -> None:
        """Save the text of a file before an edit."""
        if call.tool in EDITING_TOOLS and (servers := await self.servers()):
            path = self.session.context.resolve(call.arguments["path"])
            self._before = call.id, await servers.text_before(path)

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output | None:
        """Add new errors to a result."""
        servers = self._parent.started if self._parent else self._servers
        if servers is None or output.is_error:
            return None
        if call.tool in EDITING_TOOLS and self._before[0] == call.id:
            path = Path(str(output.details.get("path")))
            self.touched[path] = None
            await servers.check(path, self._before[1])
        elif changes := _changes(output.details, self.session.context.cwd):
            await servers.notify_changed(changes)
        if output.blocks or output.whole or output.filed:
            return None
        errors = servers.take_new_errors(self.touched.keys())
        if not errors:
            return None
        lines = [f"{self.session.context.shown(path)}:{each.shown}" for path, each in errors]
        if len(lines) > MAX_ERRORS_SHOWN:
            lines[MAX_ERRORS_SHOWN:] = [f"and {len(lines) - MAX_ERRORS_SHOWN:,} more"]
        text = "\n".join([output.text, HEADING, *lines])
        return replace(
            output, text=f"{text}]", details={**output.details, "new_errors": len(errors)}
        )

    async def close(self) -> None:
        """Stop the servers."""
        if self._servers is not None:
            await self._servers.close()

    @property
    def started(self) -> "LanguageServers | None":
        """The servers, or None if they were not created."""
        return self._servers

    def problems(self) -> "list[tuple[Path, Problem]]":
        """Return the current errors and warnings in the changed files."""
        servers = self._servers
        return servers.problems(self.touched) if servers else []

    async def servers(self) -> "LanguageServers | None":
        """Return the servers of the session, or None if this session may not start any."""
        if self._parent is not None:
            return await self._parent.servers()
        if self.refusal is None:
            self.refusal = await asyncio.to_thread(self._refusal_reason)
            self._servers = None if self.refusal else self._create()
        return self._servers

    def _create(self) -> "LanguageServers":
        from .servers import LanguageServers

        session, context = self.session, self.session.context
        sandbox, env, enclose = context.sandbox, context.env, None
        if sandbox is not None and not sandbox.absent:
            hide, keep = session.approval.guarded_files() or self._runner.gate.guarded
            planted = self._runner.planted
            confined = sandbox.for_command(
                CommandLimits(
                    unasked=True,
                    offline=True,
                    writes_repository=False,
                    hide=hide,
                    keep=[*keep, *(planted.watched_paths() if planted else ())],
                )
            )
            env, enclose = confined.environment(env), confined.enclose
        return LanguageServers(
            context.cwd.resolve(),
            env,
            self._settings.servers,
            enclose,
            gate_of(session.options),
            lambda text: session.notify("warning", text),
            session.options.extras.plugins,
        )

    def _refusal_reason(self) -> str:
        """Return why no server may start, or "". Blocks."""
        sandbox, mode = self.session.context.sandbox, self._settings.enabled
        if mode == "off":
            return 'lsp.enabled is "off"'
        if sandbox is not None and sandbox.required and sandbox.absent:
            return f"nothing runs without the sandbox: {sandbox.absent}"
        if mode == "on":
            return ""
        instead = 'lsp.enabled = "on" starts them anyway'
        if self.session.ask is None:
            return f"no user can answer questions; {instead}"
        count = tracked_files(self.session.context.cwd)
        if count is None:
            return f"this is not a git repository; {instead}"
        if count > MAX_TRACKED_FILES:
            many = f"{count:,} files in the repository are more than {MAX_TRACKED_FILES:,}"
            return f"{many}; {instead}"
        absent = "sandbox.mode is off" if sandbox is None else sandbox.unasked_absent
        why = absent.removesuffix(".")
        return f"the sandbox cannot confine them: {why}; {instead}" if absent else ""


def tracked_files(folder: Path) -> int | None:
    """Return the number of files in the git index of a folder's repository, or None outside of a
    repository. Blocks.
    """
    for each in (folder, *folder.parents):
        entry = each / ".git"
        if entry.is_file():
            own = linked_folders(entry)
            return _entries(Path(own[0])) if own else None
        if entry.is_dir():
            return _entries(entry)
    return None


def _entries(repository: Path) -> int:
    """Return the number of index entries from the header (see gitformat-index(5))."""
    with suppress(OSError), (repository / "index").open("rb") as file:
        header = file.read(12)
        return int.from_bytes(header[8:]) if header.startswith(b"DIRC") else 0
    return 0


def _changes(details: Mapping[str, Any], cwd: Path) -> dict[Path, str]:
    """Return the files that a command changed, with the action on each."""
    return {cwd / row["path"]: str(row["action"]) for row in change_rows(details)}
