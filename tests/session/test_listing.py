"""The list of sessions: the content of a row, for logs of every kind and while they change."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.session.entries import Assistant, End, Entry, Session, ToolResult, User
from ctxagent.agent.session.listing import (
    CATALOGUE_NAME,
    MIN_CARDS_TO_SAVE,
    SessionRow,
    last_exchange,
    newest_entries,
    session_row,
    session_rows,
)
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project, all_logs
from ctxagent.agent.session.titles import save_title, title_note

from ..support.command import Place
from ..support.server.loopback import Say, Server


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(text: str, purpose: str = "turn") -> Assistant:
    block = {"type": "text", "text": text}
    return Assistant(content=[block], usage={}, stop_reason="end_turn", model="m", purpose=purpose)


def opened(cwd: str = "/here", branch: str = "main", **more: Any) -> Session:
    return Session(id="x", cwd=cwd, branch=branch, version="0", model="m", **more)


def write(path: Path, *entries: Entry) -> Path:
    log = Log(path / "log.jsonl")
    for entry in entries:
        log.append(entry)
    log.close()
    return log.path


def test_a_row(tmp_path: Path) -> None:
    log = write(
        tmp_path / "one",
        opened(system="s" * 40_000, tools=[{"name": "t"}]),
        User(content="Be kind.", source="instructions"),
        User(content="fix  the\nparser"),
        said("On it."),
        User(content=[{"type": "text", "text": "and the tests"}]),
        said("Both done."),
        said("## Session Intent", purpose="summary"),
    )
    os.utime(log, (77, 77))
    size = log.stat().st_size
    assert session_row(log) == SessionRow(
        "one", log, "fix the parser", "Both done.", size, 77.0, 7, "main", "/here", False, "x"
    )
    assert last_exchange(newest_entries(log)) == ("and the tests", "Both done.")


def test_a_session_has_failed_if_its_only_message_ended_in_an_error(place: Place) -> None:
    hello, error = User(content="hello"), End(status="error", reason="no key")
    kinds = {
        "failed": (hello, error),
        "answered": (hello, said("Hi."), error),
        "second": (hello, said("Hi."), User(content="hello"), error),
        "killed": (hello,),
        "stopped": (hello, End(status="interrupted")),
    }
    project = Project(place.state, place.project)
    for name, entries in kinds.items():
        write(project.folder / "sessions" / name, opened(), *entries)
    listed = place.run("sessions", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed if line.endswith("(failed)")] == ["failed"]
    document = json.loads(place.run("sessions", "list", "--json").stdout)["sessions"]
    assert [each["id"] for each in document if each["failed"]] == ["failed"]


def test_a_copy_is_marked_in_the_list(place: Place) -> None:
    project = Project(place.state, place.project)
    log = Log(project.new_log())
    id = log.path.parent.name
    log.append(Session(id=id, cwd=str(place.project), version="0", model="m"))
    log.append(User(content="fix the parser"))
    log.close()
    copy = place.run("sessions", "fork", id).stdout.strip()
    rows = {line.split()[0]: line for line in place.run("sessions", "list").stdout.splitlines()}
    document = json.loads(place.run("sessions", "list", "--json").stdout)
    assert [each["id"] for each in document["sessions"]] == [*rows]
    assert rows[id].endswith("  fix the parser")
    assert rows[copy].endswith(f"  fix the parser  (copy of {id})")


def test_a_title_takes_the_place_of_the_first_words(tmp_path: Path) -> None:
    """Even an old title, and in a copy; the log has every title."""
    project = Project(tmp_path / "state", tmp_path)
    log = Log(project.new_log())
    log.append(opened())
    log.append(User(content="fix the parser"))
    for title in ("The first", " The parser,\nmended "):
        note = log.append(title_note(title))
        save_title(log.path.parent, note.text)
    for _ in range(40):
        log.append(said("word " * 5_000))
    log.close()
    assert session_row(log.path).title == "The parser, mended"
    copy = project.fork(log.path)
    assert session_row(copy).title == "The parser, mended"
    earlier = project.fork(log.path, upto=3)
    assert session_row(earlier).title == "The first"
    for wrong in (" ", "x" * 101):
        with pytest.raises(UsageError, match=r"the title is empty|a title has at most"):
            title_note(wrong)


def test_the_newest_branch_counts(tmp_path: Path) -> None:
    first, again = opened(system="s" * 40_000), opened("/there", "topic/é")
    log = write(tmp_path, first, User(content="a"), said("b"), again, User(content="c"), said("d"))
    assert (session_row(log).branch, session_row(log).cwd) == ("topic/é", "/there")


def test_logs_of_before_branches_were_recorded(tmp_path: Path) -> None:
    log = write(tmp_path, opened(), User(content="a"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    del lines[0]["branch"]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert (session_row(log).branch, session_row(log).cwd, session_row(log).title) == (
        "",
        "/here",
        "a",
    )


@pytest.mark.parametrize("length", [10_000, 40_000, 200_000])
def test_words_that_stand_far_from_the_end(tmp_path: Path, length: int) -> None:
    results = [ToolResult(tool_use_id="t", content="r" * length) for _ in range(2)]
    log = write(tmp_path, opened(), User(content="first"), said("near the end"), *results)
    assert (session_row(log).last, session_row(log).entries) == ("near the end", 5)


def test_a_session_without_messages_has_no_title(tmp_path: Path) -> None:
    assert session_row(write(tmp_path, opened())).title == ""
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"")
    os.utime(log, (5, 5))
    assert session_row(log) == SessionRow(tmp_path.name, log, changed=5.0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 3_000_000,
        b"\xff\xfe\n" * 1_000,
        b'{"v": 1, "seq": 1, "at": "", "kind": "session", "id": \n' * 3,
        b'{"v": 1, "seq": 1, "at": "", "kind": "session", "id": "x", "cwd": 7, "system": "s"}\n',
        b'{"v": 1, "seq": 1, "at": "", "kind": "user", "content": 7}\n',
        b"[" * 100_000 + b"\n",
    ],
)  # fmt: skip
def test_garbage_is_listed_without_words(tmp_path: Path, garbage: bytes) -> None:
    good = write(tmp_path / "good", opened(), User(content="good"))
    bad = tmp_path / "bad" / "log.jsonl"
    bad.parent.mkdir()
    bad.write_bytes(garbage)
    missing = tmp_path / "missing" / "log.jsonl"
    assert [each.title for each in session_rows([bad, missing, good])] == ["", "good"]
    assert newest_entries(missing) == []


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    log = write(tmp_path, opened(), User(content="a"), said("b"))
    with log.open("ab") as file:
        file.write(b'{"v": 1, "seq": 4, "at": "", "kind": "user", "content": "half')
    assert (session_row(log).last, session_row(log).entries) == ("b", 3)


@pytest.mark.slow
def test_a_session_that_another_process_has_open_is_in_use(tmp_path: Path) -> None:
    log = write(tmp_path, opened(), User(content="a"))
    assert not session_row(log).in_use
    code = (
        "import sys; from pathlib import Path; from ctxagent.agent.session.log import Log\n"
        "log = Log.open(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(log)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        assert session_row(log).in_use
        other.communicate()
    assert not session_row(log).in_use
    ours = Log.open(log)
    assert not session_row(log).in_use  # by this one
    ours.close()


def test_rows_are_kept_as_long_as_the_logs_are_the_same(tmp_path: Path) -> None:
    project = Project(tmp_path / "state", tmp_path)
    for n in range(MIN_CARDS_TO_SAVE + 1):
        write(project.folder / "sessions" / f"s{n}", opened(), User(content=f"words {n}"))
    first = [*session_rows(project.logs())]
    file = project.folder / CATALOGUE_NAME
    assert file.stat().st_mode & 0o777 == 0o600
    assert "words 7" in file.read_text()
    same, grown, gone = (project.folder / "sessions" / f"s{n}" / "log.jsonl" for n in range(3))
    stat = same.stat()
    same.write_text(same.read_text().replace("words 0", "WORDS 0"))
    os.utime(same, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    log = Log.open(grown)
    log.append(said("and more"))
    log.close()
    shutil.rmtree(gone.parent)
    again = {each.id: each for each in session_rows(project.logs())}
    assert len(again) == MIN_CARDS_TO_SAVE
    assert again["s0"].title == "words 0"  # as it was kept: nothing tells of the change
    assert (again["s1"].title, again["s1"].last) == ("words 1", "and more")
    assert again["s9"] == next(each for each in first if each.id == "s9")
    file.unlink()
    assert {each.id: each.title for each in session_rows(project.logs())}["s0"] == "WORDS 0"
    assert '"s2"' not in file.read_text()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "[" * 9_999, '{"v": 2, "cards": {"s1": 1}}', '{"v": 1, "cards": [1]}',
     '{"v": 1, "cards": {"s0": 7, "s1": [SIZE, TIME, 1, "", 2, "", ""]}}'],
)  # fmt: skip
def test_a_damaged_catalogue_is_rebuilt(tmp_path: Path, text: str) -> None:
    project = Project(tmp_path / "state", tmp_path)
    logs = [
        write(project.folder / "sessions" / f"s{n}", User(content="a"))
        for n in range(MIN_CARDS_TO_SAVE)
    ]
    stat = logs[1].stat()
    text = text.replace("SIZE", str(stat.st_size)).replace("TIME", str(stat.st_mtime_ns))
    (project.folder / CATALOGUE_NAME).write_text(text)
    assert {each.title for each in session_rows(logs)} == {"a"}
    assert (
        len(json.loads((project.folder / CATALOGUE_NAME).read_text())["cards"]) == MIN_CARDS_TO_SAVE
    )


def test_logs_are_found_while_some_go(tmp_path: Path) -> None:
    project = Project(tmp_path / "state", tmp_path)
    logs = [write(project.new_log().parent, User(content=str(n))) for n in range(3)]
    for n, log in enumerate(logs):
        os.utime(log, (n, n))
    logs[1].unlink()
    (project.folder / "sessions" / "a file").touch()
    (tmp_path / "state" / "projects" / "another file").touch()
    assert project.logs() == all_logs(tmp_path / "state") == [logs[2], logs[0]]


@pytest.mark.slow
def test_the_branch_is_recorded_and_listed_but_never_sent(place: Place) -> None:
    subprocess.run(["git", "init", "-q", "-b", "topic/heron"], cwd=place.project, check=True)
    with Server([Say("One."), Say("Two.")]) as server:
        env = place.server(server.url)
        place.run("-p", "first", env=env)
        plain = ["git", "symbolic-ref", "HEAD", "refs/heads/topic/okapi"]
        subprocess.run(plain, cwd=place.project, check=True)
        place.run("--continue", "-p", "second", env=env)
    branches = [e["branch"] for e in place.entries() if e["kind"] == "session"]
    assert branches == ["topic/heron", "topic/okapi"]
    listed = place.run("sessions", "list").stdout
    assert "topic/okapi" in listed
    assert "first" in listed
    for request in server.requests:
        assert '"branch"' not in json.dumps(request)
