"""The log: append, read, repair, lock; sessions: find, fork."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.history import acts, marks, session_metrics
from ctxagent.agent.compaction.recovery import recover_session
from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import RecordError, SessionError
from ctxagent.agent.session.entries import (
    KINDS,
    Assistant,
    Checkpoint,
    End,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Unpin,
    User,
    decode,
    encode,
)
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.listing import session_row
from ctxagent.agent.session.log import Log, read_log, try_parse_entry
from ctxagent.agent.session.store import Project, all_logs
from ctxagent.agent.session.totals import Totals


def session(folder: Path, *words: str) -> Path:
    log = Log(Project(folder / "state", folder).new_log())
    log.append(Session(id="x", cwd=str(folder), version="0", model="m", system="s" * 3000))
    for each in words:
        log.append(User(content=each))
        log.append(
            Assistant(
                content=[{"type": "text", "text": f"re: {each}"}],
                usage={"input": 1},
                stop_reason="end_turn",
                model="m",
            )
        )
    log.close()
    return log.path


def test_append_returns_the_entry_as_read(tmp_path: Path) -> None:
    log = Log(tmp_path / "s" / "log.jsonl")
    given = [
        User(content="hé\ud800llo\n\x00"),
        ToolResult(tool_use_id="a", content=[{"type": "text", "text": "x"}], details={"n": (1, 2)}),
    ]
    answered = [log.append(entry) for entry in given]
    assert [e.seq for e in answered] == [1, 2]
    assert read_log(log.path).entries == answered
    assert answered[0].content == "hé\ud800llo\n\x00"  # type: ignore[attr-defined]


def test_files_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = session(tmp_path, "hello")
    finally:
        os.umask(old)
    folder = path.parent
    while folder != tmp_path:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        folder = folder.parent
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_nothing_is_on_disk_before_the_first_entry(tmp_path: Path) -> None:
    log = Log(tmp_path / "s" / "log.jsonl")
    log.sync()
    log.close()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("torn", [b'{"v": 1, "seq": 9, "kin', b"\xff\xfe", b"{}"])
def test_a_torn_tail_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = session(tmp_path, "one")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    log = Log.open(path)
    assert log.last_seq == 3
    assert path.read_bytes() == whole
    assert f"{len(torn)} bytes" in log.warnings[0]
    assert log.append(User(content="next")).seq == 4
    log.close()


def test_a_bad_line_is_skipped_and_named(tmp_path: Path) -> None:
    path = session(tmp_path, "one", "two")
    lines = path.read_bytes().split(b"\n")
    lines[1] = b"garbage"
    lines[3] = json.dumps({"v": 1, "seq": 4, "kind": "user", "content": 7}).encode()
    path.write_bytes(b"\n".join(lines))
    reading = read_log(path)
    assert [e.seq for e in reading.entries] == [1, 3, 5]
    assert ":2: skipped" in reading.warnings[0]
    assert ":4: skipped, user.content has the wrong type int" in reading.warnings[1]


@pytest.mark.slow
def test_a_second_process_is_told_who_has_the_session(tmp_path: Path) -> None:
    path = session(tmp_path, "one")
    code = (
        "import sys; from pathlib import Path; from ctxagent.agent.session.log import Log; "
        "log = Log.open(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(SessionError, match=f"pid {other.pid}"):
            Log.open(path)
        other.kill()
    log = Log.open(path)  # a killed holder leaves no lock behind
    assert log.last_seq == 3
    log.close()


@pytest.mark.slow
def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = session(tmp_path, "one")
    before = path.read_bytes()
    code = (
        "import resource, signal, sys; from pathlib import Path;"
        "from ctxagent.agent.session.log import Log;"
        "from ctxagent.agent.session.entries import User;"
        "from ctxagent.agent.errors import RecordError;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "path = Path(sys.argv[1]); log = Log.open(path);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, -1))\n"
        "try: log.append(User(content='x' * 500))\n"
        "except RecordError as e: print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert "cannot record the session" in done.stdout, done.stderr
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot record"):
        Log(tmp_path / "file" / "s" / "log.jsonl").append(User(content="x"))


WHOLE: list[Entry] = [
    Session(id="s", cwd="/p", version="1", model="m", system="x", tools=[{}], parent={"id": "r"}),
    User(content=[{"type": "text", "text": "x"}], source="person"),
    Assistant(content=[{"type": "text", "text": "x"}], usage={"input": 1}, stop_reason=None,
              model="m", message_id="i", cost_usd=0.1),
    ToolResult(tool_use_id="t", content="x", details={"exit_code": 1}, offloaded="offloaded/x.md"),
    Mask(layer="demote", targets=[{"seq": 4, "tool_use_id": "t", "stub": "s"}], tokens_before=1,
         tokens_after=0, trigger="x"),
    Summary(document={"intent": "x"}, text="x", covers=[1, 2], keep_from=3, keep=[2],
            probes={"tally": {}}, files=["summary.md"]),
    Revert(target=5),
    Checkpoint(number=1, path="checkpoints/1.json"),
    Pin(ref=2, text="x"),
    Unpin(ref=2),
    Note(topic="drift", text="x", data={"severity": "HIGH"}),
    SubagentRun(id="a", type="general", prompt="x", log="agents/a/log.jsonl", cost_usd=1),
    End(status="ok"),
]  # fmt: skip
ODD = st.sampled_from(
    [None, True, -1, 10**400, 1.5, float("nan"), float("inf"), "x", [], {}, [[]], [{}], [None],
     {"a": None}, [1, 2, 3], ["\ud800"]]
)  # fmt: skip


def test_every_kind_and_field_makes_the_round_trip() -> None:
    assert [type(entry) for entry in WHOLE] == list(KINDS.values())
    for entry in WHOLE:
        assert decode(json.loads(json.dumps(encode(replace(entry, seq=1))))) == replace(
            entry, seq=1
        )


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_bad_field_does_not_affect_other_entries(data: st.DataObject) -> None:
    """If a field has another value, its line is skipped or nothing computed from the log fails."""
    lines = [encode(replace(entry, seq=seq)) for seq, entry in enumerate(WHOLE, 1)]
    for _ in range(data.draw(st.integers(1, 2))):
        line = data.draw(st.sampled_from(lines))
        name = data.draw(st.sampled_from(sorted(line.keys() - {"v", "seq", "at", "kind"})))
        inner = line[name]
        if isinstance(inner, dict) and data.draw(st.booleans()):
            key = data.draw(st.sampled_from([*inner, "tokens_saved"]))
            line[name] = {**inner, key: data.draw(ODD)}
        else:
            line[name] = data.draw(ODD)
    entries = [entry for line in lines if (entry := try_parse_entry(json.dumps(line).encode()))]
    ledger, totals = Ledger(), Totals()
    for entry in entries:
        ledger.add(entry)
        totals.add(entry)
    json.dumps([ledger.to_json(), totals.all.compaction])
    assert len(list(marks(entries))) <= len(entries)
    json.dumps([session_metrics(entries).to_json(), [act.to_json() for act in acts(entries)]])
    with contextlib.suppress(SessionError):
        recover_session(entries, 3)
    build_request(fold(entries), model="m", max_tokens=10, effort=None)


@pytest.mark.parametrize(
    ("number", "name", "value"),
    [
        (0, "cwd", {}), (0, "id", 7), (0, "tools", [1]), (1, "source", []), (2, "model", None),
        (2, "cost_usd", -1), (2, "cost_usd", float("nan")), (2, "usage", {"input": 10**400}),
        (3, "details", [1]), (3, "offloaded", [1]), (4, "targets", [[]]), (4, "layer", []),
        (4, "tokens_before", "9"), (5, "covers", [1]), (5, "covers", [1, None]), (5, "files", [1]),
        (5, "tokens_after", True), (5, "keep", ["2"]), (5, "document", None), (5, "probes", []),
        (6, "target", -1), (8, "ref", [1]), (9, "ref", "2"), (10, "data", "x"), (11, "id", []),
        (12, "reason", None), (12, "seq", 10**30), (12, "seq", True),
    ],
)  # fmt: skip
def test_a_line_with_a_malformed_field_is_skipped_with_a_warning(
    tmp_path: Path, number: int, name: str, value: object
) -> None:
    path = tmp_path / "log.jsonl"
    lines = [encode(replace(entry, seq=seq)) for seq, entry in enumerate(WHOLE, 1)]
    lines[number][name] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reading = read_log(path)
    assert [e.seq for e in reading.entries] == [n for n in range(1, 14) if n != number + 1]
    (warning,) = reading.warnings
    assert f":{number + 1}: skipped, " in warning
    assert name in warning


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["session", "user", "assistant", "tool_result", "mask", "summary", "revert"]),
    st.sampled_from(["content", "usage", "targets", "seq", "text", "keep", "stop_reason", "zzz"]),
)
def test_any_line_decodes_or_is_a_value_error(value: object, kind: str, name: str) -> None:
    line = {"seq": 1, "kind": kind, name: value}
    with contextlib.suppress(ValueError):
        decode(line)


def test_find_by_id_beginning_and_newest(tmp_path: Path) -> None:
    project = Project(tmp_path / "state", tmp_path)
    with pytest.raises(SessionError, match="no session"):
        project.newest_log()
    first = session(tmp_path, "one")
    second = session(tmp_path, "two")
    os.utime(first, (1, 1))
    assert project.newest_log() == second
    assert project.find_log(first.parent.name) == first
    assert project.find_log(first.parent.name[:-1]) == first
    with pytest.raises(SessionError, match="several"):
        project.find_log("20")
    with pytest.raises(SessionError, match="no session 'zz'"):
        project.find_log("zz")
    elsewhere = Project(tmp_path / "state", tmp_path / "other")
    assert elsewhere.logs() == []
    assert elsewhere.find_log(first.parent.name) == first
    assert all_logs(tmp_path / "state") == [second, first]


def test_rows_tell_title_and_last_words(tmp_path: Path) -> None:
    found = session_row(session(tmp_path, "fix   the\nbug", "and this"))
    assert (found.title, found.last) == ("fix the bug", "re: and this")


def test_a_fork_is_a_copy_with_an_id_of_its_own(tmp_path: Path) -> None:
    path = session(tmp_path, "one", "two")
    (path.parent / "offloaded").mkdir()
    (path.parent / "offloaded" / "a.md").write_text("big")
    project = Project(tmp_path / "state", tmp_path)
    before = path.read_bytes()
    copy = project.fork(path, upto=3)
    assert copy.parent.name != path.parent.name
    assert [e.seq for e in read_log(copy).entries] == [1, 2, 3]
    shared = copy.parent / "offloaded" / "a.md"
    assert shared.read_text() == "big"
    assert shared.samefile(path.parent / "offloaded" / "a.md")  # it may have 256 MB
    assert read_log(project.fork(path)).entries == read_log(path).entries
    assert path.read_bytes() == before


@pytest.mark.slow
def test_an_unwritable_lock_is_reported(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path;"
        "from ctxagent.agent.session.log import Log;"
        "from ctxagent.agent.session.entries import User;"
        "from ctxagent.agent.errors import RecordError;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))\n"
        "try: Log(Path(sys.argv[1])).append(User(content='x'))\n"
        "except RecordError as e: print(e)\n"
    )
    path = str(tmp_path / "s" / "log.jsonl")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "cannot record the session" in done.stdout, done.stderr


@pytest.mark.parametrize("value", [None, [], "sha256", 7])
def test_a_reply_is_read_whatever_is_said_of_its_request(value: object) -> None:
    reply = replace(next(entry for entry in WHOLE if isinstance(entry, Assistant)), seq=3)
    line = {**encode(replace(reply, request={"upto": 2})), "request": value}
    assert decode(line) == replace(reply, request={})
