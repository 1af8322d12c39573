"""Resuming from the cache and the rest of the log. The resulting state must equal the state of the
whole log, for any log, or the cache is not used.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import LogDamaged, SessionError
from ctxagent.agent.loop import resume
from ctxagent.agent.loop.resume import (
    CACHE_NAME,
    LOG_STATE_NAME,
    MIN_UNCACHED_LOG_BYTES,
    CachedState,
    ResumeCache,
    SessionState,
    read_cache,
    resume_session,
    write_cache,
)
from ctxagent.agent.session.codec import from_json, to_json
from ctxagent.agent.session.entries import (
    DROP,
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
)
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import Entries, Log, encode_line, read_log
from ctxagent.agent.session.titles import rename_note
from ctxagent.agent.session.totals import Totals, request_note

from ..e2e.test_undo import acts, begun, play, progress, reverts
from ..support.sessions.longlog import lengthen

LONG = 24 << 20  # bytes of a log that is long in a test


def folds(kept: CachedState) -> str:
    """The whole computed state, as one text."""

    def plain(value: object) -> list[str] | None:
        return sorted(value) if isinstance(value, set) else None

    return json.dumps(asdict(replace(kept, segments=[])), default=plain)


def follow(kept: CachedState, log: Path) -> CachedState:
    kept.follow(log)
    if kept.state.behind:
        kept.state.catch_up(Entries(log))
    return kept


def whole(log: Path) -> CachedState:
    return follow(CachedState(), log)


def kept_and_read(kept: CachedState) -> CachedState:
    found: CachedState = from_json(CachedState, to_json(kept))
    return found


# The folds


def extras(seq: int) -> list[Entry]:
    """Entries of kinds that the other strategies do not generate."""
    bash: dict[str, Any] = {"command": "make", "exit_code": 1}
    return [
        Session(seq=seq, id=f"s{seq % 3}", cwd=f"/p{seq % 2}", version="1", model="m"),
        User(seq=seq, content="again", source="instructions"),
        User(seq=seq, content="a-1 (general): told", source="notice"),
        User(seq=seq, content="x", source="shell", details=bash, offloaded="offloaded/x.md"),
        ToolResult(seq=seq, tool_use_id="x", content="ok", details={"agent": "a-1"}),
        ToolResult(
            seq=seq, tool_use_id="x", content="", details={"seen": {"path": "/a", "sha256": "0"}}
        ),
        ToolResult(seq=seq, tool_use_id="x", content="", details={"todos": [{"content": "do"}]}),
        Checkpoint(seq=seq, number=seq, path=f"checkpoints/{seq}.json"),
        SubagentRun(seq=seq, id="a-1", type="general", prompt="x", log="agents/a-1/log.jsonl"),
        Pin(seq=seq, text="this"),
        Unpin(seq=seq, ref=2),
        Note(seq=seq, topic="decision", text="that"),
        Note(seq=seq, topic="phase", text="tests"),
        End(seq=seq, status="ok"),
    ]


numbers = st.integers(0, 60)
mischief = st.one_of(
    st.tuples(st.just("extra"), numbers, numbers),
    st.tuples(st.just("move"), numbers, numbers),
    st.tuples(st.just("double"), numbers, numbers),
    st.tuples(st.just("drop"), numbers, numbers),
    st.tuples(st.just("spoil"), numbers, numbers),
)


def garbled(entries: Sequence[Entry], steps: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """The lines of a log, with some of them damaged."""
    lines = [encode_line(entry) for entry in entries]
    for what, first, second in steps:
        place, other = first % len(lines), second % (len(lines) + 1)
        if what == "extra":
            some = extras(len(lines) + first)
            lines.insert(other, encode_line(some[second % len(some)]))
        elif what == "move":
            lines.insert(min(other, len(lines) - 1), lines.pop(place))
        elif what == "double":
            lines.insert(other, lines[place])
        elif what == "drop" and len(lines) > 1:
            del lines[place]
        elif what == "spoil":
            lines[place] = lines[place][: second + 1].rstrip(b"\n") + b"\n"
    return lines


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.one_of(progress, acts, reverts), max_size=12),
    st.lists(mischief, max_size=6),
    st.lists(numbers, min_size=1, max_size=3),
)
def test_cache_and_rest_of_the_log_equal_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[Any, ...]],
    harm: list[tuple[str, int, int]],
    stops: list[int],
) -> None:
    history = begun()
    for step in steps:
        play(history, step)
    lines = garbled(history.entries, harm)
    log = tmp_path_factory.mktemp("log") / "log.jsonl"
    kept = CachedState()
    for stop in [*sorted(each % (len(lines) + 1) for each in stops), len(lines)]:
        log.write_bytes(b"".join(lines[:stop]))
        kept = kept_and_read(follow(kept, log))
        entries = read_log(log)
        ledger, totals = Ledger(), Totals()
        for entry in entries.entries:
            ledger.add(entry)
            totals.add(entry)
        standing = kept.state
        assert standing.view == fold(entries.entries)
        assert (standing.ledger, standing.totals) == (ledger, totals)
        assert kept.warnings(log) == entries.warnings
        assert folds(kept) == folds(whole(log))


def every_field(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """The fields of one of our dataclasses and of nested ones, with values and defaults, except
    computed fields.
    """
    blank = kind()
    for each in (each for each in fields(kind) if each.init):
        one, before = getattr(value, each.name), getattr(blank, each.name)
        yield f"{kind.__name__}.{each.name}", one, before
        if is_dataclass(before) and type(before) is type(one):
            yield from every_field(one, type(one))


def test_no_field_of_a_fold_is_lost(tmp_path: Path) -> None:
    """Each field is stored. The history sets every field: extend it for new fields."""
    history = begun()
    for step in [("work", 2, 0), ("hide", "demote", [0]), ("summarize", 1, True), ("work", 2, 1)]:
        play(history, step)
    mask = next(e.seq for e in history.entries if isinstance(e, Mask))
    more: list[Entry] = [
        *extras(0),
        Note(topic="permission", text="rm", data={"answer": "no", "reason": "not that"}),
        SubagentRun(id="a-2", type="explore", prompt="x", log="agents/a-2/log.jsonl", cost_usd=0.5),
        Revert(target=mask),
    ]
    use = [
        {"type": "tool_use", "id": id, "name": name, "input": {}}
        for id, name in [*((f"b{n}", "Bash") for n in range(8)), ("r", "Read"), ("w", "Write"),
                         ("e", "Edit"), ("t", "Todo"), ("open", "Bash")]
    ]  # fmt: skip
    usage = {"input": 9, "cache_read": 1, "cache_creation": 1, "output": 1, "web_searches": 1}
    more.append(
        Assistant(
            at="2026-01-01T00:00:00.000Z",
            content=use,
            usage=usage,
            stop_reason=None,
            model="m",
            cost_usd=0.1,
            timings={"by": "server", "cached": 500, "read": 700, "read_s": 20.0,
                     "written": 50, "written_s": 5.0},
        )
    )  # fmt: skip
    more += [request_note("turn", run, 0.5) for run in ("a", "b")]
    more.append(
        Session(id="s", cwd="/p", version="1", model="m", own_prompt="P", tools=[{"name": "Bash"}],
                thinking="free")
    )  # fmt: skip
    pytest_ran = "FAILED tests/test_a.py::test_{} - no\n1 failed in 0.1s"
    results: list[tuple[str, str, dict[str, Any], bool]] = [
        ("b0", "make: *** Error", {"command": "make all", "exit_code": 2}, True),
        ("b7", "make: *** Other error", {"command": "make all", "exit_code": 3}, True),
        ("b1", "done", {"command": "make all", "exit_code": 0, "head": "main@0"}, False),
        ("b2", pytest_ran.format("x"), {"command": "pytest -q", "exit_code": 1}, True),
        ("b3", "no", {"command": "false", "exit_code": 1}, True),
        ("b4", "Started.", {"command": "make all", "job": "j1", "running": True}, False),
        ("b5", "SyntaxError\n", {"command": "pytest tests", "exit_code": 2}, True),
        ("b6", "3 passed in 0.1s", {"command": "pytest tests/other", "exit_code": 0}, False),
        ("r", "text", {"path": "/p/r", "outside": "a page",
                       "seen": {"path": "/p/r", "sha256": "1"}}, False),
        ("w", "ok", {"path": "/p/w", "created": True,
                     "changes": [{"path": "/p/n", "action": "created"}]}, False),
        ("e", "error: not found", {"path": "/p/r"}, True),
        ("t", "ok", {"todos": [{"content": "do", "status": "pending"}]}, False),
    ]  # fmt: skip
    more += [
        ToolResult(tool_use_id=id, content=text, details=details, is_error=bad)
        for id, text, details, bad in results
    ]
    more += [Note(topic="title", text="A name"), rename_note("/p", "/q")]
    skill = {"name": "walrus", "path": "/s/walrus/SKILL.md", "digest": "d"}
    more += [User(content="[Head]\n\nFeed it.", source="skill", details={"skill": skill})]
    plan = {"plan": {"agreed": True}, "todos": [{"content": "Feed it", "status": "pending"}]}
    more += [User(content="[Head]\n\n## Steps\n1. Feed it", source="plan", details=plan)]
    more += [User(content="Added.", source="notice", details={"directories": {"/l": "/l"}})]
    more += [User(content="and now?"), replace(summary(), covers=[2, 3]), End(status="ok")]
    for entry in more:
        history.entries.append(replace(entry, seq=len(history.entries) + 1))
    history.reply({"type": "text", "text": "ok"}, usage={"input": 2 * history.view().size})
    history.say("thanks")
    seq = history.entries[-1].seq
    drop = Mask(
        layer=DROP,
        targets=[{"seq": seq, "text": "[dropped]"}],
        tokens_before=0,
        tokens_after=0,
        trigger="",
    )
    history.entries.append(replace(drop, seq=seq + 1))
    seq = len(history.entries) + 1
    history.entries.append(Note(seq=seq, topic="warning", text="no", data={"refused": True}))
    # A summary that comes after the revert that takes it back.
    last = len(history.entries)
    history.entries += [Revert(seq=last + 1, target=last + 2), replace(summary(), seq=last + 2)]
    history.entries += [User(seq=last + 3, content="Still.", source="environment")]
    history.entries.insert(2, Note(seq=1, topic="phase", text="out of order"))
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"garbage\n" * 101 + b"".join(map(encode_line, history.entries)))
    kept = whole(log)
    said = {name for name, value, before in every_field(kept, CachedState) if value != before}
    silent = {name for name, _, _ in every_field(kept, CachedState)} - said
    assert silent == {"SessionState.behind"}  # never kept as anything else
    again = kept_and_read(kept)
    for (name, one, _), (_, other, _) in zip(
        every_field(kept, CachedState), every_field(again, CachedState), strict=True
    ):
        assert one == other, name


def summary() -> Summary:
    document = {"decisions": ["one"], "facts": ["never two"]}
    return Summary(document=document, text="So far.", covers=[1, 1], keep_from=1)


# The file


def filled(log: Path, size: int, lines: int = 8_000) -> list[Entry]:
    """A log of this many bytes: calls with long results, masks, and some summaries."""
    history = begun()
    for step in [("work", 3, 0), ("hide", "microcompact", [0, 1]), ("summarize", 1, True)]:
        play(history, step)
        history.call("Read", {"path": "/p/file"}, "all the lines of it\n" * lines)
    history.add(End, status="ok")
    lengthen(history.entries, log, size)
    return history.entries


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "s" / "log.jsonl"
    filled(path, 2 * MIN_UNCACHED_LOG_BYTES)
    return path


def leave(log: Path) -> None:
    """Open a session, and leave it."""
    held, _, resumption = resume_session(log)
    resumption.save_at_close(held)
    held.close()


def covered(log: Path) -> int:
    """How many bytes of the log were not read, because the cache covers them."""
    resumption = ResumeCache(log)
    resumption.read()
    return resumption.reached


@pytest.mark.slow
def test_a_session_continues_from_the_cache(log: Path) -> None:
    leave(log)
    size = log.stat().st_size
    assert covered(log) == size
    for name in (CACHE_NAME, LOG_STATE_NAME):
        assert (log.with_name(name).stat().st_mode & 0o777) == 0o600
    held, standing, resumption = resume_session(log)
    added = held.append(User(content="and now?"))
    assert added.seq == standing.highest + 1
    resumption.save_at_close(held)
    held.close()
    assert covered(log) == size  # so little more is not worth writing all of it again
    assert folds(ResumeCache(log).read()) == folds(whole(log))


@pytest.mark.slow
def test_the_cache_is_rewritten(log: Path) -> None:
    leave(log)
    before = log.with_name(CACHE_NAME).read_bytes()
    log.with_name(CACHE_NAME).unlink()
    leave(log)
    assert log.with_name(CACHE_NAME).read_bytes() == before


@pytest.mark.slow
def test_a_short_session_has_no_cache(tmp_path: Path) -> None:
    path = tmp_path / "s" / "log.jsonl"
    filled(path, MIN_UNCACHED_LOG_BYTES // 4)
    leave(path)
    kept = {each.name for each in path.parent.iterdir()}
    assert kept == {"log.jsonl", "lock", "conversation.md"}


def edited(log: Path, change: Callable[[bytes], bytes]) -> None:
    """Edit the log and hide the edit as well as a user can."""
    stat = log.stat()
    log.write_bytes(change(log.read_bytes()))
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "a letter": lambda data: data.replace(b"lines", b"limes", 1),
    "a line less": lambda data: data.partition(b"\n")[2],
    "cut": lambda data: data[: data.rindex(b"\n", 0, len(data) // 2) + 1],
    "empty": lambda data: b"",
    "the last byte but one": lambda data: data[:-2] + b" \n",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", EDITS.values(), ids=list(EDITS))
def test_a_log_that_was_changed_is_read_again(log: Path, change: Callable[[bytes], bytes]) -> None:
    leave(log)
    edited(log, change)
    assert covered(log) == 0
    assert folds(ResumeCache(log).read()) == folds(whole(log))
    if change is not EDITS["a letter"]:  # the cache has more entries than the log
        cache = log.with_name(CACHE_NAME).read_bytes()
        with pytest.raises(LogDamaged, match="its cache"):
            resume_session(log)
        assert log.with_name(CACHE_NAME).read_bytes() == cache
        return
    held, _, _ = resume_session(log)  # which keeps what it reads
    held.close()
    assert covered(log) in (0, log.stat().st_size)


@pytest.mark.slow
def test_a_log_that_was_changed_while_it_was_open(log: Path) -> None:
    """The open session writes before and after the edit, so size and time do not reveal it."""
    leave(log)
    held, _, resumption = resume_session(log)
    held.append(User(content="before"))
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"lines"))
        file.write(b"limes")
    held.append(User(content="after"))
    resumption.save_at_close(held)
    held.close()
    assert covered(log) == 0


@pytest.mark.slow
def test_after_a_copy_or_a_kill_only_digests_are_checked(log: Path, tmp_path: Path) -> None:
    """The log is not as its writer left it, so its digests are compared."""
    leave(log)
    size = log.stat().st_size
    held, _, _ = resume_session(log)
    held.append(User(content="and then it was killed"))
    held.close()
    assert covered(log) == size
    copy = tmp_path / "copy" / "log.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(log.read_bytes())
    write_cache(copy, read_cache(log))
    assert covered(copy) == size
    edited(copy, EDITS["a letter"])
    assert covered(copy) == 0


def signed(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data.replace(b"lines", b"limes", 1),
        lambda data: b"0" * 64 + data[64:],
        lambda data: b"{}",
        lambda data: signed(b"[]"),
        lambda data: signed(data[65:].replace(b'"form":"', b'"form":"x', 1)),
        lambda data: signed(data[65:].replace(b'"state":{', b'"state":{"entries":"x",', 1)),
    ],
    ids=[
        "empty",
        "torn",
        "a letter",
        "another digest",
        "something else",
        "a list",
        "of another program",
        "of another type",
    ],
)
def test_a_file_that_is_broken_does_not_count(log: Path, harm: Callable[[bytes], bytes]) -> None:
    leave(log)
    path = log.with_name(CACHE_NAME)
    data = path.read_bytes()
    path.write_bytes(harm(data))
    assert covered(log) == 0
    leave(log)
    assert path.read_bytes() == data


@pytest.mark.slow
def test_a_session_continues_if_the_cache_cannot_be_written(log: Path) -> None:
    for name in (CACHE_NAME, LOG_STATE_NAME):
        log.with_name(f"{name}.part").mkdir(parents=True)  # where it would be written first
    leave(log)
    assert not log.with_name(CACHE_NAME).exists()
    leave(log)


@pytest.mark.slow
def test_a_read_only_session_writes_no_cache(log: Path) -> None:
    held, standing, resumption = resume_session(log, read_only=True)
    resumption.save_at_close(held)
    assert standing.entries == len(list(Entries(log)))
    assert {each.name for each in log.parent.iterdir()} == {"log.jsonl"}


@pytest.mark.slow
def test_a_revert_of_cached_entries(log: Path) -> None:
    """The whole log is read once for it, and not again at the end of the session."""
    leave(log)
    last = next(e for e in reversed(Entries(log)) if isinstance(e, Summary))
    held, _, resumption = resume_session(log)
    held.append(Revert(target=last.seq))
    held.append(User(content="x" * 2 * MIN_UNCACHED_LOG_BYTES))  # more than enough to keep it anew
    before = log.with_name(CACHE_NAME).read_bytes()
    resumption.save_at_close(held)
    held.close()
    assert log.with_name(CACHE_NAME).read_bytes() == before
    assert ResumeCache(log).read().state.view == fold(Entries(log))
    leave(log)
    assert covered(log) == log.stat().st_size


@pytest.mark.slow
def test_a_log_that_grows_while_it_is_read(log: Path) -> None:
    """The cache is rewritten while another process appends to the log."""
    held, _, resumption = resume_session(log)
    size = log.stat().st_size
    text = "x" * 50_000
    for _ in range(40):
        held.append(User(content=text))
        resumption.renew_in_background()
    resumption.save_at_close(held)
    held.close()
    assert covered(log) > size
    assert folds(ResumeCache(log).read()) == folds(whole(log))


# A short log, of which something is kept because the bounds are low


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short log that is just long enough to be cached."""
    monkeypatch.setattr(resume, "MIN_UNCACHED_LOG_BYTES", 1_000)
    path = tmp_path / "short" / "log.jsonl"
    filled(path, 20_000, lines=80)
    return path


def test_more_than_a_few_damaged_lines_are_counted(short: Path) -> None:
    entries = read_log(short).entries
    short.write_bytes(b"garbage\n" * 103 + short.read_bytes())
    held, standing, _ = resume_session(short)
    held.close()
    assert len(held.warnings) == 101
    assert held.warnings[-1] == f"{short}: 3 more lines skipped"
    assert standing.entries == len(entries)


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "log.jsonl"
    for read in (ResumeCache(nowhere).read, lambda: CachedState().follow(nowhere)):
        with pytest.raises(SessionError, match=f"cannot read the log {nowhere}: No such file"):
            read()


def test_a_cache_without_its_log_does_not_count(short: Path) -> None:
    leave(short)
    short.unlink()
    with pytest.raises(SessionError):
        ResumeCache(short).read()


def test_a_long_log_has_several_digests(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "SEGMENT_BYTES", 5_000)
    kept = whole(short)
    ends = [end for end, _ in kept.segments]
    assert len(ends) > 2
    assert ends == sorted({*ends})
    assert ends[-1] == short.stat().st_size
    leave(short)
    short.with_name(LOG_STATE_NAME).unlink()
    assert covered(short) == short.stat().st_size
    edited(short, lambda data: data[:-9] + b"x" + data[-8:])
    assert covered(short) == 0


@pytest.mark.parametrize("content", ["", "no JSON", "[]", "[1, 2, 3]"])
def test_without_the_state_of_the_log_its_digests_count(short: Path, content: str) -> None:
    leave(short)
    state = short.with_name(LOG_STATE_NAME)
    state.write_text(content)
    assert covered(short) == short.stat().st_size
    edited(short, EDITS["a letter"])
    assert covered(short) == 0


def test_an_unchanged_log_needs_no_digests(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(short)
    monkeypatch.setattr(resume, "_match_digests", lambda log, segments: False)
    assert covered(short) == short.stat().st_size
    short.touch()
    assert covered(short) == 0


def test_the_cache_of_another_version_does_not_count(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(short)
    with monkeypatch.context() as other:
        other.setattr(resume, "__version__", "0.0")
        resume._cache_key.cache_clear()
        assert covered(short) == 0
    resume._cache_key.cache_clear()
    assert covered(short) == short.stat().st_size


def test_too_long_a_log_is_left_to_the_next_process(short: Path) -> None:
    cache = ResumeCache(short)
    cache.renew(most=short.stat().st_size - 1)
    assert not short.with_name(CACHE_NAME).exists()
    cache.renew(most=short.stat().st_size)
    assert covered(short) == short.stat().st_size


def test_a_little_growth_does_not_rewrite_the_cache(short: Path) -> None:
    leave(short)
    before = short.with_name(CACHE_NAME).read_bytes()
    held, _, cache = resume_session(short)
    held.append(User(content="x"))
    cache.renew()
    assert short.with_name(CACHE_NAME).read_bytes() == before
    held.append(User(content="x" * 2 * len(before)))
    cache.renew()
    held.close()
    assert covered(short) == short.stat().st_size


def test_turns_after_the_newest_summary_are_counted() -> None:
    state = SessionState()
    for seq in (1, 2):
        state.add(End(seq=seq, status="ok"))
    assert state.ended == 2
    state.add(User(seq=3, content="go"))
    state.add(replace(summary(), seq=4, covers=[3, 3], keep_from=4))
    assert (state.summary is not None, state.ended) == (True, 0)
    for seq in range(5, 25):
        state.add(End(seq=seq, status="ok"))
    assert state.ended == len(state.ends) < 20  # no more of them matter


def test_a_state_knows_how_the_session_was_opened() -> None:
    state = SessionState()
    opened = Session(seq=7, id="s-1", cwd="/a", version="1", model="m", own_prompt="Mine.")
    state.add(opened)
    state.add(replace(opened, seq=3, id="s-2", cwd="/b", own_prompt=None))
    assert (state.began, state.session, state.origins) == ("/a", "s-2", {"s-1", "s-2"})
    assert (state.own_prompt, state.newest, state.highest) == ("Mine.", 3, 7)


@pytest.mark.parametrize(
    ("details", "seen", "todos"),
    [
        ({"seen": {"path": "/a", "sha256": "1"}}, {"/a": "1"}, []),
        ({"seen": {"path": "/a"}}, {}, []), ({"seen": "x"}, {}, []), ({"todos": "x"}, {}, []),
        ({"todos": [{"content": "do"}]}, {}, [{"content": "do"}]),
    ],
)  # fmt: skip
def test_a_state_knows_the_files_and_the_todo_list(
    details: dict[str, Any], seen: dict[str, str], todos: list[Any]
) -> None:
    state = SessionState()
    state.add(ToolResult(seq=1, tool_use_id="c", content="", details=details))
    assert (state.seen, state.todos) == (seen, todos)


def test_a_session_that_is_copied_without_a_cache_has_none(short: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    write_cache(copy, read_cache(short))
    assert list(tmp_path.iterdir()) == [short.parent]
    leave(short)
    write_cache(copy, read_cache(short))
    assert copy.with_name(CACHE_NAME).read_bytes() == short.with_name(CACHE_NAME).read_bytes()


# What it costs

MEASURE = """
import sys
from pathlib import Path
from ctxagent.agent.loop.resume import resume_session

def told(file, name):
    words = Path("/proc/self", file).read_text().split()
    return int(words[words.index(name) + 1])

before, log = told("io", "rchar:"), Path(sys.argv[1])
held, standing, resumption = resume_session(log)
seen = told("io", "rchar:") - before
resumption.save_at_close(held)
held.close()
print(standing.entries, seen, told("status", "VmHWM:") * 1024)
"""


def measured(log: Path) -> tuple[int, int, int]:
    """The entries, bytes read and peak memory of a process that opens and leaves the log."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(log)], capture_output=True, text=True, check=True
    )
    entries, seen, most = map(int, done.stdout.split())
    return entries, seen, most


@pytest.mark.slow
def test_a_long_log_costs_no_more_than_a_short_one(tmp_path: Path) -> None:
    short, long = tmp_path / "short" / "log.jsonl", tmp_path / "long" / "log.jsonl"
    filled(short, MIN_UNCACHED_LOG_BYTES)
    filled(long, LONG)
    size = long.stat().st_size
    _, _, little = measured(short)
    entries, seen, first = measured(long)
    assert seen >= size  # without what is kept, all of it, once
    assert seen < size + (4 << 20)
    assert first < little + (8 << 20)
    again = measured(long)
    assert again[0] == entries
    assert again[1] < 2 << 20
    assert again[2] < little + (8 << 20)
    with long.open("ab") as file:  # by a process that was killed
        file.write(encode_line(User(seq=entries + 1, content="x")) + b'{"v": 1, "se')
    killed = measured(long)
    assert killed[0] == entries + 1
    assert killed[2] < little + (8 << 20)


@pytest.mark.slow
def test_the_cache_does_not_contain_the_log(log: Path) -> None:
    """The cache grows with the actions, not with the text about them."""
    leave(log)
    assert log.with_name(CACHE_NAME).stat().st_size < log.stat().st_size // 4


@pytest.mark.slow
def test_the_next_number_is_known_without_the_cache(log: Path) -> None:
    held = Log.open(log)
    assert held.last_seq == ResumeCache(log).read().state.highest
    held.close()
