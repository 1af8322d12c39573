"""Sessions that consist of several files (folders) or are in SQLite databases. Each is read as rows
that one of the readers recognizes.
"""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....api.base import UsageError
from ....api.text import JsonObject, as_list, as_object, as_seconds, as_text, parse_json
from . import cursor, grok, hermes, vibe

if TYPE_CHECKING:
    import sqlite3

SESSION_MARK = "#"  # separates the path of a database from a session ID
_MAGIC = b"SQLite format 3\0"
# Names of session files. In a session folder, the first existing file in this order is read.
_FILES = (
    "CURRENT", "messages.jsonl", "chat_history.jsonl", "wire.jsonl", "context.jsonl",
    "events.jsonl", "log.jsonl", "store.db", "opencode.db", "state.db",
)  # fmt: skip
_BESIDE = {  # metadata files next to a session file
    "messages.jsonl": (vibe.HEADER, "meta.json"),
    "chat_history.jsonl": (grok.HEADER, "summary.json"),
}
_ID_BYTES = 32  # size of a message ID in Cursor's database
_MESSAGES_FIELD = 1  # field number of the message IDs in Cursor's root blob


def located(path: Path) -> tuple[Path, str]:
    """Return the file to read for a path, and the ID of the session in it ("": the newest). The
    path can be a folder, or `FILE#ID`.
    """
    file, mark, session = str(path).rpartition(SESSION_MARK)
    if mark and not path.exists() and Path(file).exists():
        return located(Path(file))[0], session
    found = (path / name for name in _FILES if (path / name).is_file())
    return (next(found, path) if path.is_dir() else path), ""


def name_of(path: Path, session: str) -> str:
    """Return the name of a recording: the session ID, the folder name if the file name is the same
    for all sessions, or the file name.
    """
    return session or (path.absolute().parent.name if path.name in _FILES else path.name)


def sessions_in(path: Path) -> list[tuple[str, str, str, float]]:
    """Return (ID, directory, title, time of change) for each session in a database; an empty list
    if it cannot be read.
    """
    import sqlite3

    with suppress(sqlite3.Error), closing(_opened(path)) as base:
        for query in (
            "SELECT id, directory, title, time_updated / 1000.0 FROM session"
            " WHERE parent_id IS NULL",
            "SELECT id, cwd, title, coalesce(ended_at, started_at) FROM sessions",
        ):
            with suppress(sqlite3.Error):
                return [
                    (str(id), as_text(cwd), as_text(title), as_seconds(at) or 0.0)
                    for id, cwd, title, at in base.execute(query)
                ]
    return []


def rows_of_store(path: Path, session: str) -> Iterator[JsonObject]:
    """Yield the rows of a session in a folder or database, or a header row from the metadata file
    next to a JSON lines file. Raises UsageError if a database cannot be read.
    """
    if path.name in _BESIDE:
        header, name = _BESIDE[path.name]
        if found := _json(path.with_name(name)):
            yield {header: found}
    elif path.name == "CURRENT":
        yield from _vibe(path.parent)
    elif path.suffix == ".json" and path.parts[-4:-2] == ("storage", "session"):
        yield _opencode_files(path)
    elif _is_database(path):
        yield from _database(path, session)


def _json(path: Path) -> Any:
    """Return the JSON value in a file, or None if it cannot be read."""
    with suppress(OSError, ValueError):
        return parse_json(path.read_text("utf-8", "replace"))
    return None


def _vibe(folder: Path) -> Iterator[JsonObject]:
    """Yield the messages of the newest state saved by Vibe."""
    yield {vibe.HEADER: as_object(_json(folder / "meta.json"))}
    generation = as_text(as_object(_json(folder / "CURRENT")).get("generation"))
    manifest = as_object(_json(folder / "generations" / generation / "manifest.json"))
    for part in manifest.values():
        for name in as_list(as_object(part).get("chunks")):
            for row in as_list(_json(folder / "chunks" / f"{name}.json")):
                if isinstance(as_object(row).get("message"), dict):
                    yield row


def _opencode_files(path: Path) -> JsonObject:
    """Return a session from OpenCode's JSON file storage, in the format of its exports."""
    storage, messages = path.parents[2], []
    for file in sorted((storage / "message" / path.stem).glob("*.json")):
        parts = sorted((storage / "part" / file.stem).glob("*.json"))
        messages.append({"info": _json(file), "parts": [*map(_json, parts)]})
    return {"info": as_object(_json(path)), "messages": messages}


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


def _database(path: Path, session: str) -> Iterator[JsonObject]:
    import sqlite3

    try:
        with closing(_opened(path)) as base:
            base.row_factory = sqlite3.Row
            found = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {row["name"] for row in found}
            if {"session", "message", "part"} <= tables:
                yield from _opencode(base, session)
            elif {"sessions", "messages"} <= tables:
                yield from _hermes(base, session)
            elif {"meta", "blobs"} <= tables:
                yield from _cursor(base)
    except sqlite3.Error as error:
        hint = "Close the agent that has it open, or give a copy."
        raise UsageError(f"the database {path} cannot be read: {error}", hint=hint) from error


def _opened(path: Path) -> "sqlite3.Connection":
    """Open a database read-only; as immutable if SQLite cannot write its journal files."""
    import sqlite3

    address = path.absolute().as_uri()
    base = sqlite3.connect(f"{address}?mode=ro", uri=True)
    try:
        base.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        base.close()
        return sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)
    return base


def _chosen(base: "sqlite3.Connection", query: str, session: str) -> "sqlite3.Row | None":
    """Return the row of the session with this ID, or the first row if the ID is "". Raises
    UsageError for an unknown ID.
    """
    rows = base.execute(query)
    row: sqlite3.Row | None = next((r for r in rows if session in ("", r["id"])), None)
    if row is None and session:
        raise UsageError(
            f"the database has no session {session}", hint="Leave out the # and the ID."
        )
    return row


def _opencode(base: "sqlite3.Connection", session: str) -> Iterator[JsonObject]:
    query = "SELECT * FROM session ORDER BY parent_id IS NOT NULL, time_updated DESC"
    if (row := _chosen(base, query, session)) is None:
        return
    parts = dict[str, list[JsonObject]]()
    for part in base.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", (row["id"],)):
        parts.setdefault(part["message_id"], []).append(_data(part))
    messages = base.execute(
        "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id", (row["id"],)
    )
    yield {
        "info": {"id": row["id"], "directory": row["directory"]},
        "messages": [
            {"info": _data(each), "parts": parts.get(each["id"], [])} for each in messages
        ],
    }


def _data(row: "sqlite3.Row") -> JsonObject:
    with suppress(ValueError):
        return as_object(parse_json(as_text(row["data"])))
    return {}


def _hermes(base: "sqlite3.Connection", session: str) -> Iterator[JsonObject]:
    row = _chosen(base, "SELECT * FROM sessions ORDER BY started_at DESC", session)
    if row is not None:
        yield {hermes.HEADER: dict(row)}
        query = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
        yield from map(dict, base.execute(query, (row["id"],)))


def _cursor(base: "sqlite3.Connection") -> Iterator[JsonObject]:
    """Yield the messages that the session's root blob lists. Each message is a JSON blob with its
    own ID.
    """
    value = next((row["value"] for row in base.execute("SELECT value FROM meta")), "")
    text = value if isinstance(value, str) else bytes(value).decode()
    with suppress(ValueError):
        text = bytes.fromhex(text).decode()
    try:
        meta = as_object(json.loads(text))
    except ValueError:
        meta = {}
    yield {cursor.HEADER: meta}
    blobs = {row["id"]: bytes(row["data"]) for row in base.execute("SELECT id, data FROM blobs")}
    for id in _listed_ids(blobs.get(meta.get("latestRootBlobId"), b"")):
        with suppress(ValueError):
            yield as_object(parse_json(blobs.get(id, b"").decode("utf-8", "replace")))


def _listed_ids(root: bytes) -> Iterator[str]:
    """Yield the IDs in a Protocol Buffers message, up to the first field that cannot be read."""
    at = 0
    while at < len(root):
        key, at = _number(root, at)
        if key & 7 == 0:
            _, at = _number(root, at)
            continue
        if key & 7 != 2:  # a root has only varints and bytes
            return
        size, at = _number(root, at)
        if key >> 3 == _MESSAGES_FIELD and size == _ID_BYTES:
            yield root[at : at + size].hex()
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint (seven bits per byte) at an offset, and the offset after it."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            break
    return value, at
