"""`conversation.md` contains the conversation of the log once and in order, after any operation on
either.
"""

import asyncio
import os
import random
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import LogDamaged
from ctxagent.agent.loop.resume import create_session, resume_session
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.conversation import (
    CONVERSATION_NAME,
    MAX_BYTES_AT_OPEN,
    ConversationFile,
    conversation_text,
)
from ctxagent.agent.session.entries import Assistant, Entry, Note, Summary, ToolResult, User
from ctxagent.agent.session.log import Entries, Log
from ctxagent.agent.session.store import Project

from ..compaction.test_engine import RECORD, asks_for_a_record
from ..support.sessions.conversation import Conversation
from ..support.sessions.setup import long_text

SAID: list[Entry] = [
    User(content="Ünder way?"),
    Assistant(
        content=[
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "a", "name": "Read", "input": {"path": "a.py"}},
        ],
        usage={}, stop_reason="tool_use", model="m",
    ),
    ToolResult(tool_use_id="a", content=[{"type": "text", "text": "x = 1"}, {"type": "image"}]),
    Note(topic="drift", text="not said"),
    Assistant(
        content=[{"type": "text", "text": "## Session Intent"}],
        usage={}, stop_reason="end_turn", model="m", purpose="summary",
    ),
    Summary(document={}, text="[Conversation compressed]", covers=[1, 2], keep_from=3),
    User(content="As things stand.", source="environment"),
]  # fmt: skip
AS_TEXT = """## User · #1

Ünder way?

## Assistant · #2

Looking.

## Read · #2

{"path": "a.py"}

### Result · #3

x = 1
[image]

## Environment · #7

As things stand.

"""


def conversation(log: Path) -> bytes:
    return log.with_name(CONVERSATION_NAME).read_bytes()


def of_log(log: Path) -> bytes:
    return b"".join(map(conversation_text, Entries(log)))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = create_session(tmp_path / "s" / "log.jsonl")[0]
    for entry in SAID:
        log.append(entry)
    yield log
    log.close()


def test_an_entry_is_added_as_soon_as_it_is_recorded(log: Log) -> None:
    assert conversation(log.path).decode() == AS_TEXT
    assert log.path.with_name(CONVERSATION_NAME).stat().st_mode & 0o777 == 0o600


class Unread:
    """Entries that must not be read."""

    def __iter__(self) -> Iterator[Entry]:
        raise AssertionError("the whole log was read")

    __reversed__ = __iter__


def test_to_add_an_entry_reads_nothing_of_the_log(tmp_path: Path) -> None:
    file = ConversationFile(tmp_path, Unread(), 0)
    for entry in SAID:
        file.add(entry)
    assert file.path.stat().st_size == sum(len(conversation_text(entry)) for entry in SAID)


def test_to_open_a_long_session_reads_nothing_of_it(tmp_path: Path) -> None:
    """A session of an older version has no file; it is written with the next entry."""
    file = ConversationFile(tmp_path, Unread(), MAX_BYTES_AT_OPEN + 1)
    assert not file.path.exists()


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "short":
        os.truncate(path, len(data) - 20)  # within the last text
    elif how == "far behind":
        path.write_bytes(data[:30])
    elif how == "doubled":
        path.write_bytes(data + data)
    elif how == "of another version":
        path.write_bytes(b"## User \xc2\xb7 #3\n\n" + data[40:-9])
    elif how == "empty":
        path.write_bytes(b"")


HOW = ("gone", "short", "far behind", "doubled", "of another version", "empty")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("then", ["resumed", "gone on", "synced"])
def test_a_file_that_is_not_the_logs_is_put_right(log: Log, how: str, then: str) -> None:
    spoil(log.path.with_name(CONVERSATION_NAME), how)
    if then == "resumed":
        log.close()
        resume_session(log.path)[0].close()
    elif then == "gone on":
        log.append(User(content="And then?"))
    else:
        log.sync_all()
    assert conversation(log.path) == of_log(log.path)


def test_only_the_missing_end_is_written_after_a_kill(log: Log) -> None:
    path = log.path.with_name(CONVERSATION_NAME)
    spoil(path, "short")
    before = path.stat().st_ino
    log.close()
    resume_session(log.path)[0].close()
    assert (conversation(log.path), path.stat().st_ino) == (of_log(log.path), before)


@pytest.mark.parametrize("lost", [1, 5])
def test_what_the_log_lost_stays(log: Log, lost: int) -> None:
    """After a power loss. Only the entry of the torn line may be lost without a repair."""
    log.append(SAID[0])
    log.close()
    before = conversation(log.path)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-lost]) + lines[-lost][:9])
    damaged = log.path.read_bytes()
    if lost > 1:
        with pytest.raises(LogDamaged, match=r"lacks #7, #8, which .*conversation\.md has"):
            resume_session(log.path)
        assert (conversation(log.path), log.path.read_bytes()) == (before, damaged)
        return
    resume_session(log.path)[0].close()
    assert conversation(log.path) == of_log(log.path)
    (kept,) = log.path.parent.glob("conversation.md.*.bak")
    assert kept.read_bytes() == before


def test_a_reader_does_not_change_it(log: Log) -> None:
    path = log.path.with_name(CONVERSATION_NAME)
    spoil(path, "doubled")
    before = path.read_bytes()
    resume_session(log.path, read_only=True)[0].close()
    assert path.read_bytes() == before


@pytest.fixture
def long_log(log: Log) -> Path:
    """A log with more text than is written at opening, and no file for it."""
    said = User(content="word " * (1 << 18))
    while log.append(said).seq <= len(SAID) + (MAX_BYTES_AT_OPEN >> 20):
        pass
    log.close()
    log.path.with_name(CONVERSATION_NAME).unlink()
    return log.path


def test_it_is_written_while_a_long_log_is_read(long_log: Path) -> None:
    resume_session(long_log)[0].close()
    assert conversation(long_log) == of_log(long_log)
    assert long_log.with_name(CONVERSATION_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.variants
@pytest.mark.parametrize("limit", ["no file", "a short file"])
def test_a_long_log_is_read_where_the_conversation_cannot_be_written(
    long_log: Path, limit: str
) -> None:
    part = long_log.with_name(f"{CONVERSATION_NAME}.part")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == "no file":
        part.mkdir()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, before[1]))
    try:
        log, state, _ = resume_session(long_log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert state.entries == log.last_seq == len([*Entries(long_log)])
    if part.exists():
        part.rmdir()
    log.append(SAID[0])
    log.close()
    assert conversation(long_log) == of_log(long_log)


@pytest.mark.slow
def test_no_compaction_and_no_undo_changes_it(tmp_path: Path) -> None:
    def step(request: Request) -> Step:
        return Step(text=RECORD if asks_for_a_record(request) else long_text(2_000))

    (tmp_path / "p").mkdir()
    policy = replace(DEFAULT, keep_tokens=0, keep_messages=2)
    talk = Conversation(tmp_path / "p", step, policy=policy)
    log, engine = talk.agent.log, talk.agent.engine
    said = []
    for turn in range(8):
        said.append(f"Request number {turn}.")
        talk.say(said[-1] + " word" * 400)
        if turn in (2, 3, 5, 7):
            asyncio.run(engine.compact())
        if turn in (3, 5):
            engine.uncompact(log.entries())
        assert conversation(log.path) == of_log(log.path)
    text = conversation(log.path).decode()
    places = [text.index(words) for words in said]
    assert places == sorted(places)
    assert all(text.count(words) == 1 for words in said)
    assert "[Conversation compressed]" not in text


@pytest.mark.slow
def test_any_sequence_of_acts_leaves_it_the_logs(tmp_path: Path) -> None:
    """Messages, replies, kills at any byte, resumes, forks, and forks to a point."""
    chance = random.Random(11)
    project = Project(tmp_path / "state", tmp_path)
    log = create_session(project.new_log())[0]
    log.append(SAID[0])
    for step in range(400):
        act = chance.random()
        if act < 0.8:
            log.append(chance.choice(SAID))
            continue
        log.close()
        path = log.path
        if act < 0.88:
            end = path.stat().st_size
            os.truncate(path, chance.randint(end - 60, end))
        elif act < 0.94:
            file = path.with_name(CONVERSATION_NAME)
            os.truncate(file, chance.randint(0, file.stat().st_size))
        elif act < 0.97:
            path = project.fork(path)
            assert conversation(path) == of_log(path)
        else:
            path = project.fork(path, chance.randint(1, log.last_seq))
            assert conversation(path) == of_log(path)
        log = resume_session(path)[0]
        assert conversation(path) == of_log(path), step
    log.close()
    assert log.last_seq > 50
