"""One language server: send it file contents, and collect the errors that it reports.

Changes are sent in batches. A file is first opened with its content before the change, so that its
old errors are known. A server with pull diagnostics is asked for the errors of each open file. A
server without them sends errors itself; its report is complete when it stays quiet for QUIET_S.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from ...config.start_gate import ClearedStart
from ...lazy import dataclass
from ...version import __version__
from ..server_process import ExitInfo, run_server
from .connection import RETRY_CODES, LspConnection, RequestRefused, ServerEnded
from .kinds import ServerKind
from .problems import Problem, new_errors, problems_in

ServerState = Literal["starting", "running", "silent", "failed"]

START_TIMEOUT_S = 30.0
SILENCE_TIMEOUT_S = 30.0  # without a report after a change: the server counts as silent
QUIET_S = 0.3  # without a message: a server without pull diagnostics has finished
SHUTDOWN_TIMEOUT_S = 0.5
MAX_DOCUMENTS = 50  # open at once; beyond, close the least recently changed
PULL_TRIES, PULL_PAUSE_S = 5, 0.2

FULL_SYNC = 1
CREATED, CHANGED, DELETED = 1, 2, 3  # kinds of changes on disk
CAPABILITIES = {
    "general": {"positionEncodings": ["utf-16"]},
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeWatchedFiles": {"dynamicRegistration": True},
        "diagnostics": {"refreshSupport": True},
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": False},
    },
}


@dataclass(slots=True)
class Document:
    """A file that a server has open."""

    text: str
    version: int = 1
    reported: int = 0  # the newest version that the server has reported on
    pushed: list[Problem] = field(default_factory=list)
    pulled: list[Problem] = field(default_factory=list)
    # Errors from before the change, or reported already. None until the server's first report.
    known: list[Problem] | None = None

    @property
    def problems(self) -> list[Problem]:
        return list(dict.fromkeys([*self.pulled, *self.pushed]))


class LanguageServer:
    """A language server and its open files."""

    def __init__(
        self,
        name: str,
        cleared: ClearedStart,
        root: Path,
        kind: ServerKind,
        *,
        report: Callable[[str], None],
    ) -> None:
        self.name, self.root = name, root
        self.state: ServerState = "starting"
        self.error = ""
        self.documents: dict[Path, Document] = {}
        self.idle = asyncio.Event()  # set when the server has reported on all changes
        self.is_late = False  # True after a wait for `idle` timed out
        self._cleared, self._kind, self._report = cleared, kind, report
        self._exit_info = ExitInfo()
        self._pending: dict[Path, tuple[str | None, str]] = {}
        self._has_changes, self._got_report = asyncio.Event(), asyncio.Event()
        self._connection: LspConnection | None = None
        self._pulls = False
        self._running = asyncio.create_task(self._serve(), name=f"language server {name}")

    def change(self, path: Path, before: str | None, after: str) -> None:
        """Queue a changed file for the server. `before` is None for a new file."""
        if self.state == "failed":
            return
        if path in self._pending:
            before = self._pending[path][0]
        self._pending[path] = before, after
        self.idle.clear()
        self._has_changes.set()

    def changed_on_disk(self, changes: Mapping[Path, int]) -> None:
        """Notify the server of files that another process changed, each with its kind of change."""
        if self._connection is None:
            return
        rows = [{"uri": path.as_uri(), "type": kind} for path, kind in changes.items()]
        self._connection.notify("workspace/didChangeWatchedFiles", {"changes": rows})

    def forget(self, path: Path) -> None:
        """Close a file, if it is open."""
        if self.documents.pop(path, None) and self._connection:
            closed = {"textDocument": {"uri": path.as_uri()}}
            self._connection.notify("textDocument/didClose", closed)

    def take_new_errors(self, files: Collection[Path]) -> list[tuple[Path, Problem]]:
        """Return the errors in these files that were not reported yet, and mark them as
        reported.
        """
        found = list[tuple[Path, Problem]]()
        for path in self.documents.keys() & files if self.idle.is_set() else ():
            document = self.documents[path]
            if document.reported:
                now, known = document.problems, document.known
                found += ((path, each) for each in new_errors(now, now if known is None else known))
                document.known = now
        return found

    async def close(self) -> None:
        """Stop the server."""
        connection, self.state = self._connection, "failed"
        if connection is not None and not self._exit_info.ended.is_set():
            with suppress(TimeoutError, RequestRefused, ServerEnded):
                async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                    await connection.request("shutdown", None)
                connection.notify("exit", {})
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _serve(self) -> None:
        """Run the server until it ends, then report the reason."""
        try:
            async with run_server(self._cleared, self._exit_info) as process:
                connection = LspConnection(
                    process, self._exit_info, self._on_notification, self._answer
                )
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(connection.read())
                    work = tasks.create_task(self._work(connection))
                    await self._exit_info.ended.wait()
                    work.cancel()
        except* (OSError, TimeoutError, RequestRefused) as group:
            self._exit_info.reason = self._exit_info.reason or _said(group)
        finally:
            self._failed()

    def _failed(self) -> None:
        closed, self._connection = self.state == "failed", None
        self.state = "failed"
        self.documents.clear()
        self._pending.clear()
        self.idle.set()
        words = self._exit_info.stderr_reason
        self.error = self._exit_info.reason or "it has ended"
        self.error += f" (it said: {words})" if words else ""
        if not closed:
            self._report(f"the language server {self.name} has failed: {self.error}")

    async def _work(self, connection: LspConnection) -> None:
        """Initialize the server, then send queued changes. Raises TimeoutError and
        RequestRefused.
        """
        limit_s = max(START_TIMEOUT_S, self._kind.start_s)
        try:
            async with asyncio.timeout(limit_s):
                await self._initialize(connection)
        except TimeoutError:
            raise TimeoutError(f"it did not answer in {limit_s:g} s") from None
        except ServerEnded:
            return
        self._connection, self.state = connection, "running"
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            batch, self._pending = self._pending, {}
            with suppress(ServerEnded):
                await self._bring(connection, batch)
            if not self._pending:
                self.is_late = False
                self.idle.set()

    async def _initialize(self, connection: LspConnection) -> None:
        folder = {"uri": self.root.as_uri(), "name": self.root.name}
        options = self._kind.options
        answer = await connection.request(
            "initialize",
            {
                "processId": None,  # our process ID is invalid inside a sandbox
                "clientInfo": {"name": "ctxagent", "version": __version__},
                "rootUri": folder["uri"],
                "workspaceFolders": [folder],
                "capabilities": CAPABILITIES,
                **({} if options is None else {"initializationOptions": options}),
            },
        )
        can = answer.get("capabilities") if isinstance(answer, dict) else None
        self._pulls = isinstance(can, dict) and can.get("diagnosticProvider") not in (None, False)
        connection.notify("initialized", {})
        if self._kind.settings is not None:
            connection.notify("workspace/didChangeConfiguration", {"settings": self._kind.settings})

    async def _bring(
        self, connection: LspConnection, batch: Mapping[Path, tuple[str | None, str]]
    ) -> None:
        """Send changed files to the server and wait for its report on them."""
        old = [p for p, (before, _) in batch.items() if p not in self.documents and before]
        for path in old:
            self._open(connection, path, batch[path][0] or "")
        await self._settled(connection, old)
        for path in old:
            document = self.documents.get(path)
            if document and document.reported:
                document.known = document.problems
        for path, (_, after) in batch.items():
            if path not in self.documents:
                self._open(connection, path, after)
                self.documents[path].known = []
            else:
                self._change(connection, path, after)
            saved = {"textDocument": {"uri": path.as_uri()}}
            connection.notify("textDocument/didSave", saved)
        await self._settled(connection, batch)

    def _open(self, connection: LspConnection, path: Path, text: str) -> None:
        self.documents[path] = Document(text)
        document = {
            "uri": path.as_uri(), "languageId": self._kind.languages.get(path.suffix, "plaintext"),
            "version": 1, "text": text,
        }  # fmt: skip
        connection.notify("textDocument/didOpen", {"textDocument": document})
        if len(self.documents) > MAX_DOCUMENTS:
            self.forget(next(iter(self.documents)))

    def _change(self, connection: LspConnection, path: Path, text: str) -> None:
        document = self.documents.pop(path)
        self.documents[path] = document  # as the newest
        document.text = text
        document.version += 1
        named = {"uri": path.as_uri(), "version": document.version}
        changes = [{"text": text}]
        connection.notify(
            "textDocument/didChange", {"textDocument": named, "contentChanges": changes}
        )

    async def _settled(self, connection: LspConnection, paths: Iterable[Path]) -> None:
        """Wait until the server has reported the errors of these files."""
        waited = [path for path in paths if path in self.documents]
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_S):
                if self._pulls:
                    await self._pull(connection)
                else:
                    await self._until_quiet(waited)
        except TimeoutError:
            if self.state == "running":
                silence = f"it has said nothing for {SILENCE_TIMEOUT_S:g} s"
                self.state, self.error = "silent", silence
                self._report(f"the language server {self.name} does not answer: {silence}")
            return
        if waited:
            self.state, self.error = "running", ""

    async def _until_quiet(self, paths: Sequence[Path]) -> None:
        def is_behind(path: Path) -> bool:
            document = self.documents.get(path)
            return document is not None and document.reported < document.version

        while any(map(is_behind, paths)):
            self._got_report.clear()
            await self._got_report.wait()
        while paths:
            self._got_report.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._got_report.wait()
            except TimeoutError:
                return

    async def _pull(self, connection: LspConnection) -> None:
        """Request the errors of each open file."""
        for path, document in list(self.documents.items()):
            for _ in range(PULL_TRIES):
                try:
                    answer = await connection.request(
                        "textDocument/diagnostic", {"textDocument": {"uri": path.as_uri()}}
                    )
                except RequestRefused as refused:
                    if refused.code not in RETRY_CODES:
                        break
                    await asyncio.sleep(PULL_PAUSE_S)
                    continue
                if isinstance(answer, dict) and answer.get("kind") == "full":
                    document.pulled = problems_in(answer.get("items"))
                    document.reported = document.version
                break

    def _on_notification(self, method: str, params: Any) -> None:
        """Store the errors from a notification of the server."""
        if method != "textDocument/publishDiagnostics" or not isinstance(params, dict):
            return
        path = Path(unquote(urlsplit(str(params.get("uri"))).path))
        document, version = self.documents.get(path), params.get("version")
        if document is None or (isinstance(version, int) and version < document.version):
            return
        document.reported = document.version
        document.pushed = problems_in(params.get("diagnostics"))
        self._got_report.set()

    def _setting(self, item: Any) -> Any:
        """Return the settings of a section such as `python.analysis`, None if there are none."""
        found, section = self._kind.settings, item.get("section") if isinstance(item, dict) else ""
        for part in str(section or "").split(".") if section else ():
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def _answer(self, method: str, params: Any) -> Any:
        """Answer a request of the server. Raises KeyError for an unknown method."""
        if method == "workspace/configuration":
            items = params.get("items") if isinstance(params, dict) else None
            return [self._setting(item) for item in items] if isinstance(items, list) else []
        if method == "workspace/diagnostic/refresh":
            self.idle.clear()
            self._has_changes.set()
        folders = [{"uri": self.root.as_uri(), "name": self.root.name}]
        return {
            "workspace/diagnostic/refresh": None,
            "workspace/workspaceFolders": folders,
            "workspace/applyEdit": {"applied": False},
            "window/workDoneProgress/create": None,
            "window/showMessageRequest": None,
            "client/registerCapability": None,
            "client/unregisterCapability": None,
        }[method]


def _said(group: BaseExceptionGroup[Any]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
