"""Sessions on disk: create, find, list, fork, export.

A project's sessions live together in `projects/<name>-<hash>/sessions/<id>/`, where the hash is
that of the project's real path. Ids sort by time of creation and never depend on the directory.
Listing reads the two ends of each log only.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import SessionError
from .entries import (
    Assistant,
    Content,
    Entry,
    Pin,
    Summary,
    ToolResult,
    User,
    decode,
    encode,
)
from .log import NAME, find, make_private, read

_HEAD = 512 * 1024  # bytes read for a title: the first line holds the system prompt and tools
_TAIL = 64 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """A session in a list. `size` is the log's, in bytes; `changed` in seconds since the epoch."""

    id: str
    log: Path
    title: str
    last: str
    size: int
    changed: float


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
        return _newest_first((self.folder / "sessions").glob(f"*/{NAME}"))

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
        """The log of a session by id or the beginning of one: here first, then anywhere.

        Raises SessionError for no match, or several.
        """
        for logs in (self.logs(), every_log(self.state)):
            found = [p for p in logs if p.parent.name == id] or [
                p for p in logs if id and p.parent.name.startswith(id)
            ]
            if len(found) > 1:
                names = ", ".join(p.parent.name for p in found[:5])
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
        """Copy a session, with what it offloaded, to a new one in this project; the new log.

        The copy ends with entry `upto` when that is given. The original is not touched.
        """
        target = self.new()
        make_private(target.parent)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            for line in _whole_lines(log):
                if upto is None or _seq(line) <= upto:
                    out.write(line)
        offloaded = log.parent / "offloaded"
        if offloaded.is_dir():
            shutil.copytree(offloaded, target.parent / "offloaded")
        return target


def every_log(state: Path) -> list[Path]:
    """Logs of all projects, newest change first."""
    return _newest_first((state / "projects").glob(f"*/sessions/*/{NAME}"))


def row(log: Path) -> Row:
    """What a list shows of a session, from the two ends of its log."""
    stat = log.stat()
    with log.open("rb") as file:
        head = file.read(_HEAD).split(b"\n")
        file.seek(max(0, stat.st_size - _TAIL))
        tail = file.read().split(b"\n")
    title = next(_words(head), "")
    last = next(_words(reversed(tail)), title)
    return Row(log.parent.name, log, title, last, stat.st_size, stat.st_mtime)


def export(log: Path, format: str) -> str:
    """A session as one text: `md` for people, `json` a list of its entries."""
    entries = read(log).entries
    if format == "json":
        return json.dumps([encode(e) for e in entries], ensure_ascii=False, indent=1)
    parts = [f"# Session {log.parent.name}", *filter(None, map(_markdown, entries))]
    return "\n\n".join(parts) + "\n"


def whole_text(log: Path, seq: int) -> str | None:
    """The text of an entry as it was before anything was cut from it: the offloaded file of a tool
    result, else the entry's own words. None when there is no such entry, or no text in it."""
    entry = find(log, seq)
    if isinstance(entry, ToolResult):
        if entry.offloaded:
            try:
                return (log.parent / entry.offloaded).read_bytes().decode("utf-8", "replace")
            except OSError:
                pass  # the reference in the entry still says what it was
        return plain(entry.content)
    if isinstance(entry, User):
        return plain(entry.content)
    if isinstance(entry, Assistant):
        return json.dumps(entry.content, ensure_ascii=False, indent=1)
    return entry.text if isinstance(entry, Summary | Pin) else None


def plain(content: Content) -> str:
    """The text of a content, images and the like named in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(
        str(b.get("text", "")) if b.get("type") == "text" else f"[{b.get('type')}]" for b in content
    )


def _markdown(entry: Entry) -> str:
    if isinstance(entry, User):
        whose = "User" if entry.source == "person" else entry.source.capitalize()
        return f"## {whose} · #{entry.seq}\n\n{plain(entry.content)}"
    if isinstance(entry, Assistant):
        parts = [f"## Assistant · #{entry.seq}"]
        for block in entry.content:
            if block.get("type") == "text":
                parts.append(str(block.get("text")))
            elif block.get("type") == "tool_use":
                given = json.dumps(block.get("input"), ensure_ascii=False, indent=1)
                parts.append(f"**{block.get('name')}**\n\n{_fenced(given, 'json')}")
        return "\n\n".join(parts)
    if isinstance(entry, ToolResult):
        head = f"### Result · #{entry.seq}" + (" · error" if entry.is_error else "")
        return f"{head}\n\n{_fenced(plain(entry.content))}"
    return ""


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _newest_first(logs: Iterator[Path]) -> list[Path]:
    return sorted(logs, key=lambda p: (p.stat().st_mtime_ns, p.parent.name), reverse=True)


def _whole_lines(log: Path) -> Iterator[bytes]:
    try:
        with log.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except OSError as error:
        raise SessionError(f"cannot read the log {log}: {error.strerror}") from error


def _seq(line: bytes) -> int:
    entry = _entry(line)
    return entry.seq if entry else 0


def _entry(line: bytes) -> Entry | None:
    try:
        data = json.loads(line)
        return decode(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError):
        return None


def _words(lines: Iterator[bytes] | list[bytes]) -> Iterator[str]:
    for line in lines:
        if b'"user"' not in line and b'"assistant"' not in line:
            continue
        entry = _entry(line)
        if isinstance(entry, User) and entry.source == "person":
            yield " ".join(plain(entry.content).split())[:200]
        elif isinstance(entry, Assistant):
            said = [str(b.get("text")) for b in entry.content if b.get("type") == "text"]
            if "".join(said).strip():
                yield " ".join(" ".join(said).split())[:200]
