"""Sessions recorded by the real agents with a scripted server: a question, a file read, a failed
command, and an end. Also stores of several files or tables.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.errors import UsageError
from ctxagent.agent.recordings.recording import RecordedMessage, RecordedReply, Recording
from ctxagent.agent.recordings.tool_names import translate

from ..support.sessions.recorded import opencode, steps
from ..support.sessions.stories import cursor_rows, lines

CLIENTS = Path(__file__).parents[1] / "support" / "sessions" / "clients"
KEPT_BY = {  # a file or folder of each, and the format
    "gemini-cli.jsonl": "gemini-cli",
    "qwen-code.jsonl": "qwen-code",
    "kimi-wire.jsonl": "kimi",
    "kimi-context.jsonl": "kimi",
    "vibe": "vibe",
    "hermes.sql": "hermes",
    "opencode.sql": "opencode",
}
TELL_CWD = {"qwen-code", "vibe", "hermes", "opencode"}


def kept(name: str, folder: Path) -> Path:
    """Return a copy of an agent's files; an SQL script becomes a database."""
    source, copy = CLIENTS / name, folder / name
    if source.is_dir():
        return Path(shutil.copytree(source, copy))
    if source.suffix != ".sql":
        return Path(shutil.copy(source, copy))
    with closing(sqlite3.connect(copy)) as base:
        base.executescript(source.read_text())
    return copy


@pytest.mark.parametrize("name", KEPT_BY)
def test_sessions_recorded_by_the_real_agents(name: str, tmp_path: Path) -> None:
    recording = load_recording(kept(name, tmp_path))
    assert recording.format == KEPT_BY[name]
    assert (recording.skipped, recording.orphans) == (0, 0)
    assert recording.cwd == "/home/me/project" * (recording.format in TELL_CWD)
    words = [s for s in recording.steps if isinstance(s, RecordedMessage) and not s.by_client]
    assert [step.text.strip('"') for step in words] == ["Find the fault."]
    replies = [step for step in recording.steps if isinstance(step, RecordedReply)]
    assert [reply.text for reply in replies] == ["I look.", "", "Done."]
    ours = [translate(call) for reply in replies for call in reply.calls]
    assert [each.name for each in ours] == ["Read", "Bash"]
    assert ours[0].details["path"].endswith("a.py")
    assert ours[1].details["exit_code"] == 1
    assert all(call.answered for reply in replies for call in reply.calls)


def test_the_database_of_cursor(tmp_path: Path) -> None:
    """The root blob lists the IDs of the messages among other fields."""
    path, blobs = tmp_path / "store.db", dict[str, bytes]()
    for number, row in enumerate(cursor_rows(), 1):
        blobs[bytes([number] * 32).hex()] = json.dumps(row).encode()
    listed = b"".join(b"\x0a\x20" + bytes.fromhex(id) for id in blobs)
    blobs["root"] = b"\x10\x96\x01" + listed + b"\x22\x03abc"
    meta = json.dumps({"latestRootBlobId": "root", "lastUsedModel": "some-model-1"})
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        base.execute("CREATE TABLE blobs (id TEXT, data BLOB)")
        base.execute("INSERT INTO meta VALUES ('0', ?)", (meta.encode().hex(),))
        base.executemany("INSERT INTO blobs VALUES (?, ?)", blobs.items())
    recording = load_recording(path)
    assert (recording.format, recording.model) == ("cursor", "some-model-1")
    assert recording.steps == steps("cursor")


def test_a_transcript_of_cursor(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(
        lines([{"role": r["role"], "message": {"content": r["content"]}} for r in cursor_rows()])
    )
    assert load_recording(tmp_path / "t.jsonl").steps == steps("cursor")


def test_the_storage_of_opencode(tmp_path: Path) -> None:
    """Each message and each part is a separate file."""
    export = json.loads(opencode())
    session = tmp_path / "storage" / "session" / "project" / "ses_1.json"
    session.parent.mkdir(parents=True)
    session.write_text(json.dumps({"id": "ses_1", "directory": "/p"}, indent=1))
    for number, message in enumerate(export["messages"]):
        folder = tmp_path / "storage" / "message" / "ses_1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"msg_{number:02}.json").write_text(json.dumps(message["info"]))
        parts = tmp_path / "storage" / "part" / f"msg_{number:02}"
        parts.mkdir(parents=True)
        for place, part in enumerate(message["parts"]):
            (parts / f"prt_{place:02}.json").write_text(json.dumps(part))
    recording = load_recording(session)
    assert (recording.cwd, recording.steps) == ("/p", steps("opencode"))


def test_one_of_several_sessions_of_a_database(tmp_path: Path) -> None:
    path = kept("hermes.sql", tmp_path)
    with closing(sqlite3.connect(path)) as base, base:
        old = "INSERT INTO sessions (id, started_at, cwd) VALUES ('old', 1, '/old')"
        base.execute(old)
        row = (
            "INSERT INTO messages (id, session_id, role, content) VALUES (99, 'old', 'user', 'Hi')"
        )
        base.execute(row)

    def words(recording: Recording) -> list[str]:
        return [s.text for s in recording.steps if isinstance(s, RecordedMessage)]

    assert words(load_recording(path)) == ["Find the fault."]
    assert words(load_recording(Path(f"{path}#old"))) == ["Hi"]
    with pytest.raises(UsageError, match="no session none"):
        load_recording(Path(f"{path}#none"))


def test_gemini_rewinds(tmp_path: Path) -> None:
    """A rewind removes a message and all later ones; a row with the ID of a message replaces it."""
    rows = (CLIENTS / "gemini-cli.jsonl").read_text().splitlines()
    last = [json.loads(row) for row in rows if '"id"' in row][-1]
    more = [{"$rewindTo": last["id"]}, {**last, "id": "x", "content": "Half"}]
    more += [{**last, "id": "x", "content": "Other."}]
    (tmp_path / "s.jsonl").write_text("\n".join([*rows, *map(json.dumps, more)]))
    replies = [
        s for s in load_recording(tmp_path / "s.jsonl").steps if isinstance(s, RecordedReply)
    ]
    assert [reply.text for reply in replies] == ["I look.", "", "Other."]


def test_qwen_is_read_along_its_newest_branch(tmp_path: Path) -> None:
    rows = [json.loads(row) for row in (CLIENTS / "qwen-code.jsonl").read_text().splitlines()]
    again = {**rows[0], "uuid": "again", "parentUuid": None}
    again["message"] = {"role": "user", "parts": [{"text": "Another task."}]}
    (tmp_path / "s.jsonl").write_bytes(lines([*rows, again]))
    recording = load_recording(tmp_path / "s.jsonl")
    assert [getattr(step, "text", "") for step in recording.steps] == ["Another task."]
    assert recording.notes


def test_a_damaged_database_says_what_to_do(tmp_path: Path) -> None:
    path = kept("hermes.sql", tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(len(data) - 100))
    with pytest.raises(UsageError, match=r"hermes\.sql") as caught:
        load_recording(path)
    assert caught.value.hint
