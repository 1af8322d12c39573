"""One language server: send it file contents, and collect the errors and warnings that it reports.

Changes are sent in batches. A file is first opened with its content before the change, so that its
old errors are known. A server with pull diagnostics is asked for the errors of each open file. A
server without them sends errors itself; its report is complete when it stays quiet for QUIET_S.

The protocol is https://microsoft.github.io/language-server-protocol; only a few of its messages are
used: JSON-RPC in framed messages of limited size, with requests in both directions. Invalid data
from the server ends the connection.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from ...api.base import __version__, dataclass
from ...api.guard import ClearedStart
from ...api.programs import ExitInfo, ServerProcess, run_server
from ...api.text import clean, one_line, reveal_invisible
from .kinds import ServerKind

MAX_PROBLEMS = 1_000  # of one file
MAX_MESSAGE_CHARS = 300
CHUNK_BYTES = 1 << 16  # read from a server at a time
ERROR, WARNING = 1, 2  # severities; larger ones are hints


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or a warning at a position in a file."""

    line: int  # from 1
    column: int
    is_error: bool
    message: str
    rule: str  # rule code of the checker, "" for none

    @property
    def shown(self) -> str:
        """The problem on one line, without the file."""
        rule = f" [{self.rule}]" if self.rule else ""
        return f"{self.line}:{self.column}: {self.message}{rule}"


def problems_in(listed: object) -> list[Problem]:
    """Return the errors and warnings in a list of diagnostics, sorted by position. Skip entries
    that break the protocol.
    """
    rows = listed if isinstance(listed, list) else []
    found = (_problem(row) for row in rows[:MAX_PROBLEMS] if isinstance(row, dict))
    return sorted(filter(None, found), key=lambda each: (each.line, each.column))


def _problem(row: dict[str, Any]) -> Problem | None:
    severity, code = row.get("severity", ERROR), row.get("code")
    if severity not in (ERROR, WARNING):
        return None
    try:
        start = row["range"]["start"]
        line, column = int(start["line"]) + 1, int(start["character"]) + 1
    except (KeyError, TypeError, ValueError):
        return None
    message = reveal_invisible(one_line(clean(str(row.get("message"))), MAX_MESSAGE_CHARS))
    rule = one_line(clean(str(code)), 60) if isinstance(code, str | int) else ""
    return Problem(line, column, severity == ERROR, message, rule)


def new_errors(now: Sequence[Problem], known: Sequence[Problem]) -> Iterator[Problem]:
    """Yield the errors that are not in `known`. Edits move lines, so compare by message: an error
    at another line is new only if there are more errors with its message than before.
    """
    left = Counter(known)
    others = [each for each in now if each.is_error and not _problem_of(left, each)]
    by_message = Counter[str]()
    for each, count in left.items():
        by_message[each.message] += count
    yield from (each for each in others if not _problem_of(by_message, each.message))


def _problem_of(counts: Counter[Any], key: object) -> bool:
    """Decrement the count of a key. Return False if it is zero."""
    if counts[key] <= 0:
        return False
    counts[key] -= 1
    return True


MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_HEADER_BYTES = 4_096
MAX_SHOWN_BYTES = 60  # of invalid data
UNKNOWN_METHOD = -32601
RETRY_CODES = (-32801, -32802)  # the content changed meanwhile; the server was busy

OnNotification = Callable[[str, Any], None]  # gets the method and the parameters of a notification
# Returns the result of a request. Raises KeyError for an unknown method.
AnswerRequest = Callable[[str, Any], Any]


class RequestRefused(Exception):
    """The server answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerEnded(Exception):
    """The server has exited or was stopped."""


class LspConnection:
    """A connection to one language server."""

    def __init__(
        self,
        process: ServerProcess,
        exit_info: ExitInfo,
        on_notification: OnNotification,
        answer: AnswerRequest,
    ) -> None:
        self._process, self._exit_info = process, exit_info
        self._on_notification, self._answer = on_notification, answer
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification without waiting. Data that the server has not read yet is
        buffered.
        """
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any] | None) -> Any:
        """Send a request and return its result. Raises RequestRefused and ServerEnded."""
        if self._exit_info.ended.is_set():
            raise ServerEnded
        self._count += 1
        number = self._count
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            self._waiting.pop(number, None)

    async def read(self) -> None:
        """Read messages from the server until it ends. If it sends invalid data, store the reason
        in `exit_info`.
        """
        buffer = bytearray()
        try:
            while chunk := await self._process.stdout.read(CHUNK_BYTES):
                buffer += chunk
                while (message := _taken(buffer)) is not None:
                    self._take(message)
        except ValueError as error:
            self._exit_info.reason = str(error)
        finally:
            self._exit_info.ended.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ServerEnded())

    def _take(self, message: Mapping[str, Any]) -> None:
        """Handle a message. Raises ValueError if the server has sent too many unrequested
        messages.
        """
        method, number = message.get("method"), message.get("id")
        if method is None:
            future = self._waiting.get(number) if isinstance(number, int) else None
            if future and not future.done():
                _settle(future, message)
            return
        if self._exit_info.count_unrequested():
            raise ValueError(self._exit_info.reason)
        if number is None:
            self._on_notification(str(method), message.get("params"))
            return
        try:
            result = {"result": self._answer(str(method), message.get("params"))}
        except KeyError:
            result = {"error": {"code": UNKNOWN_METHOD, "message": f"{method} is not known"}}
        self._send({"id": number, **result})

    def _send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if not self._process.stdin.is_closing():
            self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def _settle(future: "asyncio.Future[Any]", message: Mapping[str, Any]) -> None:
    error = message.get("error")
    if not isinstance(error, dict):
        future.set_result(message.get("result"))
        return
    code = error.get("code")
    future.set_exception(
        RequestRefused(code if isinstance(code, int) else 0, str(error.get("message")))
    )


def _taken(buffer: bytearray) -> Mapping[str, Any] | None:
    """Remove the first message from a buffer and return it, None if it is incomplete. Raises
    ValueError for data that is not a message.
    """
    head, found, _ = bytes(buffer[:MAX_HEADER_BYTES]).partition(b"\r\n\r\n")
    if not found:
        if len(buffer) >= MAX_HEADER_BYTES or (
            head and not b"content-".startswith(head[:8].lower())
        ):
            raise ValueError(_no_message(head))
        return None
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n") if b":" in line)
    size = fields.get(b"content-length", b"").strip()
    if not size.isdigit():
        raise ValueError(_no_message(head))
    if int(size) > MAX_MESSAGE_BYTES:
        raise ValueError(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")
    start = len(head) + 4
    if len(buffer) < start + int(size):
        return None
    body = bytes(buffer[start : start + int(size)])
    del buffer[: start + int(size)]
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(_no_message(body)) from None
    if not isinstance(message, dict):
        raise ValueError(_no_message(body))
    return message


def _no_message(data: bytes) -> str:
    shown = data[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
    return f"it sent data that is not a message: {shown!r}"


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
