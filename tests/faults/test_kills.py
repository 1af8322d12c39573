"""Thirty kills of the real command, each gone on with; `make soak` has many more."""

import os
import random
from pathlib import Path

import pytest

from ctxagent.agent.session.lock import acquire_lock
from ctxagent.agent.session.log import Log, read_log

from ..support.sessions.history import History, called
from ..support.sessions.kills import AIMS, Chain, aims

KILLS = 30
SESSION = 10
CHAINS = [tuple(aims(random.Random(7), KILLS))[n : n + SESSION] for n in range(0, KILLS, SESSION)]


@pytest.mark.full
@pytest.mark.parametrize("number", range(len(CHAINS)))
def test_killed_again_and_again(tmp_path: Path, number: int) -> None:
    with Chain(tmp_path / "chain", number) as chain:
        for aim in CHAINS[number]:
            chain.kill(aim)
        chain.end()
    assert chain.figures.told == []
    assert chain.figures.kills.total() + chain.figures.counts["ended"] == SESSION
    assert chain.figures.kills.total() > SESSION // 2


def test_every_phase_is_among_them() -> None:
    assert {aim.phase for chain in CHAINS for aim in chain} == {aim.phase for aim in AIMS}


def test_a_line_torn_at_any_byte_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    history = History()
    history.say("go")
    history.call("Bash", {"command": "echo é"}, "é\n", details={"exit_code": 0})
    path = tmp_path / "sessions" / "s" / "log.jsonl"
    log = Log(path)
    for entry in history.entries:
        log.append(entry)
    log.close()
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    before = read_log(path).entries[:-1]
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        log = Log.open(path)
        assert list(log.entries()) == before, end
        assert log.append(history.entries[-1]).seq == len(history.entries)
        log.close()
        assert path.read_bytes()[:last] == whole[:last]
        assert [e.seq for e in read_log(path).entries] == list(range(1, len(history.entries) + 1))


def test_the_figures_tell_what_is_wrong(tmp_path: Path) -> None:
    """What no run does is done here by hand: a check that cannot fail would prove nothing."""
    with Chain(tmp_path / "chain", 99) as chain:
        path = chain.place.state / "projects" / "p" / "sessions" / "s" / "log.jsonl"
        log = Log(path)
        history = History()
        history.say("go")
        history.reply(called("one", "Bash", {"command": "make"}))
        for entry in history.entries:
            log.append(entry)
        log.close()
        chain.inquest.look([])
        assert chain.figures.told == []
        path.write_bytes(path.read_bytes().replace(b'"go"', b'"gone"'))
        (chain.place.project / "done.txt").write_text("a\nb\na\n")
        (chain.place.project / "made" / "stranger").write_text("x")
        held, chain.inquest.patience = acquire_lock(path, []), 0.0
        request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
        chain.inquest.look([request])
        os.close(held)
        chain.inquest.check_files(history.entries)
    wrong = dict.fromkeys(("lost", "twice", "untold", "stuck", "unrecorded"), 1)
    assert chain.figures.wrong == wrong
