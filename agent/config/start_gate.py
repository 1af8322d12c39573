"""The gate for programs that the agent starts because settings or files name them: hooks, servers,
the status line and the notice command.

The project's files that such a program runs are pinned. If one differs from its accepted content,
the user is asked, or the program does not start. The user's own programs are accepted when they are
first seen; programs of the project only when the user trusts the file that names them.
"""

import hashlib
import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...tools.system.spawn import Enclosed
from ..errors import ConfigError, CtxagentError
from ..lazy import dataclass
from .trust import FileChange, PinnedFiles

if TYPE_CHECKING:
    import asyncio

COMPILED_FOLDER = "compiled"  # in the state folder: Python modules of programs outside a sandbox

Enclose = Callable[[list[str]], Enclosed]  # wraps a command line in a sandbox


class ProgramWatch(Protocol):
    """Notices what a program in the sandbox leaves for other programs to run."""

    async def begin(self) -> None: ...
    async def end(self) -> None: ...


class StartRefused(CtxagentError):
    """A program may not start."""


@dataclass(frozen=True, slots=True)
class ProgramRights:
    """The rights that a program of a project declares. Other programs run outside the sandbox."""

    network: bool = False
    write: tuple[str, ...] = ()  # further folders
    outside: bool = False  # outside of the sandbox

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ProgramRights":
        """Return the rights in an entry of a file. Raises ValueError for a wrong type."""
        network, outside = values.get("network", False), values.get("outside", False)
        write = values.get("write", [])
        if not isinstance(network, bool) or not isinstance(outside, bool):
            raise ValueError("network and outside must be true or false")
        if not isinstance(write, list) or not all(isinstance(each, str) for each in write):
            raise ValueError("write is not a list of folders")
        return cls(network, tuple(write), outside)


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """A program that is about to start."""

    what: str  # e.g. "the hook after_tool"
    command: str | tuple[str, ...]  # a shell text, or a list of words
    cwd: Path
    env: Mapping[str, str]
    of_project: bool = False  # whether a file of the project names it
    rights: ProgramRights = ProgramRights()

    @property
    def shown(self) -> str:
        """The command line."""
        return self.command if isinstance(self.command, str) else " ".join(self.command)

    @property
    def key(self) -> str:
        """The name of the command line in the list of pins."""
        return self._key_in(self.cwd)

    @property
    def keys_around(self) -> list[str]:
        """The names of the command line in this folder and those above it, up to the home."""
        folders = itertools.takewhile(
            lambda each: each != Path.home(), (self.cwd, *self.cwd.parents)
        )
        return [self._key_in(each) for each in folders]

    def _key_in(self, folder: Path) -> str:
        return hashlib.sha256(f"{folder}\0{self.shown}".encode(errors="replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ClearedStart:
    """A program that may start. Only `StartGate` creates these."""

    command: str | tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    enclose: Enclose | None = None  # None: outside of a sandbox
    watch: ProgramWatch | None = None


# Returns a program in a sandbox with its rights; None if there is no sandbox. Blocking.
Confine = Callable[[ProgramStart], ClearedStart | None]
# Asks the user whether a program may start although these files changed.
AskAboutChanges = Callable[[ProgramStart, Sequence[FileChange]], Awaitable[bool]]


@dataclass
class StartGate:
    """The gate of a process. Servers use it from a thread of their own."""

    pins: PinnedFiles
    roots: list[str]  # the folders whose files are pinned, links resolved; may grow
    except_in: Sequence[str] = ()  # the agent's own folders, whose files are not pinned
    project_commands: frozenset[str] = frozenset()  # commands that a project's settings contain
    settings_rights: ProgramRights = field(default_factory=ProgramRights)  # of these commands
    confine: Confine = lambda start: None
    protected: list[str] = field(default_factory=list)  # the pinned files, for rules and sandboxes
    watch: ProgramWatch | None = None  # of programs in the sandbox
    added: Sequence[str] = ()  # further roots: added directories of the session
    _ask: AskAboutChanges | None = None
    _refused: Callable[[ProgramStart, str], None] | None = None
    _loop: "asyncio.AbstractEventLoop | None" = None
    _declined: set[tuple[str, ...]] = field(default_factory=set)  # starts that the user refused
    _reported: set[tuple[str, str]] = field(default_factory=set)
    _unreported: list[tuple[ProgramStart, str]] = field(default_factory=list)

    def connect(
        self, ask: AskAboutChanges | None, refused: Callable[[ProgramStart, str], None]
    ) -> None:
        """Ask the user with `ask` in the current event loop, and call `refused` for each program
        that may not start, also for earlier ones.
        """
        self._ask, self._refused = ask, refused
        import asyncio  # commands without an event loop import this module too

        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        while self._unreported:
            refused(*self._unreported.pop(0))

    def of_settings(
        self, what: str, command: str, cwd: Path, env: Mapping[str, str]
    ) -> ProgramStart:
        """Return the program of a command in the settings."""
        of_project = command in self.project_commands
        return ProgramStart(
            what, command, cwd, env, of_project=of_project, rights=self.settings_rights
        )

    def declare(self, starts: Iterable[ProgramStart]) -> None:
        """Protect the files of programs that may start later. Accept the files of the user's own
        programs that were never seen. Blocking.
        """
        for start in starts:
            changes = self.changes(start)
            if self._is_first(start):
                self._accept(start, changes)

    def accept(self, starts: Iterable[ProgramStart]) -> list[str]:
        """Accept the current files of programs. Return the paths of changed files. Raises
        ConfigError. Blocking.
        """
        found = list[str]()
        for start in starts:
            changes = self.changes(start)
            self.pins.accept(start.key, changes)
            found += [each.path for each in changes]
        return list(dict.fromkeys(found))

    def confined(self, start: ProgramStart, enclose: Enclose) -> ClearedStart:
        """Return a program that runs in the sandbox of the model's commands, with the same rights.
        Its files need no check.
        """
        return ClearedStart(start.command, start.cwd, start.env, enclose)

    async def clear(self, start: ProgramStart) -> ClearedStart:
        """Return a program that may start. Ask the user if its files changed. Raises
        StartRefused.
        """
        import asyncio

        changes = await asyncio.to_thread(self.changes, start)
        version = (start.key, *(each.digest for each in changes))
        if changes and not self._is_first(start):
            reason = describe(start, changes)
            if version in self._declined:
                raise StartRefused(reason)
            if self._ask is None:
                self._report(start, reason)
                raise StartRefused(reason)
            if not await self._asked(start, changes):
                self._declined.add(version)
                raise StartRefused(reason)
        if changes or not self.pins.is_known(start.key):
            await asyncio.to_thread(self._accept, start, changes)
        return await asyncio.to_thread(self._cleared, start)

    def clear_unasked(self, start: ProgramStart) -> ClearedStart:
        """Return a program that may start, without asking the user. Raises StartRefused.
        Blocking.
        """
        changes = self.changes(start)
        if changes and not self._is_first(start):
            raise StartRefused(describe(start, changes))
        self._accept(start, changes)
        return self._cleared(start)

    def _cleared(self, start: ProgramStart) -> ClearedStart:
        """Return a program in the sandbox, or outside of it if it is the user's own."""
        own = not start.of_project or start.rights.outside
        confined = None if own else self.confine(start)
        if confined:
            return replace(confined, watch=self.watch)
        # Python prefers the compiled file of a module, which a command may have replaced.
        compiled = {"PYTHONPYCACHEPREFIX": str(self.pins.state_dir / COMPILED_FOLDER)}
        return ClearedStart(start.command, start.cwd, {**start.env, **compiled})

    def changes(self, start: ProgramStart) -> list[FileChange]:
        """Return the changed files of a program, and protect all of its files."""
        from .program_files import program_files

        roots = (*self.roots, *self.added)
        paths = program_files(start.command, str(start.cwd), start.env, roots, self.except_in)
        forms = (form for path in paths for form in (path, os.path.realpath(path)))
        self.protected += [path for path in dict.fromkeys(forms) if path not in self.protected]
        return self.pins.changes(paths)

    def _is_first(self, start: ProgramStart) -> bool:
        """Return True for one of the user's own programs that was never seen. A session in a folder
        above may have written the files here.
        """
        return not start.of_project and not any(map(self.pins.is_known, start.keys_around))

    def _accept(self, start: ProgramStart, changes: Sequence[FileChange]) -> None:
        with suppress(ConfigError):  # then it counts in this process
            self.pins.accept(start.key, changes)

    async def _asked(self, start: ProgramStart, changes: Sequence[FileChange]) -> bool:
        import asyncio

        assert self._ask is not None
        asking = self._ask(start, changes)
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return await asking
        future = asyncio.run_coroutine_threadsafe(_awaited(asking), self._loop)
        return await asyncio.wrap_future(future)

    def _report(self, start: ProgramStart, reason: str) -> None:
        """Report a refusal once."""
        if (start.key, reason) in self._reported:
            return
        self._reported.add((start.key, reason))
        if self._refused is None:
            self._unreported.append((start, reason))
        elif self._loop is None or self._loop.is_closed():
            self._refused(start, reason)
        else:
            self._loop.call_soon_threadsafe(self._refused, start, reason)


async def _awaited(asking: Awaitable[bool]) -> bool:
    return await asking


def describe(start: ProgramStart, changes: Sequence[FileChange]) -> str:
    """Return which files of a program changed."""
    new = [_shown(each.path, start.cwd) for each in changes if each.is_new]
    changed = [_shown(each.path, start.cwd) for each in changes if not each.is_new]
    parts = [f"changed since you accepted it: {', '.join(changed)}"] if changed else []
    parts += [f"never accepted: {', '.join(new)}"] if new else []
    return f"{start.what} runs changed files ({'; '.join(parts)})"


def _shown(path: str, cwd: Path) -> str:
    return path.removeprefix(f"{cwd}/")
