"""The language servers of a session, which plugins define.

Each starts at the first change of a file of its language. The definitions are in `.lsp.json` or in
`lspServers` of a plugin's manifest. The format is
https://code.claude.com/docs/en/plugins-reference#lsp-servers: `{NAME: {"command", "args", "env",
"extensionToLanguage", "initializationOptions", "settings", "startupTimeout"}}`. `${VAR}` and
`${VAR:-default}` are replaced by environment variables.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Any

from ...api.base import dataclass
from ...api.files import open_regular
from ...api.guard import Enclose, ProgramStart, StartGate, StartRefused, read_untrusted
from ...api.session import Plugin, places_of, with_variables
from ...api.text import NotText, read_object, text_of_file
from .kinds import KINDS, ServerKind, installed, own_kinds, project_top, root_of
from .server import CHANGED, CREATED, DELETED, LanguageServer, Problem

LSP_KEY = "lspServers"
MAX_START_S = 600.0


def servers_of(
    plugin: Plugin, environ: Mapping[str, str] | None
) -> tuple[dict[str, ServerKind], list[str]]:
    """Return the servers of a plugin by name, and a warning for each skipped server. Replace
    variables by those of `environ`; keep them if `environ` is None. The built-in server for the
    same suffixes is the fallback if the plugin's program is not installed.
    """
    found, problems = dict[str, ServerKind](), list[str]()
    for path in places_of(plugin.folder, LSP_KEY):
        shown = path.relative_to(plugin.folder)
        try:
            document = read_object(read_untrusted(path))
            rows = {**document.get(LSP_KEY, document)}
        except (OSError, ValueError, TypeError):
            problems.append(f"{shown}: no language server in it is used: it is not {{NAME: {{…}}}}")
            continue
        for name, values in rows.items():
            try:
                if environ is not None:
                    values = with_variables(values, {**environ, **plugin.environ})
                found[name] = _kind(values, plugin.environ)
            except (ValueError, TypeError, AttributeError) as error:
                problems.append(f"{shown}: the language server {name} is left out: {error}")
    return found, problems


def _kind(values: Any, environ: Mapping[str, str]) -> ServerKind:
    """Return a server from its description in a plugin. Raises ValueError, TypeError and
    AttributeError.
    """
    command, arguments = values.get("command"), values.get("args") or []
    languages = values.get("extensionToLanguage")
    if not isinstance(command, str) or not command.strip():
        raise ValueError("it has no command")
    if not isinstance(languages, dict) or not languages:
        raise ValueError("it has no extensionToLanguage")
    if (transport := values.get("transport", "stdio")) != "stdio":
        raise ValueError(f"its transport {str(transport)[:40]!r} is not supported here")
    same = next((kind for kind in KINDS if kind.languages.keys() & languages.keys()), None)
    start_ms = values.get("startupTimeout") or 0
    return ServerKind(
        {str(suffix): str(language) for suffix, language in languages.items()},
        ((command, *map(str, arguments)), *(same.commands if same else ())),
        same.markers if same else (),
        env={
            **environ,
            **{str(key): str(value) for key, value in (values.get("env") or {}).items()},
        },
        options=values.get("initializationOptions"),
        settings=values.get("settings"),
        start_s=min(float(start_ms) / 1_000, MAX_START_S),
    )


MAX_SERVERS = 4  # at the same time
MAX_FILE_BYTES = 1 << 20  # larger files are not checked
MAX_WAIT_S = 3.0  # after a change
KINDS_OF_CHANGE = {"created": CREATED, "deleted": DELETED}


@dataclass
class LanguageServers:
    """The language servers of a session. Use only from the session's event loop."""

    cwd: Path
    environ: Mapping[str, str]  # for the server processes
    settings: tuple[str, ...]  # servers from the user's settings
    enclose: Enclose | None  # None: outside of a sandbox
    starts: StartGate
    report: Callable[[str], None]
    plugins: Sequence[Plugin] = ()  # may define servers
    absent: dict[str, str] = field(default_factory=dict)  # reason by name of a server
    running: dict[tuple[str, Path], LanguageServer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._top = project_top(self.cwd)
        of_plugins = [servers_of(plugin, self.environ)[0].values() for plugin in self.plugins]
        kinds = (*own_kinds(self.settings), *chain.from_iterable(of_plugins), *KINDS)
        self._kinds = {s: kind for kind in reversed(kinds) for s in kind.languages}

    async def text_before(self, path: Path) -> str | None:
        """Return the text of a file before a change, None if no server handles its suffix."""
        if path.suffix not in self._kinds:
            return None
        return await asyncio.to_thread(lambda: read_text(path.resolve()))

    async def check(self, path: Path, before: str | None) -> None:
        """Send a changed file to its server and wait up to MAX_WAIT_S for the report. After a
        timeout, do not wait for this server again until it has reported.
        """
        server = await self._server_for(path)
        after = await asyncio.to_thread(read_text, path)
        if server is None or after is None:
            return
        server.change(path, before, after)
        if not server.is_late:
            try:
                async with asyncio.timeout(MAX_WAIT_S):
                    await server.idle.wait()
            except TimeoutError:
                server.is_late = True

    async def notify_changed(self, changes: Mapping[Path, str]) -> None:
        """Notify the servers of the files that a command changed, each with its action."""
        for server in [*self.running.values()]:
            rows = {
                path: KINDS_OF_CHANGE.get(action, CHANGED)
                for path, action in changes.items()
                if path.is_relative_to(server.root)
            }
            if rows:
                server.changed_on_disk(rows)
            for path in rows.keys() & server.documents.keys():
                text = await asyncio.to_thread(read_text, path)
                if text is None:
                    server.forget(path)
                else:
                    server.change(path, text, text)

    def take_new_errors(self, touched: Collection[Path]) -> list[tuple[Path, Problem]]:
        """Return the errors in these files that were not reported yet."""
        return [new for each in self.running.values() for new in each.take_new_errors(touched)]

    def problems(self, files: Collection[Path]) -> list[tuple[Path, Problem]]:
        """Return the current errors and warnings of these files."""
        return [
            (path, problem)
            for path in files
            for server in self.running.values()
            if (document := server.documents.get(path))
            for problem in document.problems
        ]

    async def _server_for(self, path: Path) -> LanguageServer | None:
        """Return the server for a file, and start it if needed. Return None if none is
        available.
        """
        kind = self._kinds.get(path.suffix)
        if kind is None or not path.is_relative_to(self._top):
            return None
        root = await asyncio.to_thread(root_of, kind, path, self._top)
        if server := self.running.get((kind.name, root)):
            return server
        confined = self.enclose is not None
        found = await asyncio.to_thread(
            installed, kind, root, self.environ.get("PATH", ""), confined=confined
        )
        if found is None:
            self.absent[kind.name] = "not installed"
        elif len(self.running) >= MAX_SERVERS:
            self.absent[kind.name] = f"not started in {root}: {MAX_SERVERS} servers run already"
        else:
            self.absent.pop(kind.name, None)
            server = await self._started(kind, root, found)
        return server

    async def _started(
        self, kind: ServerKind, root: Path, command: Sequence[str]
    ) -> LanguageServer | None:
        """Start a server. Return None if it may not start."""
        name, env = Path(command[0]).name, {**self.environ, **kind.env}
        own = [each.partition(":")[2].split() for each in self.starts.project_commands]
        start = ProgramStart(
            f"the language server {name}",
            tuple(command),
            root,
            env,
            of_project=[*kind.commands[0]] in own,
        )
        try:
            cleared = (
                self.starts.confined(start, self.enclose)
                if self.enclose
                else await self.starts.clear(start)
            )
        except StartRefused as refused:
            self.absent[kind.name] = str(refused)
            return None
        server = LanguageServer(name, cleared, root, kind, report=self.report)
        self.running[kind.name, root] = server
        return server

    async def close(self) -> None:
        """Stop all servers."""
        await asyncio.gather(*(server.close() for server in self.running.values()))


def read_text(path: Path) -> str | None:
    """Return the text of a file. Return None if it is missing, too large or not text. Blocking."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        return None if len(data) > MAX_FILE_BYTES else text_of_file(path, data)
    except (OSError, NotText):
        return None
