"""Sessions on disk: their paths, finding and copying them, and the texts in their files."""

import os
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import NoSuchSession, SessionError, UsageError
from ctxagent.agent.session import store
from ctxagent.agent.session.archive import SUMMARY_NAME, offload, offload_image
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Entry,
    Note,
    Pin,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Unpin,
    User,
)
from ctxagent.agent.session.log import Log, read_log
from ctxagent.agent.session.store import Project
from ctxagent.agent.session.titles import saved_title, title_note


def write(path: Path, *entries: Entry) -> Path:
    log = Log(path)
    for entry in entries:
        log.append(entry)
    log.close()
    return path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    cwd = tmp_path / "my project"
    cwd.mkdir()
    return Project(tmp_path / "state", cwd)


def session(project: Project, id: str, *entries: Entry) -> Path:
    head = Session(id=id, cwd=str(project.cwd), version="0", model="m")
    return write(project.folder / "sessions" / id / "log.jsonl", head, *entries)


def run(id: str, status: str = "done", told: int = 0) -> SubagentRun:
    return SubagentRun(
        id=id,
        type="t",
        prompt="find",
        log=f"agents/{id}/log.jsonl",
        status=status,
        answer="found",
        told=told,
    )


def test_the_folder_of_a_project(tmp_path: Path) -> None:
    def name(folder: str) -> str:
        return Project(tmp_path / "state", tmp_path / folder).folder.name

    assert re.fullmatch(r"my-project-[0-9a-f]{10}", name("my project"))
    assert re.fullmatch(r"a{40}-[0-9a-f]{10}", name("a" * 50))
    assert re.fullmatch(r"hidden-[0-9a-f]{10}", name(".hidden."))
    assert name("x") != name("y/x")
    assert Project(tmp_path, Path("/")).folder.name.startswith("root-")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert name("link") == name("real")
    assert Project(tmp_path, tmp_path).folder.parent == tmp_path / "projects"


def test_ids_sort_by_time(project: Project) -> None:
    ids = [store.new_session_id() for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", id) for id in ids)
    log = project.new_log()
    assert (log.name, log.parents[1]) == ("log.jsonl", project.folder / "sessions")
    assert not log.exists()


@pytest.mark.parametrize("id", ["a", "run-1.b_c", "x" * 64])
def test_ids_that_may_be_given(project: Project, id: str) -> None:
    assert project.log_for_task(id) == project.folder / "sessions" / id / "log.jsonl"


@pytest.mark.parametrize("id", ["", "-a", ".a", "a/b", "../a", "x" * 65, "a b", "é"])
def test_ids_that_may_not(project: Project, id: str) -> None:
    with pytest.raises(UsageError, match="is not a valid session ID"):
        project.log_for_task(id)


def test_the_newest_change_comes_first(project: Project) -> None:
    with pytest.raises(NoSuchSession, match="no session to continue"):
        project.newest_log()
    old, new = session(project, "b"), session(project, "a")
    os.utime(old, (1, 1))
    assert project.logs() == [new, old]
    assert project.newest_log() == new
    os.utime(new, (0, 0))
    assert project.newest_log() == old
    other = Project(project.state, project.cwd.parent)
    assert other.logs() == []
    assert store.all_logs(project.state) == [old, new]


def test_a_session_is_found_by_the_beginning_of_its_id(project: Project) -> None:
    one, two = session(project, "abc1"), session(project, "abd2")
    assert project.find_log("abc1") == project.find_log("abc") == one
    assert Project(project.state, project.cwd.parent).find_log("abd") == two
    with pytest.raises(NoSuchSession, match=r"several sessions begin with 'ab': ab\w+, ab\w+"):
        project.find_log("ab")
    for id in ("x", ""):
        with pytest.raises(NoSuchSession, match="there is no session"):
            project.find_log(id)
    exact = session(project, "20260101-000000-abcdef")
    assert project.find_log("20260101-000000-abcdef") == exact


def test_a_subagent_is_found_by_its_id_or_its_path(project: Project) -> None:
    log = session(project, "abc")
    inner = write(log.parent / "agents" / "helper1" / "log.jsonl", User(content="x"))
    for name in ("helper", "helper1", "abc/agents/helper1", "abc/agents/h"):
        assert project.find_log(name) == inner
    assert store.locate_log(inner) == (project.folder, "abc/agents/helper1")
    assert store.locate_log(log) == (project.folder, "abc")
    copy = write(
        session(project, "xyz").parent / "agents" / "helper1" / "log.jsonl", User(content="x")
    )
    os.utime(inner, (1, 1))
    assert project.find_log("helper1") == copy


def test_the_folders_of_some_sessions(project: Project) -> None:
    one, _ = session(project, "a"), session(project, "b")
    assert project.session_folders(["a", "nowhere"]) == [one.parent]
    assert project.session_folders([]) == []


def test_a_copy_has_all_that_the_session_keeps(project: Project) -> None:
    log = session(
        project,
        "a",
        User(content="x"),
        Checkpoint(number=1, path="checkpoints/1.json"),
        title_note("My title"),
    )
    folder = log.parent
    offload(folder / "offloaded" / "t.md", "text")
    for name in (
        "checkpoints/1.json",
        "checkpoints/2.json",
        SUMMARY_NAME,
        "conversation.md",
        "files.md",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    write(folder / "agents" / "h" / "log.jsonl", User(content="inner"))
    with (log).open("ab") as file:
        file.write(b'{"torn')
    copy = project.fork(log).parent
    assert (copy / "log.jsonl").read_bytes() == log.read_bytes().removesuffix(b'{"torn')
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert names == {
        "log.jsonl",
        "offloaded/t.md",
        "checkpoints/1.json",
        SUMMARY_NAME,
        "conversation.md",
        "title",
    }
    assert saved_title(copy) == "My title"
    assert (folder / "files.md").exists()


def test_a_copy_ends_with_an_entry(project: Project) -> None:
    log = session(
        project, "a", User(content="one"), run("h", told=1), User(content="two"), run("h", told=2)
    )
    inner = log.parent / "agents" / "h" / "log.jsonl"
    write(inner, User(content="early"), User(content="late"))
    (log.parent / SUMMARY_NAME).write_text("x")
    copy = project.fork(log, upto=3)
    assert [entry.seq for entry in read_log(copy).entries] == [1, 2, 3]
    assert not (copy.parent / SUMMARY_NAME).exists()
    assert "one" in (copy.parent / "conversation.md").read_text()
    assert "two" not in (copy.parent / "conversation.md").read_text()
    assert (copy.parent / "agents" / "h" / "log.jsonl").exists()
    whole = project.fork(log)
    assert (whole.parent / "agents" / "h" / "log.jsonl").read_bytes() == inner.read_bytes()


def test_links_out_of_a_session_are_not_copied(project: Project, tmp_path: Path) -> None:
    log = session(project, "a", Checkpoint(number=1, path="checkpoints/1.json"), run("h"))
    (tmp_path / "secret").mkdir()
    for name in ("1.json", "log.jsonl"):
        (tmp_path / "secret" / name).write_text("secret")
    (log.parent / "agents").mkdir()
    for name in ("offloaded", "checkpoints", "agents/h"):
        (log.parent / name).symlink_to(tmp_path / "secret")
    (log.parent / SUMMARY_NAME).symlink_to(tmp_path / "secret" / "1.json")
    copy = project.fork(log).parent
    assert [path.name for path in copy.rglob("*")] == ["log.jsonl"]


def test_a_copy_that_fails_leaves_nothing(project: Project) -> None:
    with pytest.raises(SessionError, match="cannot read the log"):
        project.fork(project.folder / "sessions" / "nowhere" / "log.jsonl")
    assert project.logs() == []
    assert not any((project.folder / "sessions").iterdir())


def text(entry: Entry, folder: Path) -> str | None:
    return store.entry_text(entry, folder)


def test_the_text_of_each_kind_of_entry(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "1.json").write_text("facts")
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "ls\n-l", "n": [1, "é"]}}
    reply = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "ok"},
        call,
        {"type": "tool_use", "name": "X", "input": 3},
    ]
    said = 'hm\n\nok\n\n[Bash]\ncommand: ls\n-l\nn: [1, "é"]\n\n[X]\ninput: 3'
    summary = Summary(document={}, text="said", covers=[1, 2], keep_from=3)
    for entry, expected in (
        (User(content="a"), "a"),
        (Assistant(content=reply, usage={}, stop_reason=None, model="m"), said),
        (Checkpoint(number=1, path="checkpoints/1.json"), "facts"),
        (Checkpoint(number=1, path=""), None),
        (run("h"), "find\n\nfound"), (summary, "said"), (Pin(text="p"), "p"),
        (Note(topic="t", text="n"), "n"), (Unpin(ref=1), None),
    ):  # fmt: skip
        assert text(entry, tmp_path) == expected


def test_the_whole_of_an_offloaded_text(tmp_path: Path) -> None:
    offload(tmp_path / "offloaded" / "a", "all\ud800 of it")
    result = ToolResult(tool_use_id="t", content="preview", offloaded="offloaded/a")
    assert text(result, tmp_path) == "all\ud800 of it"
    assert store.entry_kept_text(result, tmp_path).whole() == "all\ud800 of it"  # type: ignore[union-attr]
    gone = ToolResult(tool_use_id="t", content="preview", offloaded="offloaded/b")
    assert text(gone, tmp_path) == "preview"
    assert store.entry_kept_text(gone, tmp_path).whole() == "preview"  # type: ignore[union-attr]
    assert store.entry_kept_text(Unpin(ref=1), tmp_path) is None
    (tmp_path / "bad").write_bytes(b"a\xffb")
    assert store.read_kept_text(tmp_path, "bad") == "a\ufffdb"
    assert store.read_kept_text(tmp_path, "../x") is None
    assert store.kept_text(tmp_path, "a\0b") is None


def test_the_text_of_an_entry_by_its_number(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", User(content="one"), User(content="two"))
    assert store.full_text(log, 2) == "two"
    assert store.full_text(log, 3) is None
    assert store.full_text(tmp_path / "nowhere", 1) is None


def test_the_text_of_a_content() -> None:
    search = {"type": "server_tool_use", "name": "web_search", "input": {"query": "q"}}
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "image"},
        search,
        {"type": "compaction", "content": "c"},
    ]
    assert store.content_text("plain") == "plain"
    assert store.content_text(blocks) == "a\n[image]\n[WebSearch]\nquery: q\nc"
    assert store.content_text([{"type": "text"}]) == ""


def test_the_images_of_an_entry(tmp_path: Path) -> None:
    name = offload_image(tmp_path, b"kept", "png")
    block = {"type": "image", "source": {"type": "base64", "data": b64encode(b"sent").decode()}}

    def images(content: Any = "", **details: Any) -> list[bytes]:
        return store.entry_images(
            ToolResult(tool_use_id="t", content=content, details=details), tmp_path
        )

    assert images(image={"path": name}) == [b"kept"]
    assert images([{"type": "text", "text": "x"}, block], image={"path": name}) == [b"kept"]
    assert (
        images([block])
        == images([block], image={"path": "../x"})
        == images([block], image="x")
        == [b"sent"]
    )
    assert images([block], image={"path": "offloaded/" + "0" * 32 + ".png"}) == [b"sent"]
    assert images([{"type": "text", "text": "x"}, block, block]) == [b"sent", b"sent"]
    assert images() == []
    assert images([{"type": "image", "source": {"type": "url", "data": "eA=="}}]) == []
    assert images([{"type": "image", "source": {"type": "base64", "data": "?"}}]) == []
    assert images([{"type": "document", "source": block["source"]}]) == []
    assert store.entry_images(Note(topic="a", text="b"), tmp_path) == []
    assert store.entry_images(User(content=[block]), tmp_path) == [b"sent"]
