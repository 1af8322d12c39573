"""Sessions on disk: create, find, list, fork.

A project's sessions live together in `projects/<name>-<hash>/sessions/<id>/`, where the hash is
that of the project's real path. Ids sort by time of creation and never depend on the directory.
A subagent's session stands in that of its parent, in `agents/<id>/`.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import RecordError, SessionError
from .entries import (
    Agent,
    Assistant,
    Block,
    Checkpoint,
    Content,
    Entry,
    Note,
    Pin,
    Summary,
    ToolResult,
    User,
)
from .lock import make_private
from .log import NAME, find, number, parse_line
from .private import copy, copy_tree

AGENTS = "agents"
_ID = r"\d{8}-\d{6}-[0-9a-f]{6}"


@dataclass(frozen=True, slots=True)
class Project:
    """The sessions of one project directory, under the state directory."""

    state: Path
    cwd: Path

    @property
    def folder(self) -> Path:
        real = os.path.realpath(self.cwd)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).name)[:40].strip("-.") or "root"
        digest = hashlib.sha256(real.encode(errors="surrogateescape")).hexdigest()[:10]
        return self.state / "projects" / f"{name}-{digest}"

    def new(self) -> Path:
        """The path of a new session's log; nothing is made yet."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        return self.folder / "sessions" / f"{stamp}-{secrets.token_hex(3)}" / NAME

    def logs(self) -> list[Path]:
        """Logs of this project, newest change first."""
        return _newest_first([self.folder])

    def newest(self) -> Path:
        """Raises SessionError when this project has no session."""
        logs = self.logs()
        if not logs:
            raise SessionError(
                f"there is no session for {self.cwd} to continue",
                hint="Start one with `ctxagent`; `ctxagent sessions list --all` shows those of "
                "other directories.",
            )
        return logs[0]

    def find(self, id: str) -> Path:
        """The log of a session by id or the beginning of one, or of a subagent by its own id or
        `ID/agents/ID`: here first, then anywhere. Of a subagent that forks have copied, the one
        that has changed last.

        Raises SessionError for no match, or several of different ids.
        """
        whole = self.folder / "sessions" / id / NAME
        if re.fullmatch(_ID, id) and whole.is_file():
            return whole
        for logs in (self.logs(), every_log(self.state)):
            found = _named(id, logs) or _named(id, _of_agents(logs))
            if len({path.parent.name for path in found}) > 1:
                names = ", ".join(placed(path)[1] for path in found[:5])
                raise SessionError(f"several sessions begin with {id!r}: {names}")
            if found:
                return found[0]
        raise SessionError(
            f"there is no session {id!r}", hint="`ctxagent sessions list --all` shows all ids."
        )

    def folders(self, ids: Collection[str]) -> list[Path]:
        """The folders of these sessions, whichever project they are in; those that exist."""
        return [p.parent for p in every_log(self.state) if p.parent.name in ids] if ids else []

    def fork(self, log: Path, upto: int | None = None) -> Path:
        """Copy a session, with the files it holds, to a new one in this project; the new log.

        The copy ends with entry `upto` when that is given. The original is not touched.
        """
        target = self.new()
        try:
            self._copy(log, target, upto)
        except (OSError, SessionError) as error:
            shutil.rmtree(target.parent, ignore_errors=True)
            if isinstance(error, SessionError):
                raise
            raise RecordError(
                f"the session cannot be copied: {error.strerror}",
                hint="Free the disk, then try again; the session itself is as it was.",
            ) from error
        return target

    def _copy(self, log: Path, target: Path, upto: int | None) -> None:
        make_private(target.parent)
        paths, agents = set[str](), set[str]()
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            for line in _whole_lines(log):
                if upto is not None and _seq(line) > upto:
                    continue
                out.write(line)
                if b'"checkpoint"' not in line and b'"agent"' not in line:
                    continue  # to parse every line would be most of the work
                entry = parse_line(line)
                if isinstance(entry, Checkpoint):
                    paths.add(entry.path)
                elif isinstance(entry, Agent):
                    agents.add(entry.id)
        if (log.parent / "offloaded").is_dir():
            copy_tree(log.parent / "offloaded", target.parent / "offloaded")
        for path in paths:
            if _is_held(path) and (log.parent / path).is_file():
                make_private((target.parent / path).parent)
                copy(log.parent / path, target.parent / path)
        for id in agents:
            if (log.parent / AGENTS / id).is_dir():
                copy_tree(log.parent / AGENTS / id, target.parent / AGENTS / id)


def every_log(state: Path) -> list[Path]:
    """Logs of all projects, newest change first."""
    return _newest_first((state / "projects").glob("*/"))


def placed(log: Path) -> tuple[Path, str]:
    """Where a log is: the folder of its project, and the name of its session below that: its id,
    or `ID/agents/ID` for a subagent's."""
    session = log.parent
    while session.parent.name == AGENTS:
        session = session.parent.parent
    return session.parents[1], log.parent.relative_to(session.parent).as_posix()


def whole_text(log: Path, seq: int) -> str | None:
    """The text of an entry as it was before anything was cut from it. None when there is no such
    entry, or no text in it."""
    entry = find(log, seq)
    return None if entry is None else text_of(entry, log.parent)


def text_of(entry: Entry, folder: Path) -> str | None:
    """All text of an entry: the offloaded file of a result or a checkpoint's, else its own
    words; of a reply also the calls, with their arguments as they are. `folder` is the session's.
    None for an entry that has none."""
    if isinstance(entry, ToolResult | User):
        whole = file_text(folder / str(entry.offloaded)) if entry.offloaded else None
        return plain(entry.content) if whole is None else whole
    if isinstance(entry, Assistant):
        return "\n\n".join(filter(None, map(_block_text, entry.content)))
    if isinstance(entry, Checkpoint):
        return file_text(folder / entry.path)
    if isinstance(entry, Agent):
        return f"{entry.prompt}\n\n{entry.answer}".strip()
    return entry.text if isinstance(entry, Summary | Pin | Note) else None


def file_text(path: Path) -> str | None:
    """The text of a file that a session keeps; None when it is gone."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError):  # a garbled log may name anything
        return None
    try:
        return data.decode("utf-8", "surrogatepass")  # as it was written
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _block_text(block: Block) -> str:
    kind, given = block.get("type"), block.get("input")
    if kind in ("text", "thinking"):
        return str(block.get(kind, ""))
    if kind != "tool_use":
        return ""
    lines = [f"[{block.get('name')}]"]
    for name, value in given.items() if isinstance(given, dict) else [("input", given)]:
        said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name}: {said}")
    return "\n".join(lines)


def plain(content: Content) -> str:
    """The text of a content, images and the like named in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(
        str(b.get("text", "")) if b.get("type") == "text" else f"[{b.get('type')}]" for b in content
    )


def _newest_first(projects: Iterable[Path]) -> list[Path]:
    """The logs in the folders of these projects. Some may go while they are looked for."""
    found: list[tuple[int, str, Path]] = []
    for project in projects:
        with suppress(OSError), os.scandir(project / "sessions") as sessions:
            for session in sessions:
                with suppress(OSError):
                    log = Path(session.path, NAME)
                    found.append((log.stat().st_mtime_ns, session.name, log))
    return [log for _, _, log in sorted(found, reverse=True)]


def _named(id: str, logs: Sequence[Path]) -> list[Path]:
    """The logs of this id or name, else those of one that begins so."""
    known = {path: (path.parent.name, placed(path)[1]) for path in logs}
    return [path for path, names in known.items() if id in names] or [
        path for path, names in known.items() if id and any(n.startswith(id) for n in names)
    ]


def _of_agents(logs: Sequence[Path]) -> list[Path]:
    """The logs of the subagents of these sessions, newest change first; of copies that have not
    changed since, in the order of the sessions."""
    found = [path for log in logs for path in log.parent.glob(f"{AGENTS}/*/{NAME}")]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _is_held(path: str) -> bool:
    """Whether a path leads to a checkpoint in the folder of its session; a garbled log may name
    anything."""
    return re.fullmatch(r"checkpoints/\d+\.json", path) is not None


def _whole_lines(log: Path) -> Iterator[bytes]:
    try:
        with log.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except OSError as error:
        raise SessionError(f"cannot read the log {log}: {error.strerror}") from error


def _seq(line: bytes) -> int:
    if known := number(line):
        return known
    entry = parse_line(line)
    return entry.seq if entry else 0
