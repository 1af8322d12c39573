"""Recovery: the three levels from a log alone, the commands, and "recover" typed alone."""

import asyncio
import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.apply_summary import SummaryApplier
from ctxagent.agent.compaction.document import SummaryDocument, SummaryFact
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.recovery import (
    LEVEL_TOKENS,
    LOSS_FLAG,
    ledger_of,
    newest_readable_summary,
    recover_session,
    recovery_text,
)
from ctxagent.agent.compaction.summary.writer import SummaryWriter, UnusableSummaries, document_of
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.errors import CtxagentError, SessionError, UsageError
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Note,
    Pin,
    Revert,
    Summary,
    ToolResult,
    User,
    reverted_seqs,
)
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import Log, read_log
from ctxagent.agent.session.since_point import MAX_BYTES_HASHED, MAX_FILES_CHECKED, list_stale_files
from ctxagent.agent.session.store import Project
from ctxagent.agent.ui import commands
from ctxagent.agent.worktree.diff import file_sha256

from ..support.command import Place
from ..support.sessions.conversation import Conversation
from ..support.sessions.history import History
from ..support.terminal.command_line import CommandDesk

INTENT = "Move the session store from files to SQLite without losing a session."
PATHS = [f"src/store/backend_{n}/a long name with spaces {n}.py" for n in range(12)]

MECHANICAL = replace(DEFAULT, summarizer="mechanical", keep_tokens=0, keep_messages=1)


def worked(*, summary: bool = True) -> History:
    """A session with every kind of entry. The summary is before its last third."""
    history = History()
    history.say(INTENT)
    history.call("Read", {"path": "docs/plan.md"}, "…", details={"path": "docs/plan.md"})
    for path in PATHS:
        changed = {"path": path, "added": 3, "removed": 1, "created": True}
        history.call("Write", {"path": path}, "ok", details=changed)
    failing = {"command": "pytest tests/test_store.py", "exit_code": 1}
    output = "E   sqlite3.OperationalError: database is locked"
    history.call("Bash", failing, output, details=failing, is_error=True)
    gone = {"command": "make lint", "exit_code": 2}
    history.call("Bash", gone, "error: unused import", details=gone, is_error=True)
    history.call("Bash", gone, "ok", details={**gone, "exit_code": 0})
    history.say("Never touch the migrations folder.")
    history.add(Note, topic="permission", text="not authorised: Bash rm -rf build")
    if summary:
        document = SummaryDocument(
            intent=INTENT,
            decisions=("WAL mode, because readers must not wait.", "One table a session."),
            phase="porting the readers",
            done=("The writer is ported.",),
            blocked=("Nobody knows who calls purge().",),
            facts=(SummaryFact("Python 3.11 must keep working."),),
            next_steps=("Port the reader.", "Run the whole suite."),
        )
        history.add(
            Summary, document=document.to_json(), text="…", covers=[2, len(history.entries)],
            keep_from=len(history.entries) + 2,
        )  # fmt: skip
    history.add(Pin, text="ticket 4711")
    history.say("Do the reader next, in src/store/reader.py.")
    return history


def recovery_at_level(entries: list[Entry], number: int, changed: Sequence[str] = ()) -> str:
    """The text of a level, from entries alone."""
    return recovery_text(ledger_of(entries), newest_readable_summary(entries), number, changed)


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_level_is_as_long_as_it_may_be(number: int, summary: bool) -> None:
    text = recovery_at_level(worked(summary=summary).entries, number)
    size = LEVEL_TOKENS[number]
    assert estimate(text) <= size
    if number < 3:  # of the third, there is not enough to tell
        assert estimate(text) > 0.5 * size


def test_what_each_level_has() -> None:
    entries = worked().entries
    one, two, three = (recovery_at_level(entries, n) for n in (1, 2, 3))
    for text in (one, two, three):
        assert INTENT in text
        assert "porting the readers" in text
        assert "Do the reader next" in text
    assert "Files changed" not in one
    for said in (
        "WAL mode", "Python 3.11", "database is locked", "rm -rf build", "purge()", PATHS[0],
        "pytest tests/test_store.py", "Port the reader.",
    ):  # fmt: skip
        assert said in two, said
        assert said in three, said
    for said in (*PATHS, "docs/plan.md", "`make lint` (exit 2", "ticket 4711", "The writer is"):
        assert said in three, said
    assert "make lint` (exit 2" not in two  # it has passed since


def test_without_a_summary_it_is_made_from_the_records() -> None:
    text = recovery_at_level(worked(summary=False).entries, 3)
    for said in (INTENT, *PATHS, "database is locked", "rm -rf build", "Never touch", "docs/plan"):
        assert said in text, said


def test_a_summary_that_cannot_be_read_or_was_undone_is_passed_over() -> None:
    history = worked()
    for document in ({"intent": 7}, {"modified": [{"x": 1}]}):
        history.add(Summary, document=document, text="", covers=[1, 2], keep_from=3)
    wrong = SummaryDocument(intent="Something else.", next_steps=("Nothing.",))
    history.add(
        Summary, document=wrong.to_json(), text="", covers=[1, 2], keep_from=len(history.entries)
    )
    history.add(Revert, target=len(history.entries))
    for number in (1, 2, 3):
        text = recovery_at_level(history.entries, number)
        assert INTENT in text
        assert "porting the readers" in text
        assert "Something else" not in text


def test_a_path_is_whole_or_absent() -> None:
    history = History()
    long = "/srv/" + "/".join(f"part {n} of a deep path" for n in range(20)) + "/end.py"
    history.say(f"Change {long} and then, when it works, tell me what else there is to do in it.")
    for path in (long, *(f"lib/{n}/" + "x" * 150 + ".py" for n in range(30))):
        details = {"path": path, "added": 1, "removed": 0, "created": False}
        history.call("Edit", {"path": path}, "ok", details=details)
    known = {long[1:], *(f"lib/{n}/" + "x" * 150 + ".py" for n in range(30))}
    for number in (1, 2, 3):
        text = recovery_at_level(history.entries, number)
        assert text
        assert estimate(text) <= LEVEL_TOKENS[number]
        rest = text
        for path in known:
            rest = rest.replace(path, "")
        assert "part" not in rest
        assert "xxx" not in rest
        assert "lib/" not in rest
    assert text.count("lib/") >= 10


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(st.text(max_size=3_000), max_size=5),
    paths=st.lists(st.text("ab/. -", min_size=1, max_size=80), max_size=40),
    steps=st.lists(st.text(max_size=200), max_size=10),
)
def test_any_session_fits_each_level(
    said: Sequence[str], paths: Sequence[str], steps: Sequence[str]
) -> None:
    history = History()
    for text in said:
        history.say(text)
    for path in paths:
        details = {"path": path, "added": 1, "removed": 0}
        history.call("Edit", {"path": path}, "ok", details=details)
    todos = [{"content": step, "status": "pending"} for step in steps]
    history.call("Todo", {}, "ok", details={"todos": todos})
    for number in (1, 2, 3):
        assert estimate(recovery_at_level(history.entries, number)) <= 1.1 * LEVEL_TOKENS[number]


def test_one_word_that_never_ends() -> None:
    history = History()
    history.say("x" * 50_000)
    for number in (1, 2, 3):
        assert recovery_at_level(history.entries, number).startswith("Intent: xxx")


def test_levels_that_are_not_possible() -> None:
    history = History()
    with pytest.raises(SessionError, match="nothing can be recovered"):
        recover_session(history.entries, 1)
    details = {"path": "a.py", "added": 1, "removed": 0}
    history.call("Edit", {"path": "a.py"}, "ok", details=details)
    told = recover_session(history.entries, 1)
    assert told.level == 3
    assert "a.py" in told.text
    assert "level 1 cannot be made" in told.failure
    history.say("Go on.")
    assert recover_session(history.entries, 1).level == 1


# The command line


def recorded(place: Place, entries: Sequence[Entry], session: str = "20260101-000000-abc") -> Path:
    """A session of the project, written by a real log."""
    folder = Project(place.state, place.project).folder / "sessions" / session
    log = Log(folder / "log.jsonl")
    for entry in entries:
        log.append(entry)
    log.close()
    return log.path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.slow
def test_the_command_tells_how_a_session_stands(place: Place) -> None:
    entries = worked().entries
    recorded(place, entries)
    for number in ("1", "2", "3"):
        done = place.run("recover", number)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == recovery_at_level(entries, int(number)) + "\n"
    row = json.loads(place.run("recover", "2", "--json").stdout)
    assert (row["level"], row["session"], row["failure"]) == (2, "20260101-000000-abc", "")
    assert row["tokens"] == estimate(row["text"]) <= 500


@pytest.mark.slow
def test_the_third_level_names_what_changed_on_disk_since(place: Place) -> None:
    history = worked()
    names = [f"{name}.py" for name in ("same", "other", "gone", "a long name")]
    for name in names:
        path = place.project / name
        path.write_text(f"{name} = 1\n")
        seen = {"path": str(path), "sha256": file_sha256(str(path))}
        history.call("Read", {"path": name}, "ok", details={"path": name, "seen": seen})
    recorded(place, history.entries)
    assert "Changed on disk" not in place.run("recover", "3").stdout
    (place.project / "other.py").write_text("other = 2\n")
    (place.project / "gone.py").unlink()
    (place.project / "a long name.py").write_text("")
    told = place.run("recover", "3").stdout
    changed = told.partition("Changed on disk since:\n")[2]
    for name in names[1:]:
        assert f"- {str(place.project / name)[1:]}\n" in changed
    assert told.count("same.py") == 1
    assert "Changed on disk" not in place.run("recover", "2").stdout
    assert "Changed on disk" not in recovery_at_level(history.entries, 3)


@pytest.mark.slow
def test_reads_from_disk_are_limited(tmp_path: Path) -> None:
    history = History()
    for n in range(MAX_FILES_CHECKED + 3):
        seen = {"path": str(tmp_path / f"{n}.py"), "sha256": "0"}
        history.call("Read", {"path": "x"}, "ok", details={"path": seen["path"], "seen": seen})
    with (tmp_path / f"{MAX_FILES_CHECKED + 2}.py").open("wb") as file:
        file.truncate(MAX_BYTES_HASHED + 1)
    os.mkfifo(tmp_path / f"{MAX_FILES_CHECKED + 1}.py")
    ledger = Ledger()
    for entry in history.entries:
        ledger.add(entry)
    assert list_stale_files(ledger) == [
        str(tmp_path / f"{n}.py")[1:] for n in range(3, MAX_FILES_CHECKED + 2)
    ]
    text = recovery_at_level(history.entries, 3, list_stale_files(ledger))
    assert estimate(text) <= LEVEL_TOKENS[3]
    assert "more)" in text


@pytest.mark.slow
def test_a_broken_line_is_reported_and_skipped(place: Place) -> None:
    path = recorded(place, worked().entries)
    lines = path.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if '"kind": "summary"' in line)
    lines[at] = lines[at][:200] + "\n"
    path.write_text("".join(lines))
    done = place.run("recover", "1")
    assert done.returncode == 0
    assert INTENT in done.stdout
    assert f"log.jsonl:{at + 1}: skipped" in done.stderr


@pytest.mark.slow
def test_the_command_falls_back_to_the_third_level_or_fails(place: Place) -> None:
    assert place.run("recover", "1").returncode == 2  # no session at all
    history = History()
    path = recorded(place, history.entries)
    done = place.run("recover", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing can be recovered" in done.stderr
    details = {"path": "a.py", "added": 1, "removed": 0}
    history.call("Edit", {"path": "a.py"}, "ok", details=details)
    recorded(place, history.entries[1:], "20260102-000000-abc")
    done = place.run("recover", "1", "--session", "20260102")
    assert done.returncode == 0
    assert "level 1 cannot be made" in done.stderr
    assert "a.py" in done.stdout
    assert json.loads(place.run("recover", "2", "--json").stdout)["level"] == 3
    assert place.run("recover", "1", "--session", "nope").returncode == 2
    assert place.run("recover").returncode == 2
    assert path.exists()


@pytest.mark.slow
def test_a_topic_is_found_in_this_session_first(place: Place) -> None:
    recorded(place, [User(content="the okapi is old")], "20260101-000000-aaa")
    recorded(place, [User(content="the okapi is new")], "20260103-000000-ccc")
    recorded(place, [User(content="the okapi is here")], "20260102-000000-bbb")
    done = place.run("recover", "okapi", "is", "--session", "20260102")
    assert done.returncode == 0
    assert "#1 · words to the agent · 20" in done.stdout.split("\n")[0]
    texts = [line.strip() for line in done.stdout.split("\n")[1::2]]
    assert texts[0] == "the okapi is here"
    assert sorted(texts[1:]) == ["the okapi is new", "the okapi is old"]
    assert "20260101-000000-aaa#1" in done.stdout
    found = json.loads(place.run("recover", "okapi", "--json").stdout)
    assert len(found["found"]) == 3
    done = place.run("recover", "quagga")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing found: quagga" in done.stderr


@pytest.mark.slow
def test_sessions_search(place: Place) -> None:
    recorded(place, [User(content="the okapi --of this-- project")])
    other = Project(place.state, place.root / "other").folder / "sessions/x/log.jsonl"
    log = Log(other)
    log.append(User(content="an okapi of another"))
    log.close()
    here = place.run("sessions", "search", "okapi")
    assert here.returncode == 0
    assert here.stdout.startswith("20260101-000000-abc#1 · words to the agent")
    assert "another" not in here.stdout
    everywhere = place.run("sessions", "search", "--all", "okapi", "of")
    assert "20260101-000000-abc#1" in everywhere.stdout
    assert "x#1" in everywhere.stdout
    assert place.run("sessions", "search", "--", "--of", "project").returncode == 0
    nothing = place.run("sessions", "search", "--all", "quagga")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "nothing found: quagga" in nothing.stderr


# In the REPL


@pytest.mark.slow
def test_in_the_repl(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    steps = [Step(tools=[("Bash", {"command": "echo E_CONN_4711"})]), Step(text="It failed.")]
    talk = Conversation(tmp_path / "project", steps)
    desk = CommandDesk(talk)
    assert commands.COMMANDS["recover"].anytime
    with pytest.raises(SessionError):
        desk.run("/recover 1")
    talk.say("Why is the pool closed?")
    assert "Intent: Why is the pool closed?" in desk.run("/recover 1")
    for words in ("/recover E_CONN_4711", "recover E_CONN_4711", "  recover E_CONN_4711  "):
        printed = desk.run(words)
        assert "result of Bash" in printed
        assert "E_CONN_4711" in printed
    with pytest.raises(CtxagentError, match="nothing found"):
        desk.run("/recover quagga")
    with pytest.raises(UsageError, match="recover needs a topic"):
        desk.run("/recover")


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("recover 2", "2"),
        ("recover connection pool", "connection pool"),
        ("recover src/auth/token.py", "src/auth/token.py"),
    ],
)
def test_recover_command_without_other_text(words: str, argument: str) -> None:
    found = commands.parse(words, commands.COMMANDS)
    assert found is not None
    assert (found[0].name, found[1]) == ("recover", argument)


@pytest.mark.parametrize(
    "words",
    [
        "recover", "Recover the file", "recover the file I deleted.", "recover it?", "recovery 2",
        "recover the database from the backup of last night", "please recover 2",
        "recover\nthe file", "recover the file\nfrom git",
    ],
)  # fmt: skip
def test_what_is_said_to_the_agent(words: str) -> None:
    assert commands.parse(words, commands.COMMANDS) is None


@pytest.mark.slow
def test_a_recovery_that_fails_is_recorded(place: Place) -> None:
    """Level 3 replaces it, with a flag for reviewers."""
    entry = ToolResult(tool_use_id="a", content="ok", details={"path": "a.py", "added": 1})
    call = {"type": "tool_use", "id": "a", "name": "Edit", "input": {"path": "a.py"}}
    reply = Assistant(content=[call], usage={}, stop_reason="tool_use", model="m")
    log = recorded(place, [reply, entry])
    told = place.run("recover", "1")
    assert told.returncode == 0
    assert "level 1 cannot be made" in told.stderr
    assert "(recorded: #3)" in told.stderr
    assert "a.py" in told.stdout
    (note,) = [e for e in read_log(log).entries if isinstance(e, Note)]
    assert (note.topic, note.data["flag"]) == ("recovery", LOSS_FLAG)
    assert "Recovery failed · #3" in place.run("log").stdout
    assert "failed recoveries, to be reviewed: #3" in place.run("doctor", log.parent.name).stdout


def counted(tmp_path: Path) -> Conversation:
    """A conversation with a result that was moved to a file."""
    (tmp_path / "p").mkdir()
    steps = [
        Step(tools=[("Bash", {"command": "seq 30000"})]),
        Step(text="Counted. " + "word " * 900),
    ]
    talk = Conversation(tmp_path / "p", [*steps, Step(text="So.")], policy=MECHANICAL)
    talk.say("Count to 30,000.")
    talk.say("And then?")
    return talk


def test_a_summary_after_which_a_result_is_lost_is_followed_by_level_3(tmp_path: Path) -> None:
    talk = counted(tmp_path)
    (whole,) = (talk.agent.folder / "offloaded").iterdir()
    whole.write_text("damaged")
    asyncio.run(talk.agent.engine.compact())
    (result,) = talk.of(ToolResult)
    (summary,), (note,) = talk.of(Summary), [n for n in talk.of(Note) if n.topic == "recovery"]
    assert summary.probes["recovery"] == {"asked": 1, "ok": 0}
    assert note.data == {"flag": LOSS_FLAG, "refs": [result.seq]}
    shown = str(talk.agent.view.items[-1].blocks)
    assert f"cannot be read back as it was: #{result.seq}" in shown
    assert "Intent: Count to 30,000." in shown
    talk.agent.engine.uncompact(talk.agent.log.entries())
    assert "cannot be read back" not in str(talk.agent.view.items)


class _ReadBackwards(list[Entry]):
    """Entries that count how many of them were read."""

    read = 0

    def __reversed__(self) -> Iterator[Entry]:
        for entry in super().__reversed__():
            self.read += 1
            yield entry


@given(st.lists(st.tuples(st.sampled_from("usr"), st.integers(0, 30)), max_size=30))
def test_the_newest_summary_is_found_without_reading_further_back(
    steps: list[tuple[str, int]],
) -> None:
    entries = _ReadBackwards()
    for seq, (kind, number) in enumerate(steps, 1):
        if kind == "u":
            entries.append(User(seq=seq, content="go on"))
        elif kind == "r":
            entries.append(Revert(seq=seq, target=1 + number % seq))
        else:
            document = {"intent": "Port it."} if number % 3 else {"intent": 0}
            entries.append(
                Summary(seq=seq, document=document, text="t", covers=[1, seq], keep_from=seq)
            )
    gone = reverted_seqs(entries)
    sound = [e for e in entries if isinstance(e, Summary) and e.seq not in gone and document_of(e)]
    assert newest_readable_summary(entries) == (sound[-1] if sound else None)
    assert entries.read == (len(entries) - sound[-1].seq + 1 if sound else len(entries))


@pytest.mark.parametrize("damaged", [False, True])
def test_a_prepared_summary_is_checked_again_if_a_result_has_changed(
    tmp_path: Path, damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = counted(tmp_path)
    host = talk.agent.engine.host
    cut, window = talk.agent.engine._find_cut(), host.current_window()
    applier = SummaryApplier(host)
    read: list[Collection[int]] = []
    recall = host.recall
    monkeypatch.setattr(host, "recall", lambda refs: read.append(refs) or recall(refs))

    async def apply() -> Summary:
        writer = SummaryWriter(host, MECHANICAL, UnusableSummaries.from_summary(None))
        draft = await applier.prepare(cut, writer)
        assert len(read) == 1
        if damaged:
            (whole,) = (talk.agent.folder / "offloaded").iterdir()
            whole.write_text("damaged")
        return await applier.apply(cut, draft, "test", window, window.size)

    summary = asyncio.run(apply())
    assert len(read) == (2 if damaged else 1)
    results, replies = summary.probes["recovery"], summary.probes["trajectory"]
    assert results == {"asked": 1, "ok": 0 if damaged else 1}
    assert replies["ok"] == replies["asked"] > 0


def test_a_denied_call_is_not_handed_over_to_another_session() -> None:
    """The user said no to one call, not to calls like it."""
    history = worked()
    ledger = ledger_of(history.entries)
    summary = newest_readable_summary(history.entries)
    for number in LEVEL_TOKENS:
        assert "Not authorised: " in recovery_text(ledger, summary, number)
        text = recovery_text(ledger, summary, number, is_handed_over=True)
        assert "Not authorised" not in text
        assert INTENT[:20] in text
