"""Opening and closing a session: the first facts are recorded once, whatever interrupts this.
Closing blocks nobody. A failed opening leaves nothing behind.
"""

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxagent.agent.app import open_agent
from ctxagent.agent.config.settings import Settings
from ctxagent.agent.errors import RecordError, SessionError
from ctxagent.agent.events import Event, SessionOpened
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.resume import fold_sources
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.archive import MAX_OFFLOADED_BYTES, offload
from ctxagent.agent.session.entries import Entry, Note, Session, User
from ctxagent.agent.session.log import Log, LogFile, read_log
from ctxagent.agent.session.store import Project
from ctxagent.tools.system import capture

from ..meta.test_architecture import FILES, facts_of, module
from ..support.sessions.conversation import Conversation

HERE = User(content="Here you are.", source="environment")


class Look:
    """Facts about the environment, found when the test allows it: one of `results` each time."""

    def __init__(self, talk: Conversation, *results: Sequence[Entry] | Exception) -> None:
        self.results, self.looks = results, 0
        self.begun, self.go = threading.Event(), threading.Event()
        talk.environment.startup = self

    def __call__(self) -> Sequence[Entry]:
        self.looks += 1
        self.begun.set()
        assert self.go.wait(100)
        result = self.results[self.looks - 1]
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    project = tmp_path / "project"
    project.mkdir()
    return Conversation(project, [Step(text="Yes.")])


async def interrupted(talk: Conversation, look: Look) -> None:
    """Run a turn that is cancelled while it collects these facts."""
    turn = asyncio.ensure_future(run_turn(talk.agent, "one"))
    await asyncio.to_thread(look.begun.wait, 100)
    turn.cancel()
    assert (await turn).status == "interrupted"


def test_next_turn_waits_for_an_interrupted_environment_check(talk: Conversation) -> None:
    look = Look(talk, [HERE])

    async def run() -> None:
        await interrupted(talk, look)
        turn = asyncio.ensure_future(run_turn(talk.agent, "two"))
        await asyncio.sleep(0)
        look.go.set()
        assert (await turn).status == "ok"

    asyncio.run(run())
    assert look.looks == 1
    assert talk.kinds() == ["session", "user", "end", "user", "user", "assistant", "end"]
    assert talk.hooks.seen == [("session_start", {})]


def test_leaving_after_an_interrupt_records_what_was_found(talk: Conversation) -> None:
    look = Look(talk, [Note(topic="killed", text="", data={})])

    async def run() -> None:
        await interrupted(talk, look)
        look.go.set()
        await talk.agent.close()

    asyncio.run(run())
    assert talk.kinds() == ["session", "user", "end", "note"]


def test_failed_environment_check_is_repeated(talk: Conversation) -> None:
    look = Look(talk, OSError(errno.EIO, "failing"), [HERE])
    look.go.set()
    assert talk.say("one").status == "error"
    assert talk.say("two").status == "ok"
    assert [user.content for user in talk.of(User)] == ["one", "two", HERE.content]


def test_failed_entry_is_recorded_later_and_only_once(
    talk: Conversation,
) -> None:
    """The log redacts each entry before it writes the entry, so redaction can fail like a disk."""
    other = User(content="And there.", source="instructions")
    look = Look(talk, [HERE, other])
    look.go.set()
    failing = True

    def redact(entry: Entry) -> Entry:
        if failing and entry == other:
            raise RecordError("full")
        return entry

    talk.agent.log.redact = redact  # type: ignore[assignment]
    with pytest.raises(RecordError, match="full"):
        talk.say("one")
    failing = False
    assert talk.say("two").status == "ok"
    said = [user.content for user in talk.of(User)]
    assert said == ["one", HERE.content, "two", other.content]
    assert look.looks == 1


def test_event_loop_runs_while_a_session_closes(talk: Conversation) -> None:
    """Writing at the end of the session waits until the test allows it."""
    talk.agent.record(User(content="One."))
    leave = talk.agent.resume_cache.save_at_close
    begun, go = threading.Event(), threading.Event()

    def held(log: Log) -> None:
        begun.set()
        assert go.wait(100)
        leave(log)

    talk.agent.resume_cache.save_at_close = held  # type: ignore[method-assign]

    async def run() -> None:
        leaving = asyncio.ensure_future(talk.agent.close_except_model())
        assert await asyncio.to_thread(begun.wait, 100)
        with pytest.raises(SessionError):
            Log.open(talk.agent.log.path)  # it is locked meanwhile
        leaving.cancel()  # and whoever gives up does not change that
        await asyncio.sleep(0)
        assert not leaving.done()
        go.set()
        await asyncio.wait([leaving])

    asyncio.run(run())
    Log.open(talk.agent.log.path).close()


def launch(folder: Path) -> LaunchOptions:
    return LaunchOptions(
        Settings(),
        Places(
            cwd=folder,
            state=folder / "state",
            config_home=folder / "config",
            environ={"PATH": os.environ["PATH"], "HOME": str(folder)},
        ),
        model=ScriptedModel([Step(text="Yes.")]),
    )


def test_an_opening_that_fails_frees_the_session(tmp_path: Path) -> None:
    start = launch(tmp_path)
    log = Log(Project(start.places.state, start.places.cwd).new_log())
    log.append(Session(id=log.path.parent.name, cwd=str(tmp_path), version="1", model="m"))
    log.close()
    choice = SessionChoice(id=log.path.parent.name)

    def interrupts(event: Event) -> None:
        if isinstance(event, SessionOpened):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            open_agent(start, choice, emit=interrupts, ask=None)
    Log.open(log.path).close()

    def fails(opened: Log) -> tuple[int, list[str]]:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            Log.open(log.path, fails)
    Log.open(log.path).close()


def test_a_log_that_was_closed_stays_closed(tmp_path: Path) -> None:
    log = Log(tmp_path / "sessions" / "s" / "log.jsonl")
    log.append(User(content="one"))
    log.close()
    with pytest.raises(RecordError, match="closed"):
        log.append(User(content="two"))
    again = Log.open(log.path)  # and nobody has the lock
    assert [entry.seq for entry in read_log(again.path).entries] == [1]
    again.close()


class Late(bytes):
    """A line whose write fails. When its length is read afterwards, another writer has appended a
    line.
    """

    path: Path
    hard: int

    def __len__(self) -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.hard, self.hard))
        with self.path.open("ab") as file:
            file.write(b" of another\n")
        return super().__len__()


def test_failed_write_keeps_the_line_of_another_writer(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "log.jsonl")
    file.lock()
    file.write_line(b"one\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    line = Late(b"two\n")
    line.path, line.hard = file.path, hard
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))
    try:
        with pytest.raises(RecordError):
            file.write_line(line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(RecordError, match="another program has changed the log"):
        file.write_line(b"three\n")
    assert file.path.read_bytes() == b"one\ntw of another\n"


def test_cache_is_valid_only_for_the_modules_that_made_it() -> None:
    """All that the folds import; but how drift is told, how a model's answer is read, and errors
    change no fold, and the version counts by itself."""
    files = {module(path): path for path in FILES}
    made, todo = set[str](), ["agent.loop.resume"]
    while todo:
        name = todo.pop()
        if name in files and name.startswith("agent.") and name not in made:
            made.add(name)
            todo += facts_of(files[name]).imports
    missing = {files[name].resolve() for name in made} - {path.resolve() for path in fold_sources()}
    assert {path.name for path in missing} == {
        "document.py", "errors.py", "lazy.py", "sections.py", "version.py",
    }  # fmt: skip


def test_offloaded_results_have_a_size_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "DISK_RESERVE_BYTES", 1 << 62)
    folder = tmp_path / "offloaded"
    offload(folder / "1.md", "small")
    with (folder / "2.md").open("wb") as large:
        large.truncate(MAX_OFFLOADED_BYTES + 1)  # takes no room
    # What is put there is known from what this process has put there itself.
    offload(folder / "3.md", "small")
    other = tmp_path / "other"
    other.mkdir()
    (folder / "2.md").rename(other / "2.md")
    for _ in range(2):
        with pytest.raises(OSError, match="already"):
            offload(other / "3.md", "small")
    monkeypatch.setattr(capture, "DISK_RESERVE_BYTES", 0)
    offload(other / "4.md", "small")  # the disk has room
    monkeypatch.setattr(capture, "DISK_RESERVE_BYTES", 1 << 62)
    (other / "2.md").unlink()  # somebody made room
    offload(other / "3.md", "small")
