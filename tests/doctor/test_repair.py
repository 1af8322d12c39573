"""Doctor on a session: its report for each kind of damage, and a repair that loses nothing."""

import asyncio
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ctxagent.addons.doctor.salvage import without_thinking
from ctxagent.addons.doctor.session import check_session, repair
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import SessionError
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.conversation import CONVERSATION_NAME
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Note,
    Pin,
    Session,
    Summary,
    ToolResult,
    encode,
)
from ctxagent.agent.session.log import Log, encode_line, read_log, try_parse_entry
from ctxagent.agent.session.store import full_text

from ..compaction.test_engine import RECORD
from ..support.command import Place
from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation

STEPS = (
    Step(
        thinking="First a look.",
        text="A long thought. " * 300,  # so that a summary makes it smaller
        tools=[("Bash", {"command": "seq 3000"})],
    ),
    Step(thinking="And the file.", text="Now.", tools=[("Read", {"path": "notes.txt"})] * 2),
    Step(thinking="That is it.", text="Done: é."),
    Step(text=RECORD),
    Step(thinking="Once more.", tools=[("Bash", {"command": "echo second"})]),
    Step(thinking="All well.", text="Twice done."),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real session: thinking, calls, an offloaded text, a summary, a pin."""
    cwd = tmp_path_factory.mktemp("sound") / "project"
    cwd.mkdir()
    (cwd / "notes.txt").write_text("one\ntwo\n")
    policy = replace(DEFAULT, move_above=1_000, preview_chars=200)
    talk = Conversation(cwd, STEPS, policy=policy)
    assert talk.say("look at it — all of it" + ", please" * 200).status == "ok"
    asyncio.run(talk.agent.engine.compact())
    assert talk.say("and again").status == "ok"
    talk.agent.record(Pin(ref=4))
    talk.agent.log.close()
    return talk.agent.log.path.parent


@pytest.fixture
def log(sound: Path, tmp_path: Path) -> Path:
    """A copy of it that may be damaged."""
    shutil.copytree(sound, tmp_path / "s")
    return tmp_path / "s" / "log.jsonl"


def said(log: Path, *, ok: bool) -> str:
    return "\n".join(f"{f.what}: {f.found}" for f in check_session(log) if f.ok is ok)


def check_repaired(log: Path, before: bytes) -> list[Entry]:
    """Check a repaired log: it opens without a warning, gives a valid request and has every entry
    that was readable before. The original is kept, and a second repair does nothing.
    """
    (kept,) = log.parent.glob("log.jsonl.*.bak")
    assert kept.read_bytes() == before
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(log.stat().st_mode) == 0o600
    assert said(log, ok=False) == ""
    whole = log.read_bytes()
    assert repair(log) == []
    assert log.read_bytes() == whole
    opened = Log.open(log)
    opened.close()
    assert opened.warnings == []
    entries = read_log(log).entries
    assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
    check_request(entries)
    there = {bare(entry) for entry in entries}
    for line in before.split(b"\n")[:-1]:
        if entry := try_parse_entry(line + b"\n"):
            assert bare(entry) in there
    return entries


def check_request(entries: list[Entry]) -> dict[str, Any]:
    opening = Session(id="s", cwd="/", version="0", model="scripted", system="Good.", tools=[])
    sent = body(build_request(fold([*entries, opening]), model="scripted", max_tokens=1_000))
    validate(sent)
    return sent


def bare(entry: Entry) -> str:
    """An entry without its number and its thinking, and without the file that has its text."""
    data = encode(without_thinking(entry))
    for name in ("seq", "v", "offloaded", "details"):
        data.pop(name, None)
    return json.dumps(data)


def lines_of(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}, ensure_ascii=False).encode() + b"\n"


def place_of(lines: list[bytes], kind: str) -> int:
    return next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == kind)


def swap(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[6], lines[5], lines[4], *lines[7:]]


def two_writers(lines: list[bytes]) -> list[bytes]:
    """A log in which a second process continued from the fifth line, as on a file system without
    locks.
    """
    begins = changed(lines[5], kind="user", content="meanwhile", source="person")
    return [*lines[:6], begins, *lines[6:]]


def summary_beyond(lines: list[bytes]) -> list[bytes]:
    place = place_of(lines, "summary")
    return [*lines[:place], changed(lines[place], keep_from=9_999), *lines[place + 1 :]]


def offloaded_line(lines: list[bytes]) -> int:
    return next(n for n, line in enumerate(lines) if json.loads(line).get("offloaded"))


# What is done to the lines of the log, and what doctor must say of it.
DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "not JSON": (lambda ls: [*ls[:3], b"{oops\n", *ls[4:]], "line 4: not JSON"),
    "no object": (lambda ls: [*ls[:3], b"[1, 2]\n", *ls[4:]], "line 4: not an entry"),
    "another shape": (
        lambda ls: [*ls[:2], changed(ls[2], usage={"input": "many"}), *ls[3:]],
        "line 3: not an entry: usage.input",
    ),
    "no kind": (lambda ls: [*ls[:3], b'{"v": 1, "seq": 4}\n', *ls[4:]], "not an entry: no kind"),
    "empty line": (lambda ls: [*ls[:3], b"\n", *ls[3:]], "line 4: it is empty"),
    "a foreign line": (lambda ls: [*ls[:3], b"tail -f\n", *ls[3:]], "line 4: not JSON"),
    "line gone": (lambda ls: [*ls[:5], *ls[6:]], "#6: restored from conversation.md"),
    "first lines gone": (lambda ls: ls[2:], "#2: restored from conversation.md"),
    "torn tail": (lambda ls: [*ls[:-1], ls[-1][:30]], "cut off after 30 bytes"),
    "no last line end": (lambda ls: [*ls[:-1], ls[-1][:-1]], "only its line end is missing"),
    "torn in the middle": (
        lambda ls: [*ls[:3], ls[3][:-40] + ls[4], *ls[5:]],
        "line 4: not JSON",
    ),
    "NULs before": (lambda ls: [*ls[:3], b"\0" * 512 + ls[3], *ls[4:]], "512 NUL bytes"),
    "NULs instead": (lambda ls: [*ls[:3], b"\0" * 512 + b"\n", *ls[4:]], "512 NUL bytes"),
    "not UTF-8": (
        lambda ls: [ls[0], ls[1].replace("—".encode(), b"\xff"), *ls[2:]],
        "invalid UTF-8",
    ),
    "twice": (lambda ls: [*ls[:5], ls[4], *ls[5:]], "duplicate of #5 removed"),
    "out of order": (swap, "moved back into order"),
    "two writers": (two_writers, "number already used"),
    "wrong number": (
        lambda ls: [*ls[:4], changed(ls[4], seq=5_000_000), *ls[5:]],
        "#5000000 corrected to #5",
    ),
    "number lower": (lambda ls: [*ls[:4], changed(ls[4], seq=1), *ls[5:]], "corrected to #5"),
    "number leaps": (lambda ls: [*ls[:-1], changed(ls[-1], seq=2**52)], "lost; replaced by a note"),
    "other spelling": (
        lambda ls: [
            *ls[:4],
            json.dumps(json.loads(ls[4]), sort_keys=True).encode() + b"\n",
            *ls[5:],
        ],
        "#5 rewritten in the format of the log",
    ),
    "byte order mark": (
        lambda ls: [b"\xef\xbb\xbf" + ls[0], *ls[1:]],
        "rewritten in the format of the log",
    ),
    "summary keeps from beyond": (summary_beyond, "summary reverted"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGE)
def test_each_damage_is_explained_and_repaired(log: Path, kind: str) -> None:
    damage, told = DAMAGE[kind]
    assert said(log, ok=False) == ""
    log.write_bytes(b"".join(damage(lines_of(log))))
    before = log.read_bytes()
    found = said(log, ok=False)
    assert told in found
    assert log.read_bytes() == before  # to look changes nothing
    done = repair(log)
    assert any(told in line for line in done)
    entries = check_repaired(log, before)
    account = entries[-1]
    assert isinstance(account, Note)
    assert account.data["repaired"] == done[:-1]


def test_an_empty_log_without_copies_is_reported(log: Path) -> None:
    log.write_bytes(b"")
    log.with_name(CONVERSATION_NAME).unlink()
    shutil.rmtree(log.parent / "offloaded")
    assert "nothing can be recovered" in said(log, ok=False)
    repair(log)
    assert said(log, ok=False) == ""
    assert repair(log) == []


def test_a_repair_keeps_refs_and_drops_later_thinking(log: Path) -> None:
    whole = {entry.seq: entry for entry in read_log(log).entries}
    gone = next(seq for seq, e in whole.items() if isinstance(e, ToolResult) and not e.offloaded)
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines[: gone - 1], *lines[gone:]]))
    log.with_name(CONVERSATION_NAME).unlink()
    repair(log)
    entries = {entry.seq: entry for entry in read_log(log).entries}
    assert "lost" in (full_text(log, gone) or "")
    for seq, entry in whole.items():
        if seq == gone:
            continue
        sound = entry if seq < gone else without_thinking(entry)
        assert encode(entries[seq]) == encode(sound)
    kept = [e for e in entries.values() if isinstance(e, Assistant) and e != without_thinking(e)]
    assert kept
    assert all(e.seq < gone for e in kept)


def test_a_lost_result_comes_back_from_its_file(log: Path) -> None:
    place = offloaded_line(lines_of(log))
    seq = place + 1
    text = full_text(log, seq)
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines[:place], *lines[place + 1 :]]))
    assert f"#{seq}: restored, a result of Bash" in said(log, ok=False)
    repair(log)
    assert full_text(log, seq) == text
    result = read_log(log).entries[place]
    assert isinstance(result, ToolResult)
    assert result.tool_use_id == "call_1_1"
    assert "calls without a result: none" in said(log, ok=True)


@pytest.mark.parametrize("empty", [True, False])
def test_an_offloaded_text_that_is_gone(log: Path, empty: bool) -> None:
    (file,) = (log.parent / "offloaded").iterdir()
    file.write_text("") if empty else file.unlink()
    before = log.read_bytes()
    assert f"offloaded/{file.name}" in said(log, ok=False)
    repair(log)
    check_repaired(log, before)
    result = read_log(log).entries[offloaded_line(before.splitlines())]
    assert isinstance(result, ToolResult)
    assert (result.offloaded, result.details["lost"]) == (None, f"offloaded/{file.name}")


def test_dangling_references_are_reported_and_harmless(log: Path) -> None:
    opened = Log.open(log)
    for entry in read_log(log).entries:
        if isinstance(entry, Summary):
            opened.append(replace(entry, keep=[7_777]))
    opened.append(Pin(ref=8_888))
    opened.append(ToolResult(tool_use_id="nobody's", content="?"))
    opened.append(
        Assistant(
            content=[{"type": "tool_use", "id": "u", "name": "Bash", "input": {}}],
            usage={}, stop_reason="tool_use", model="m",
        )
    )  # fmt: skip
    opened.close()
    with log.open("ab") as file:
        file.write(b'{"v": 9, "seq": %d, "at": "", "kind": "hologram"}\n' % (opened.last_seq + 1))
    told = said(log, ok=True)
    for part in ("refers to #7777", "pin", "refers to #8888", f"#{opened.last_seq} Bash (u)"):
        assert part in told
    assert "results without a call: #" in told
    assert "unknown kinds: 1 hologram" in told
    assert "of another version: 1 of 9" in told
    assert said(log, ok=False) == ""


def test_wrong_modes_are_reported_and_corrected(log: Path) -> None:
    log.chmod(0o644)
    (log.parent / "offloaded").chmod(0o755)
    before = log.read_bytes()
    assert "s/log.jsonl 0644" in said(log, ok=False)
    assert repair(log) == ["permissions of 2 files and folders fixed"]
    assert log.read_bytes() == before
    assert said(log, ok=False) == ""
    assert list(log.parent.glob("*.bak")) == []


@pytest.mark.slow
def test_not_while_the_session_is_in_use(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"v": 1, "seq"')
    damaged = log.read_bytes()
    with log.with_name("lock").open("r+") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        holder.truncate()
        holder.write(f"{os.getpid()}\n")
        holder.flush()
        assert said(log, ok=False) == ""  # the last line is being written
        assert f"lock: held by process {os.getpid()}" in said(log, ok=True)
        with pytest.raises(SessionError, match="another process"):
            repair(log)
    assert log.read_bytes() == damaged
    assert "cut off after" in said(log, ok=False)


def test_an_invalid_lock_file(log: Path) -> None:
    log.with_name("lock").unlink()
    log.with_name("lock").mkdir()
    assert "lock is not a file; remove it" in said(log, ok=False)


def test_subagents_are_checked_and_repaired_too(log: Path) -> None:
    inner = log.parent / "agents" / "a" / "log.jsonl"
    inner.parent.mkdir(parents=True, mode=0o700)
    inner.parent.parent.chmod(0o700)
    shutil.copy2(log, inner)
    inner.write_bytes(inner.read_bytes()[:-10])
    shutil.copytree(log.parent / "offloaded", inner.parent / "offloaded")
    assert "subagent a: to repair: " in said(log, ok=False)
    damaged = inner.read_bytes()
    done = repair(log)
    assert done
    assert all(line.startswith("subagent a: ") for line in done)
    check_repaired(inner, damaged)


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, bytes]]:
    """Damages to bytes: overwritten, removed or inserted, at places in millionths of the log."""
    some = st.sampled_from(
        [b"\0" * 64, b"\n", b'"', b"}", b"{", b"\xff\xfe", b"1", b"\r", b"x" * 9]
    )
    how = st.sampled_from(["over", "cut", "in", "line twice", "line gone", "lines swapped"])
    one = st.tuples(how, st.integers(0, 999_999), some | st.binary(max_size=12))
    return draw(st.lists(one, min_size=1, max_size=6))


def damaged(data: bytes, how: str, where: int, what: bytes) -> bytes:
    place = where * len(data) // 1_000_000
    lines = data.splitlines(keepends=True)
    line = where * len(lines) // 1_000_000
    if how == "line twice":
        return b"".join([*lines[: line + 1], *lines[line:]])
    if how == "line gone":
        return b"".join([*lines[:line], *lines[line + 1 :]])
    if how == "lines swapped":
        return b"".join([*lines[:line], *lines[line + 1 : line + 2], *lines[line : line + 1],
                         *lines[line + 2 :]])  # fmt: skip
    removed = 0 if how == "in" else max(1, len(what)) * (20 if how == "cut" else 1)
    return data[:place] + (b"" if how == "cut" else what) + data[place + removed :]


@pytest.mark.slow
@settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(damages())
@example([("cut", 0, b"x" * 10)])
def test_any_damage_to_the_bytes_is_repaired(sound: Path, tmp_path: Path, done: Any) -> None:
    folder = tmp_path / "s"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    log = folder / "log.jsonl"
    data = log.read_bytes()
    for how, where, what in done:
        data = damaged(data, how, where, what)
    log.write_bytes(data)
    broken = said(log, ok=False) != ""
    repaired = repair(log)
    assert bool(repaired) is broken
    if repaired:
        check_repaired(log, data)


@pytest.mark.slow
def test_the_command(place: Place, sound: Path) -> None:
    target = place.state / "projects" / "p-0" / "sessions" / "20260101-000000-abcdef"
    shutil.copytree(sound, target)
    log, id = target / "log.jsonl", target.name
    damaged = b"".join([*lines_of(log)[:5], b"rubbish\n", *lines_of(log)[6:]])
    log.write_bytes(damaged)
    looked = place.run("doctor", id, "--json")
    document = json.loads(looked.stdout)
    assert (looked.returncode, document["ok"], document["repaired"]) == (1, False, None)
    assert any("line 6: not JSON" in f["found"] for f in document["findings"])
    repaired = place.run("doctor", id, "--repair")
    assert repaired.returncode == 0, repaired.stdout
    assert "done  line 6: not JSON" in repaired.stdout
    assert "done  the old log is kept: " in repaired.stdout
    again = place.run("doctor", id, "--repair")
    assert (again.returncode, again.stdout.splitlines()[0]) == (
        0,
        "done  there is nothing to repair",
    )
    check_repaired(log, damaged)
    assert place.run("doctor", "--repair").returncode == 2


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


@pytest.mark.slow
def test_a_line_of_30_mb_is_kept(log: Path) -> None:
    *_, last = read_log(log).entries
    large = Note(seq=last.seq + 1, topic="warning", text="é\n" * 10_000_000)
    with log.open("ab") as file:
        file.write(encode_line(large) + b"broken\n")
    repair(log)
    assert large in read_log(log).entries
