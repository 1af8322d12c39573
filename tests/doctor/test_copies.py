"""A damaged log next to copies: nothing that a copy has is lost, and the log is rebuilt."""

import asyncio
import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.addons.doctor.session import check_session, repair
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.errors import LogDamaged
from ctxagent.agent.loop import resume
from ctxagent.agent.loop.resume import CACHE_NAME, resume_session
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.conversation import CONVERSATION_NAME
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Entry,
    Summary,
    ToolResult,
    User,
)
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import content_text, full_text

from ..session.test_checkpoints import FACTS
from ..support.command import Place
from ..support.sessions.conversation import Conversation
from .test_repair import RECORD, check_request

STEPS = (
    Step(
        thinking="First a look.",
        text="A long thought. " * 300,
        tools=[("Bash", {"command": "seq 3000"})],
    ),
    Step(text="Now.", tools=[("Read", {"path": "notes.txt"}), ("Bash", {"command": "echo both"})]),
    Step(thinking="That is it.", text="Done: é."),
    Step(text=RECORD),
    Step(tools=[("Bash", {"command": "echo '## User · #4'; echo second"})]),
    Step(text="Twice done."),
)
SHEET = "checkpoints/3.json"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real session with all copies: conversation, cache, checkpoint."""
    cwd = tmp_path_factory.mktemp("sound") / "project"
    cwd.mkdir()
    (cwd / "notes.txt").write_text("one\ntwo\n")
    policy = replace(DEFAULT, move_above=1_000, preview_chars=200)
    talk = Conversation(cwd, STEPS, policy=policy)
    assert talk.say("look at it").status == "ok"
    asyncio.run(talk.agent.engine.compact())
    assert talk.say("and again").status == "ok"
    log = talk.agent.log
    log.append(talk.agent.checkpoints.take(FACTS, "manual", log.last_seq))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "MIN_UNCACHED_LOG_BYTES", 1)
        resume.ResumeCache(log.path).save_at_close(log)
    log.close()
    folder = log.path.parent
    assert all((folder / name).is_file() for name in (CONVERSATION_NAME, CACHE_NAME))
    return folder


Lines = list[bytes]


def zeroed(lines: Lines, at: int) -> Lines:
    return [*lines[:at], b"\0" * sum(map(len, lines[at : at + 3])), *lines[at + 3 :]]


# What happens to the lines of a log, at a line.
DAMAGE: dict[str, Callable[[Lines, int], Lines]] = {
    "emptied": lambda lines, at: [],
    "zeros only": lambda lines, at: [b"\0" * (at * 100)],
    "cut": lambda lines, at: lines[:at],
    "cut within a line": lambda lines, at: [*lines[:at], lines[at][:-9]],
    "zeros at the end": lambda lines, at: [*lines[:at], b"\0" * len(b"".join(lines[at:]))],
    "zeros in the middle": zeroed,
    "zeroed line": lambda lines, at: [*lines[:at], b"\0\n", *lines[at + 1 :]],
    "line gone": lambda lines, at: [*lines[:at], *lines[at + 1 :]],
    "reversed": lambda lines, at: [*lines[:at], *lines[at:][::-1]],
    "rotated": lambda lines, at: [*lines[at:], *lines[:at]],
}
PLACES = (0.1, 0.4, 0.6, 0.85)
COPIES = ("all", CONVERSATION_NAME, CACHE_NAME, SHEET, "none")
VARIANTS = [*itertools.product(DAMAGE, PLACES, COPIES)]
QUICK = VARIANTS[::9]


def said(entry: Entry) -> str:
    """The text of a message, a reply or a result."""
    if isinstance(entry, Assistant) and entry.purpose == "turn":
        return "\n".join(str(b["text"]) for b in entry.content if b["type"] == "text")
    return content_text(entry.content) if isinstance(entry, User | ToolResult) else ""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def check_variant(sound: Path, folder: Path, kind: str, place: float, copy: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    log = folder / "log.jsonl"
    whole = read_log(log).entries
    for name in (CONVERSATION_NAME, CACHE_NAME, SHEET):
        if copy not in ("all", name):
            (folder / name).unlink()
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(DAMAGE[kind](lines, round(place * len(lines)))))
    before = contents(folder)
    refusal = ""
    try:
        resume_session(log)[0].close()
    except LogDamaged as error:
        refusal = str(error)
    if refusal:
        assert contents(folder) == before
        assert str(log) in refusal
        assert f"doctor {folder.name} --repair" in refusal
    if any(not finding.ok for finding in check_session(log)):
        assert repair(log)
    assert repair(log) == []
    opened = resume_session(log)[0]
    opened.close()
    check_kept(log, whole, before, copy, refused=bool(refusal))


def check_kept(
    log: Path, whole: list[Entry], before: dict[str, bytes], copy: str, *, refused: bool
) -> None:
    """Check that the log has what the copies had, and that the copies remain."""
    entries = read_log(log).entries
    check_request(entries)
    texts = "\n".join(map(said, entries))
    if not refused:  # a torn last line is cut off; its text stays in the replaced copy
        texts += "".join(p.read_text() for p in log.parent.glob(f"{CONVERSATION_NAME}.*.bak"))
    if copy in ("all", CONVERSATION_NAME):
        for entry in whole:
            is_offloaded = isinstance(entry, ToolResult) and entry.offloaded is not None
            assert is_offloaded or said(entry) in texts, entry
            if is_offloaded and (found := full_text(log, entry.seq)):
                assert found.startswith("1\n2\n")
    if copy in ("all", CACHE_NAME):
        assert any(isinstance(e, Summary) and e.text for e in entries)
        assert "Twice done." in texts
    if copy in ("all", SHEET):
        assert any(isinstance(e, Checkpoint) and e.path == SHEET for e in entries)
    after = [*contents(log.parent).values()]
    for path, data in before.items():
        if not path.endswith((".stat", CONVERSATION_NAME, "log.jsonl")) and data:
            assert data in after, path
    assert [e.seq for e in entries] == sorted({e.seq for e in entries})


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "place", "copy"), QUICK)
def test_nothing_that_a_copy_has_is_lost(
    sound: Path, tmp_path: Path, kind: str, place: float, copy: str
) -> None:
    check_variant(sound, tmp_path / "s", kind, place, copy)


@pytest.mark.full
def test_nothing_that_a_copy_has_is_lost_in_any_variant(sound: Path, tmp_path: Path) -> None:
    assert len(VARIANTS) == 200
    for variant in VARIANTS:
        check_variant(sound, tmp_path / "s", *variant)


def test_a_log_that_an_earlier_repair_kept_is_a_copy(sound: Path, tmp_path: Path) -> None:
    log = shutil.copytree(sound, tmp_path / "s") / "log.jsonl"
    whole = read_log(log).entries
    log.with_name("log.jsonl.20260101-000000.bak").write_bytes(log.read_bytes())
    for name in (CONVERSATION_NAME, CACHE_NAME, SHEET):
        (log.parent / name).unlink()
    log.write_bytes(b"")
    assert any("restored from log.jsonl.2026" in line for line in repair(log))
    assert read_log(log).entries[0] == whole[0]
    assert all(said(entry) in "\n".join(map(said, read_log(log).entries)) for entry in whole)


def test_results_of_one_call_are_joined_to_it(sound: Path, tmp_path: Path) -> None:
    """Two calls of one reply: code does not guess which result belongs to which."""
    log = shutil.copytree(sound, tmp_path / "s") / "log.jsonl"
    log.write_bytes(b"")
    (log.parent / CACHE_NAME).unlink()
    repair(log)
    entries = read_log(log).entries
    results = [e for e in entries if isinstance(e, ToolResult)]
    calls = [
        (block["id"], block["input"].get("command"))
        for entry in entries
        if isinstance(entry, Assistant)
        for block in entry.content
        if block["type"] == "tool_use"
    ]
    assert len(calls) == 4
    assert [e.tool_use_id for e in results] == [calls[0][0], calls[3][0]]
    assert "second" in content_text(results[1].content)
    notices = [said(e) for e in entries if isinstance(e, User) and e.source == "notice"]
    asked = [e.seq for e in entries if isinstance(e, Assistant)][1]
    assert [text.partition("\n")[0] for text in notices] == [
        f"[Restored: the result of a call in #{asked}]"
    ] * 2


@pytest.mark.slow
def test_the_command_refuses_and_repairs(tmp_path: Path) -> None:
    place = Place(tmp_path)
    script = place.root / "model.json"
    script.write_text('{"steps": [{"text": "Here again."}]}')
    first = place.run("-p", "remember CODEWORD-5", "--model", f"scripted:{script}")
    assert first.returncode == 0, first.stderr
    (log,) = place.state.glob("projects/*/sessions/*/log.jsonl")
    id = log.parent.name
    intact = log.read_bytes()
    conversation = log.with_name(CONVERSATION_NAME)
    copy = conversation.read_bytes()
    for damaged in (b"", b"\0" * 4_000, intact[: len(intact) // 2]):
        log.write_bytes(damaged)
        options = [["--continue"], ["--resume", id], ["--resume", id, "--fork"]]
        for more in options:
            again = place.run("-p", "again", "--model", f"scripted:{script}", *more)
            assert again.returncode == 1
            assert f"{log}" in again.stderr
            assert f"{conversation}" in again.stderr
            assert f"`ctxagent doctor {id} --repair`" in again.stderr
            assert (log.read_bytes(), conversation.read_bytes()) == (damaged, copy)
        assert len([*log.parent.parent.iterdir()]) == 1
    repaired = place.run("doctor", id, "--repair")
    assert repaired.returncode == 0, repaired.stdout
    assert "restored from conversation.md" in repaired.stdout
    again = place.run("-p", "again", "--continue", "--model", f"scripted:{script}")
    assert again.returncode == 0, again.stderr
    assert "CODEWORD-5" in conversation.read_text()


@pytest.mark.slow
def test_a_missing_log_does_not_lose_its_copy(sound: Path, tmp_path: Path) -> None:
    log = shutil.copytree(sound, tmp_path / "s") / "log.jsonl"
    log.unlink()
    before = contents(log.parent)
    with pytest.raises(LogDamaged):
        resume.create_session(log)
    missing = [f.found for f in check_session(log) if not f.ok]
    assert missing == [f"{log} is missing"]
    assert contents(log.parent) == before
    repair(log)
    assert "Twice done." in "\n".join(map(said, read_log(log).entries))
