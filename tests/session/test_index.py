"""The index of a project's logs: its search results, and damage that it survives."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.session.archive import offload
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Note,
    Pin,
    SubagentRun,
    ToolResult,
    User,
)
from ctxagent.agent.session.log import Log, find_entries, find_entry, lines_backwards, read_log
from ctxagent.agent.session.search import INDEX_NAME, Hit, SearchIndex, index
from ctxagent.agent.session.search.query import OVERLAP_CHARS, PIECE_CHARS, find_hits
from ctxagent.agent.session.store import full_text

FILLER = "the build went on and nothing was said about it\n"


class Archive:
    """A project with sessions made of real logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = SearchIndex(folder)
        self.count = 0

    def log(self, session: str = "a") -> Log:
        path = self.folder / "sessions" / session / "log.jsonl"
        return Log.open(path) if path.exists() else Log(path)

    def result(self, log: Log, text: str, tool: str = "Bash", **fields: object) -> int:
        """Add a call and its result, and return the result's seq."""
        self.count += 1
        use = {"type": "tool_use", "id": f"c{self.count}", "name": tool, "input": {"n": self.count}}
        log.append(Assistant(content=[use], usage={}, stop_reason="tool_use", model="m"))
        entry = ToolResult(tool_use_id=use["id"], content=text, **fields)  # type: ignore[arg-type]
        return log.append(entry).seq

    def hits(self, query: str, session: str | None = None, limit: int = 8) -> list[Hit]:
        return self.index.search(query, session=session, limit=limit, patience=None).hits

    def refs(self, query: str, session: str | None = None) -> list[str]:
        return [f"{hit.session}#{hit.seq}" for hit in self.hits(query, session)]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    (tmp_path / "project").mkdir()
    return Archive(tmp_path / "project")


TEXTS = {
    "src/auth/token.py": "changed src/auth/token.py and its test",
    "E_CONN_4711": "the pool said E_CONN_4711 and closed",
    "KeyError: 'x'": "Traceback:\n  File y\nKeyError: 'x'\nmake: *** [test]",
    "max_retries": "config.max_retries = 7",
    "--no-verify": "git commit --no-verify",
    "C++": "written in C++ then",
    "café": "the CAFE is closed",
    "接続": "サーバーへの接続に失敗しました",
    "a.b(q)": "call a.b(q) here",
    "10.0.0.17:8443": "listening on 10.0.0.17:8443",
    "🙂 thumbs": "it gave a 🙂 thumbs up",
    "prefi": "only by its prefixation",
}


@pytest.mark.parametrize("query", TEXTS)
def test_words_as_code_and_terminals_have_them(archive: Archive, query: str) -> None:
    log = archive.log()
    refs = {each: archive.result(log, FILLER * 3 + text) for each, text in TEXTS.items()}
    first = archive.hits(query)[0]
    assert (first.seq, first.kind, first.tool) == (refs[query], "tool_result", "Bash")
    assert TEXTS[query].split("\n")[-1][:20] in first.excerpt


def test_all_kinds_of_entry(archive: Archive) -> None:
    log = archive.log()
    folder = log.path.parent
    log.append(User(content="word01 was asked for"))
    call = {"type": "tool_use", "id": "c", "name": "Edit", "input": {"path": "word02", "n": [1]}}
    said = {"type": "text", "text": "word03 is what I do"}
    log.append(Assistant(content=[said, call], usage={}, stop_reason=None, model="m"))
    log.append(Note(topic="decision", text="word04 it is"))
    log.append(Pin(text="word05 for good"))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/1.json").write_text('{"intent": "word06"}')
    log.append(Checkpoint(number=1, path="checkpoints/1.json"))
    log.append(SubagentRun(id="x", type="explore", prompt="word07?", log="l", answer="word08"))
    offload(folder / "offloaded/big.md", FILLER * 2_000 + "word09 at the end")
    archive.result(log, "a preview", offloaded="offloaded/big.md")
    sub = archive.log("a/agents/b")
    archive.result(sub, "word10 of the subagent", "Grep")
    found = {number: archive.refs(f"word{number:02}") for number in range(1, 11)}
    assert found == {
        1: ["a#1"], 2: ["a#2"], 3: ["a#2"], 4: ["a#3"], 5: ["a#4"], 6: ["a#5"], 7: ["a#6"],
        8: ["a#6"], 9: ["a#8"], 10: ["a/agents/b#2"],
    }  # fmt: skip
    (end,) = archive.hits("word09")
    whole = full_text(log.path, end.seq)
    assert whole is not None
    assert whole[end.offset :].startswith(end.excerpt)
    assert "word09 at the end" in end.excerpt
    assert archive.hits("word02")[0].tool == "Edit"


def test_replies_of_the_engine_and_what_recall_brought_are_left_out(archive: Archive) -> None:
    log = archive.log()
    text = {"type": "text", "text": "giraffe"}
    log.append(Assistant(content=[text], usage={}, stop_reason=None, model="m", purpose="summary"))
    call = {"type": "tool_use", "id": "r", "name": "Recall", "input": {"query": "giraffe"}}
    log.append(Assistant(content=[call], usage={}, stop_reason=None, model="m"))
    log.append(ToolResult(tool_use_id="r", content="giraffe", details={"recalled": ["#9"]}))
    assert archive.hits("giraffe") == []


def test_the_whole_line_comes_before_its_words_and_errors_before_other_text(
    archive: Archive,
) -> None:
    log = archive.log()
    archive.result(log, "refused connection by host\n" * 9)
    line = archive.result(log, "connection refused")
    assert archive.hits("connection refused")[0].seq == line
    archive.result(log, f"{FILLER}timeout of pump {archive.count}")
    bad = archive.result(log, f"{FILLER}timeout of pump {archive.count}", is_error=True)
    archive.result(log, f"{FILLER}timeout of pump {archive.count}")
    assert [hit.is_error for hit in archive.hits("timeout pump")] == [True, False, False]
    assert archive.hits("timeout pump")[0].seq == bad


def test_the_newest_of_equal_matches_comes_first(archive: Archive) -> None:
    for session in ("20260101-a", "20260301-a", "20260201-a"):
        with_log = archive.log(session)
        for _ in range(2):
            archive.result(with_log, f"the gauge reads {archive.count:02}")
    assert archive.refs("gauge") == [
        "20260301-a#4", "20260301-a#2", "20260201-a#4", "20260201-a#2", "20260101-a#4",
        "20260101-a#2",
    ]  # fmt: skip
    assert archive.refs("gauge", "20260201-a") == ["20260201-a#4", "20260201-a#2"]
    assert archive.refs("gauge", "20260201") == []


def test_a_word_that_is_nowhere_does_not_hide_the_others(archive: Archive) -> None:
    log = archive.log()
    log.append(User(content="what was the port of the staging gateway again"))
    fact = archive.result(log, "gateway for staging: 48231")
    assert fact in [hit.seq for hit in archive.hits("what was the port of the staging gateway")]
    assert archive.hits("gateway zzzz 48231")[0].seq == fact


@pytest.mark.parametrize(
    "query", ["", "   ", '"', "'", "*", "- + ( ) : ^", "…", "🙂", "\x00", "\ud800", "NEAR("]
)
def test_queries_without_words(archive: Archive, query: str) -> None:
    archive.result(archive.log(), "something else")
    assert archive.hits(query) == []


@pytest.mark.parametrize(
    "query",
    [
        'NEAR("kettle" 2)', "kettle*", '"kettle', "-kettle", "NOT kettle", "kettle AND",
        "OR kettle", "said : kettle", "{said other} : kettle", "^kettle", "kettle\x00", "(kettle",
        "kettle\ud800", "kettle " * 400, "k" * 5_000 + " kettle",
    ],
)  # fmt: skip
def test_a_query_is_never_syntax(archive: Archive, query: str) -> None:
    seq = archive.result(archive.log(), "the kettle boils")
    assert [hit.seq for hit in archive.hits(query)] == [seq]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(query=st.text(max_size=40), text=st.text(max_size=200))
def test_any_query_over_any_text(
    tmp_path_factory: pytest.TempPathFactory, query: str, text: str
) -> None:
    archive = Archive(tmp_path_factory.mktemp("any"))
    log = archive.log()
    seq = archive.result(log, text)
    for hit in archive.hits(query) + archive.hits(text):
        whole = full_text(log.path, hit.seq)
        assert whole is not None
        assert whole[hit.offset :].startswith(hit.excerpt)
    for word in text.split():
        if word.isascii() and word.isalnum():
            assert seq in [hit.seq for hit in archive.hits(word)]


def test_long_texts_and_lines_are_found_from_end_to_end(archive: Archive) -> None:
    log = archive.log()
    step = PIECE_CHARS - OVERLAP_CHARS
    spots = [0, 1, PIECE_CHARS - 8, PIECE_CHARS - 4, step - 4, step, 5 * step + 7, 60_000]
    words = {spot: f"needle{n:02}" for n, spot in enumerate(spots)}
    text = ["x"] * 61_000
    for spot, word in words.items():
        text[spot : spot + len(word) + 2] = f" {word} "
    line = "".join(text)
    seq = archive.result(log, line)
    for word in words.values():
        if f" {word} " in line:
            hits = archive.hits(word)
            assert [hit.seq for hit in hits] == [seq]
            assert word in hits[0].excerpt
            assert len(hits[0].excerpt) <= 300
            assert line[hits[0].offset :].startswith(hits[0].excerpt)
    assert sum(f" {word} " in line for word in words.values()) >= 5


def test_an_excerpt_is_whole_lines_where_they_fit(archive: Archive) -> None:
    text = "".join(f"line {n} of the report\n" for n in range(200))
    archive.result(archive.log(), f"{text}the valve is open at 7 bar\n{text}")
    (hit,) = archive.hits("valve 7 bar")
    assert "line 199 of the report\nthe valve is open at 7 bar\nline 0 of the report" in hit.excerpt
    assert all(line.endswith("report") or "valve" in line for line in hit.excerpt.split("\n"))


# Keeping up


def test_it_catches_up_with_what_was_appended(archive: Archive) -> None:
    log = archive.log()
    archive.result(log, "first pelican")
    assert len(archive.hits("pelican")) == 1
    assert archive.index.catch_up() == 0
    archive.result(log, "second pelican")
    assert [hit.seq for hit in archive.hits("pelican")] == [4, 2]
    archive.result(archive.log("b"), "third pelican")
    assert len(archive.hits("pelican")) == 3


def test_a_torn_line_is_not_there_until_it_is_whole(archive: Archive) -> None:
    log = archive.log()
    archive.result(log, "a pelican")
    whole = log.path.read_bytes()
    for cut in (1, 40, len(whole) - 1):
        log.path.write_bytes(whole + whole.replace(b"pelican", b"penguin")[:cut])
        assert [hit.seq for hit in archive.hits("pelican")] == [2]
        assert len(archive.hits("penguin")) == 0
    again = whole.replace(b"pelican", b"penguin").replace(b'"seq": 2', b'"seq": 4')
    log.path.write_bytes(whole + again)
    assert [hit.seq for hit in archive.hits("penguin")] == [4]


def test_all_logs_are_listed_twice_however_many_there_are(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        archive.result(archive.log(f"s{n}"), "a heron")
    listed, paths = list[Path](), index._paths
    monkeypatch.setattr(index, "_paths", lambda folder: listed.append(folder) or paths(folder))
    monkeypatch.setattr(index, "_BATCH_S", 0.0)  # a transaction for each log
    found = archive.index.search("heron", patience=None)
    assert found.hits
    assert found.indexed == found.size
    tops = [folder for folder in listed if folder == archive.index.sessions]
    assert len(tops) == 3, "to begin, to see that nothing came meanwhile, and to search"


@pytest.mark.slow
def test_what_is_newest_is_found_before_all_is_indexed(archive: Archive) -> None:
    log = archive.log()
    first = archive.result(log, "the oldest heron")
    for _ in range(500):
        archive.result(log, FILLER)
    last = archive.result(log, "the newest heron")
    found = archive.index.search("heron", patience=0)
    assert [hit.seq for hit in found.hits] == [last]
    assert not found.is_whole
    assert 0 < found.indexed < found.size == log.path.stat().st_size
    more = archive.result(log, "a heron since")
    archive.index.search("heron", patience=0)
    found = archive.index.search("heron", patience=None)
    assert found.is_whole
    assert found.indexed == found.size
    assert [hit.seq for hit in found.hits] == [more, last, first]


def test_in_the_background(archive: Archive) -> None:
    archive.result(archive.log(), "a heron")
    archive.index.catch_up_in_background().join()
    assert archive.index.catch_up() == 0
    assert len(archive.hits("heron")) == 1


@pytest.mark.parametrize("how", ["deleted", "shrunk", "replaced"])
def test_deleted_logs_leave_the_index(archive: Archive, how: str) -> None:
    archive.result(archive.log("keep"), "a heron stays")
    log = archive.log("go")
    archive.result(log, "the heron with the secretword")
    log.close()
    assert len(archive.hits("heron")) == 2
    if how == "deleted":
        shutil.rmtree(log.path.parent)
    elif how == "shrunk":
        os.truncate(log.path, log.path.read_bytes().index(b"\n") + 1)
    else:
        data = log.path.read_bytes().replace(b"secretword", b"publicword")
        log.path.with_name("new").write_bytes(data)
        log.path.with_name("new").rename(log.path)
    assert archive.hits("secretword") == []
    assert len(archive.hits("heron")) == (2 if how == "replaced" else 1)
    assert not any(b"secretword" in p.read_bytes() for p in archive.folder.glob("index*"))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["on disk", "in memory"])
def test_sessions_deleted_during_a_search(archive: Archive, where: str) -> None:
    for name in ("a", "b", "c"):
        log = archive.log(name)
        archive.result(log, f"a heron in {name}")
        log.close()
    if where == "in memory":
        (archive.folder / INDEX_NAME).mkdir()  # no file can be put there

    def come_and_go() -> None:
        for n in range(60):
            log = archive.log(f"x{n}")
            archive.result(log, "a heron that goes")
            log.close()
            shutil.rmtree(log.path.parent)

    other = threading.Thread(target=come_and_go)
    other.start()
    while other.is_alive():
        assert {"a", "b", "c"} <= {hit.session for hit in archive.hits("heron")}
    other.join()
    assert {hit.session for hit in archive.hits("heron")} == {"a", "b", "c"}


def test_in_memory_a_deleted_log_is_forgotten(archive: Archive) -> None:
    for name in ("a", "b"):
        archive.result(archive.log(name), f"a heron in {name}")

    def work(db: sqlite3.Connection) -> list[str]:
        archive.index._catch_up(db, None, None)
        shutil.rmtree(archive.folder / "sessions" / "b")
        archive.result(archive.log("c"), "the owl")
        archive.index._catch_up(db, None, None)
        logs = {log.id: log.name for log in archive.index._logs(db)}
        assert len(logs.keys() | {1, 2}) == 3  # no id is given twice
        return [hit.session for hit in find_hits(db, archive.index.sessions, ["heron"], logs, 8)]

    assert archive.index._in_memory(work) == ["a"]


def test_a_copied_session_is_not_found_twice(archive: Archive) -> None:
    log = archive.log()
    archive.result(log, "one heron")
    log.close()
    shutil.copytree(log.path.parent, log.path.parent.with_name("b"))
    assert len(archive.hits("heron")) == 1
    assert archive.refs("heron", "a") == ["a#2"]


# The file


def test_it_is_private_and_can_go_at_any_time(archive: Archive) -> None:
    log = archive.log()
    archive.result(log, "a heron")
    assert len(archive.hits("heron")) == 1
    assert {p.stat().st_mode & 0o777 for p in archive.folder.glob("index*")} == {0o600}
    (archive.folder / INDEX_NAME).unlink()
    assert len(archive.hits("heron")) == 1
    with sqlite3.connect(archive.folder / INDEX_NAME) as held:  # another process that has it open
        assert held.execute("SELECT count(*) FROM logs").fetchone() == (1,)
        assert (archive.folder / f"{INDEX_NAME}-wal").exists()
        (archive.folder / INDEX_NAME).unlink()
        archive.result(log, "one more heron")
        assert len(archive.hits("heron")) == 2
    held.close()
    assert len(archive.hits("heron")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("how", ["garbage", "empty", "half", "zeros", "other schema", "no table"])
def test_a_damaged_one_is_replaced(archive: Archive, how: str) -> None:
    log = archive.log()
    for _ in range(50):
        archive.result(log, f"{FILLER * 20} heron")
    seq = archive.result(log, "the last heron")
    assert archive.hits("last heron")[0].seq == seq
    path = archive.folder / INDEX_NAME
    data = path.read_bytes()
    if how in ("garbage", "empty"):
        path.write_bytes(b"not a database " * 1_000 if how == "garbage" else b"")
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif how == "zeros":
        path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    else:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 77" if how == "other schema" else "DROP TABLE pieces")
        db.close()
    assert archive.hits("last heron")[0].seq == seq
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM pieces").fetchone()[0] > 50
    db.close()


def test_it_searches_without_an_index_file(archive: Archive) -> None:
    log = archive.log()
    archive.result(log, "a heron")
    (archive.folder / INDEX_NAME).mkdir()
    assert len(archive.hits("heron")) == 1
    assert archive.index.catch_up() == 0
    found = archive.index.search("heron")
    assert (len(found.hits), found.is_whole) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(archive: Archive) -> None:
    archive.result(archive.log(), "a heron")
    archive.folder.chmod(0o500)
    assert len(archive.hits("heron")) == 1
    archive.folder.chmod(0o700)


def test_no_project_and_no_sessions(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        found = SearchIndex(folder).search("heron")
        assert (found.hits, found.size, found.is_whole) == ([], 0, True)
    assert not (tmp_path / "none").exists()


# Several processes

SEARCH = (
    "import sys; from pathlib import Path; from ctxagent.agent.session.search import SearchIndex\n"
    "found = SearchIndex(Path(sys.argv[1])).search('heron', patience=None, limit=500)\n"
    "print(len(found.hits), found.is_whole)"
)


@pytest.mark.slow
def test_processes_that_begin_at_once(archive: Archive) -> None:
    for session in range(20):
        log = archive.log(f"s{session}")
        for _ in range(5):
            archive.result(log, f"{FILLER * 50} heron {session}")
        log.close()
    command = [sys.executable, "-c", SEARCH, str(archive.folder)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=400)[0] for process in running]
    assert said.count("100 True\n") >= 1
    assert all(s.split()[-1] in ("True", "False") and len(s.split()) == 2 for s in said), said
    assert len(archive.hits("heron", limit=500)) == 100
    with sqlite3.connect(archive.folder / INDEX_NAME) as db:
        rows = db.execute("SELECT count(*) FROM pieces").fetchone()[0]
        db.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
    db.close()
    entries = sum(len(read_log(p).entries) for p in archive.folder.glob("sessions/*/log.jsonl"))
    assert rows == entries


@pytest.mark.slow
def test_while_another_process_writes_it_searches_what_there_is(archive: Archive) -> None:
    log = archive.log()
    archive.result(log, "a heron")
    assert len(archive.hits("heron")) == 1
    archive.result(log, "one more heron")
    with sqlite3.connect(archive.folder / INDEX_NAME, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        found = archive.index.search("heron")
        assert len(found.hits) == 1
        assert not found.is_whole
        other.execute("ROLLBACK")
    other.close()
    assert len(archive.hits("heron")) == 2


# Logs


def test_lines_backwards(tmp_path: Path) -> None:
    lines = [
        b"%d %s\n" % (n, b"x" * size) for n, size in enumerate([0, 5, 3_000_000, 1, 1_200_000])
    ]
    (tmp_path / "f").write_bytes(b"".join(lines))
    with (tmp_path / "f").open("rb") as file:
        back = list(lines_backwards(file, sum(map(len, lines))))
        assert [line for _, line in back] == lines[::-1]
        for offset, line in back:
            file.seek(offset)
            assert file.readline() == line


@pytest.mark.slow
def test_a_ref_is_found_wherever_it_stands(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for n in range(1, 1_501):
        log.append(Note(topic="decision", text=f"note {n} " + "x" * (n % 7) * 100))
    for n in range(1, 1_501, 13):
        entry = find_entry(log.path, n)
        assert isinstance(entry, Note)
        assert entry.text.startswith(f"note {n} ")
    assert find_entry(log.path, 1_501) is None
    assert find_entry(log.path, 0) is None
    asked = [3, 700, 701, 1_500, 1_501]
    assert [*find_entries(log.path, asked)] == asked[:-1]
    assert all(entry.seq == seq for seq, entry in find_entries(log.path, asked).items())
    assert find_entries(log.path, []) == find_entries(tmp_path / "none", [1]) == {}
    lines = log.path.read_bytes().splitlines(keepends=True)
    garbled = [*lines[700:], b"no entry\n" * 5_000, *lines[:700]]
    log.path.write_bytes(b"".join(garbled))
    everywhere = (1, 350, 700, 701, 1_100, 1_500)
    assert {*find_entries(log.path, everywhere)} == {*everywhere}
    for n in everywhere:
        entry = find_entry(log.path, n)
        assert entry is not None
        assert entry.seq == n


def large_result(archive: Archive, log: Log, text: str) -> int:
    """A result whose text is in a file too large for the index."""
    name = f"offloaded/{archive.count}.md"
    offload(log.path.parent / name, text)
    return archive.result(log, "the beginning", offloaded=name)


@pytest.mark.slow
def test_a_text_too_large_for_the_index_is_read_when_somebody_searches(archive: Archive) -> None:
    log = archive.log()
    rows = "".join(f"row {n} of the é dump\n" for n in range(300_000))
    seq = large_result(archive, log, rows)
    archive.result(log, "something short: row 7")
    for query in (
        "row 234567 of the é dump", '"row 234567 of the é dump"', "234567", "dump 234567",
        "where is 234567?",
    ):  # fmt: skip
        hit = archive.hits(query)[0]
        assert (hit.seq, hit.tool) == (seq, "Bash")
        assert "row 234567 of the é dump" in hit.excerpt
        assert rows[hit.offset :].startswith(hit.excerpt)
    assert archive.hits("3456789") == []
    assert archive.hits("34567") != []
    assert "row 34567 of" in archive.hits("34567")[0].excerpt  # not within another number
    assert archive.hits("short row 7")[0].seq == seq + 2
    with closing(sqlite3.connect(archive.folder / INDEX_NAME)) as db:
        ((pieces,),) = db.execute("SELECT count(*) FROM pieces")
    assert pieces < 10
    (log.path.parent / "offloaded" / "0.md").unlink()
    assert archive.hits("234567") == []
    log.close()
