"""Sessions on disk: create, find, list, fork.

A project's sessions are stored in `projects/<name>-<hash>/sessions/<id>/`, where the hash is that
of the project's real path. IDs sort by creation time and do not depend on the directory. A
subagent's session is in its parent's folder, in `agents/<id>/`.
"""

import json
import os
import re
import secrets
import shutil
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path

from ...tools.system.files import (
    copy_private,
    copy_tree_private,
    make_private_folder,
    open_below,
    open_kept,
    read_below,
    share_private,
)
from ...tools.system.kept_text import KeptText
from .. import worktree  # its names are imported on first use
from ..errors import NoSuchSession, RecordError, SessionError, UsageError
from ..lazy import dataclass, regex
from .archive import SUMMARY_NAME
from .conversation import CONVERSATION_NAME, write_conversation
from .entries import (
    Assistant,
    Block,
    Checkpoint,
    Content,
    Entry,
    Note,
    Pin,
    SubagentRun,
    Summary,
    ToolResult,
    User,
    summarized_text,
)
from .log import LOG_NAME, Entries, find_entries, find_entry, seq_of_line, try_parse_entry
from .project_record import find_former, project_folder
from .searches import search_text
from .titles import TITLE_TOPIC, save_title

AGENTS = "agents"
_IMAGE = regex(r"offloaded/[0-9a-f]{1,64}\.[a-z]{1,8}")
MAX_KEPT_BYTES = 256 << 20  # of a text in a file of the session
_COPIED_MARKS = (b'"checkpoint"', b'"agent"', b'"title"')  # in the lines that a copy must parse
_ID = r"\d{8}-\d{6}-[0-9a-f]{6}"
_GIVEN_ID = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Project:
    """The sessions of one project directory."""

    state: Path  # the state directory of all projects
    cwd: Path

    @property
    def folder(self) -> Path:
        return project_folder(self.state / "projects", os.path.realpath(self.cwd))

    @property
    def store(self) -> Path:
        """The store of snapshots and saved files."""
        return self.folder / worktree.STORE_FOLDER

    def new_log(self) -> Path:
        """Return the path of a new session's log. Creates no file."""
        return self.folder / "sessions" / new_session_id() / LOG_NAME

    def log_for_task(self, id: str) -> Path:
        """Return the log path of a session with a given ID, which need not exist. Raises UsageError
        for an invalid ID.
        """
        if not _GIVEN_ID.fullmatch(id):
            hint = "Give up to 64 letters, digits, dots, - and _, beginning with a letter or digit."
            raise UsageError(f"{id!r} is not a valid session ID", hint=hint)
        return self.folder / "sessions" / id / LOG_NAME

    def logs(self) -> list[Path]:
        """Return the logs of this project, last modified first."""
        return _newest_first([self.folder])

    def newest_log(self) -> Path:
        """Return the log modified last. Raises NoSuchSession if this project has none."""
        logs = self.logs()
        if not logs:
            hint = (
                "Start one with `ctxagent`; `ctxagent sessions list --all` shows those of other "
                "directories."
            )
            if former := find_former(self.folder, self.cwd):
                hint = f"{former.line} {former.hint}"
            raise NoSuchSession(f"there is no session to continue in {self.cwd}", hint=hint)
        return logs[0]

    def find_log(self, id: str) -> Path:
        """Find the log of a session or subagent by its ID or the beginning of the ID.

        A subagent may also be named `ID/agents/ID`. If forks have copied a subagent, the log
        modified last is returned. This project is searched first, then all projects. Raises
        NoSuchSession for no match, or for matches with different IDs.
        """
        exact = self.folder / "sessions" / id / LOG_NAME
        if re.fullmatch(_ID, id) and exact.is_file():
            return exact
        for logs in (self.logs(), all_logs(self.state)):
            found = _matching(id, logs) or _matching(id, _subagent_logs(logs))
            if len({path.parent.name for path in found}) > 1:
                names = ", ".join(locate_log(path)[1] for path in found[:5])
                raise NoSuchSession(
                    f"several sessions begin with {id!r}: {names}",
                    hint="Give more characters of the ID.",
                )
            if found:
                return found[0]
        raise NoSuchSession(
            f"there is no session {id!r}", hint="`ctxagent sessions list --all` shows all ids."
        )

    def session_folders(self, ids: Collection[str]) -> list[Path]:
        """Return the existing folders of these sessions, in any project."""
        return [p.parent for p in all_logs(self.state) if p.parent.name in ids] if ids else []

    def fork(self, log: Path, upto: int | None = None) -> Path:
        """Copy a session and its files to a new session of this project, and return the new log.
        With `upto`, the copy ends with that entry, and the logs of its subagents end at the same
        time. The original stays unchanged.
        """
        target = self.new_log()
        try:
            _copy_session(log, target, inf if upto is None else upto)
            _link_saved_files(log, target)
        except (OSError, SessionError) as error:
            shutil.rmtree(target.parent, ignore_errors=True)
            if isinstance(error, SessionError):
                raise
            raise RecordError(
                f"the session cannot be copied: {error.strerror}",
                hint="Free disk space, then try again. The session itself is unchanged.",
            ) from error
        return target


def new_session_id() -> str:
    """Return a unique session ID."""
    return f"{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def _copy_session(log: Path, target: Path, upto: float, before: str = "") -> None:
    """Copy a log and the session's files that belong to it. Keep the entries up to `upto`, and
    later entries recorded before the time `before`. Raises OSError and SessionError.
    """
    source, folder = log.parent.resolve(), target.parent
    make_private_folder(folder)
    if upto == inf:  # before the log: a copy must not have more than its log
        _copy_file(source, folder, CONVERSATION_NAME)
    paths, runs = set[str](), dict[str, SubagentRun]()
    left_out_from: str | None = None  # time of the first entry left out
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        for line in _read_whole_lines(log):
            if _seq(line) > upto and not (at := _recorded_at(line)) < before:
                left_out_from = at if left_out_from is None else left_out_from
                continue
            out.write(line)
            if not any(mark in line for mark in _COPIED_MARKS):
                continue  # parsing every line would take most of the time
            entry = try_parse_entry(line)
            if isinstance(entry, Checkpoint):
                paths.add(entry.path)
            elif isinstance(entry, SubagentRun):
                runs[entry.id] = entry
            elif isinstance(entry, Note) and entry.topic == TITLE_TOPIC:
                save_title(folder, entry.text)
    if _has_no_symlink(source / "offloaded") and (source / "offloaded").is_dir():
        copy_tree_private(source / "offloaded", folder / "offloaded", share_private)
    for path in filter(None, paths):
        _copy_file(source, folder, path)
    if left_out_from is None:
        _copy_file(source, folder, SUMMARY_NAME)
    if upto != inf:
        write_conversation(folder, Entries(target))
    for id, run in runs.items():
        old, new = (each / AGENTS / id / LOG_NAME for each in (source, folder))
        if not _has_no_symlink(old.parent):
            continue
        if left_out_from is None and old.parent.is_dir():
            copy_tree_private(old.parent, new.parent)
        elif left_out_from is not None and old.is_file():
            _copy_session(old, new, run.told, left_out_from)


def _link_saved_files(log: Path, target: Path) -> None:
    """Give the files that a session has saved a second name in a copy of it. Raises OSError."""
    here, there = (
        each.resolve().parents[2] / worktree.STORE_FOLDER / worktree.SAVED_FOLDER
        for each in (target, log)
    )
    for source in (here / log.parent.name, there / log.parent.name):
        if source.is_dir() and _has_no_symlink(source):
            copy_tree_private(source, here / target.parent.name, share_private)
            return


def _copy_file(source: Path, folder: Path, name: str) -> None:
    """Copy a file of the session if it exists. Raises OSError."""
    if _has_no_symlink(source / name) and (source / name).is_file():
        make_private_folder((folder / name).parent)
        copy_private(source / name, folder / name)


def _has_no_symlink(path: Path) -> bool:
    """Return True if a path in a session's real folder contains no symbolic link."""
    return path.resolve() == path


def all_logs(state: Path) -> list[Path]:
    """Return the logs of all projects, last modified first."""
    return _newest_first((state / "projects").glob("*/"))


def locate_log(log: Path) -> tuple[Path, str]:
    """Return the folder of a log's project, and the session's name: the ID, or `ID/agents/ID` for a
    subagent.
    """
    session = log.parent
    while session.parent.name == AGENTS:
        session = session.parent.parent
    return session.parents[1], log.parent.relative_to(session.parent).as_posix()


def full_text(log: Path, seq: int) -> str | None:
    """Return the whole text of an entry before any cut, or None if there is none."""
    found = find_text(log, seq)
    return None if found is None else found.whole()


def find_text(log: Path, seq: int) -> KeptText | None:
    """Return the same text as `full_text`, readable in pieces."""
    entry = find_entry(log, seq)
    return None if entry is None else entry_kept_text(entry, log.parent)


def find_texts(log: Path, seqs: Collection[int]) -> dict[int, KeptText]:
    """Return the same texts for several entries, by seq."""
    texts = {
        seq: entry_kept_text(entry, log.parent) for seq, entry in find_entries(log, seqs).items()
    }
    return {seq: text for seq, text in texts.items() if text is not None}


def entry_kept_text(entry: Entry, folder: Path) -> KeptText | None:
    """Return the same text as `entry_text`, readable in pieces."""
    name = entry.offloaded if isinstance(entry, ToolResult | User) else None
    if name and (found := kept_text(folder, name)) is not None:
        return found
    text = entry_text(entry, folder)
    return None if text is None else KeptText(text)


def entry_text(entry: Entry, folder: Path) -> str | None:
    """Return the whole text of an entry of the session in `folder`, or None if the entry has no
    text. This is the offloaded file of a result, the file of a checkpoint, or the entry's own text.
    For a reply it includes the calls with their arguments.
    """
    if isinstance(entry, ToolResult | User):
        whole = read_kept_text(folder, entry.offloaded) if entry.offloaded else None
        return content_text(entry.content) if whole is None else whole
    if isinstance(entry, Assistant):
        return "\n\n".join(filter(None, map(_block_text, entry.content)))
    if isinstance(entry, Checkpoint):
        return read_kept_text(folder, entry.path)
    if isinstance(entry, SubagentRun):
        return f"{entry.prompt}\n\n{entry.answer}".strip()
    if isinstance(entry, Summary):
        return entry.whole_text
    return entry.text if isinstance(entry, Pin | Note) else None


def entry_images(entry: Entry, folder: Path) -> list[bytes]:
    """Return the images of an entry of the session in `folder`. If the original image was saved,
    return only the original.
    """
    if not isinstance(entry, ToolResult | User):
        return []
    kept = entry.details.get("image") if isinstance(entry.details, dict) else None
    name = str(kept.get("path")) if isinstance(kept, dict) else ""
    if _IMAGE.fullmatch(name):
        with suppress(OSError, ValueError):
            return [read_below(folder, name, MAX_KEPT_BYTES)]
    found = list[bytes]()
    for block in entry.content if isinstance(entry.content, list) else ():
        source = block.get("source") if block.get("type") == "image" else None
        if isinstance(source, dict) and source.get("type") == "base64":
            with suppress(ValueError):
                found.append(b64decode(str(source.get("data")), validate=True))
    return found


def read_kept_text(folder: Path, name: str) -> str | None:
    """Return the text of a file in the session's folder, or None if it is missing. Only the first
    MAX_KEPT_BYTES are read.
    """
    try:
        data = read_below(folder, name, MAX_KEPT_BYTES)
    except (OSError, ValueError):  # a garbled log may name anything
        return None
    try:
        return data.decode("utf-8", "surrogatepass")  # the encoding used for writing
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def kept_text(folder: Path, name: str) -> KeptText | None:
    """Return the text of a file in the session's folder, readable in pieces, or None if it is
    missing.
    """
    try:
        open_below(folder, name).close()
    except (OSError, ValueError):  # a garbled log may name anything
        return None
    return KeptText(open_file=partial(open_below, folder, name))


def _block_text(block: Block) -> str:
    kind, arguments = block.get("type"), block.get("input")
    if kind in ("text", "thinking"):
        return str(block.get(kind, ""))
    if kind != "tool_use":
        return search_text(block)
    lines = [f"[{block.get('name')}]"]
    for name, value in arguments.items() if isinstance(arguments, dict) else [("input", arguments)]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name}: {text}")
    return "\n".join(lines)


def content_text(content: Content) -> str:
    """Return the text of a content. Images and other blocks become their type in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(
        str(b.get("text", ""))
        if b.get("type") == "text"
        else search_text(b) or summarized_text(b) or f"[{b.get('type')}]"
        for b in content
    )


def _newest_first(projects: Iterable[Path]) -> list[Path]:
    """List the logs of projects. Ignore sessions deleted meanwhile."""
    found: list[tuple[int, str, Path]] = []
    for project in projects:
        with suppress(OSError), os.scandir(project / "sessions") as sessions:
            for session in sessions:
                with suppress(OSError):
                    log = Path(session.path, LOG_NAME)
                    found.append((log.stat().st_mtime_ns, session.name, log))
    return [log for _, _, log in sorted(found, reverse=True)]


def _matching(id: str, logs: Sequence[Path]) -> list[Path]:
    """Return the logs with this ID or name, else those whose ID or name starts with it."""
    known = {path: (path.parent.name, locate_log(path)[1]) for path in logs}
    return [path for path, names in known.items() if id in names] or [
        path for path, names in known.items() if id and any(n.startswith(id) for n in names)
    ]


def _subagent_logs(logs: Sequence[Path]) -> list[Path]:
    """Return the logs of the subagents of these sessions, last modified first."""
    found = [path for log in logs for path in log.parent.glob(f"{AGENTS}/*/{LOG_NAME}")]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _read_whole_lines(log: Path) -> Iterator[bytes]:
    try:
        with open_kept(log) as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except OSError as error:
        raise SessionError(f"cannot read the log {log}: {error.strerror}") from error


def _recorded_at(line: bytes) -> str:
    entry = try_parse_entry(line)
    return entry.at if entry else ""


def _seq(line: bytes) -> int:
    if known := seq_of_line(line):
        return known
    entry = try_parse_entry(line)
    return entry.seq if entry else 0
