"""The statistics of the proxy's sessions match their logs."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.addons.proxy.serve import RUNNING_NAME
from ctxagent.addons.proxy.status import (
    MAX_SESSIONS,
    ProxyStatus,
    SessionStatus,
    StatusReader,
    running_address,
)
from ctxagent.agent.models.catalog import cache_terms, cost
from ctxagent.agent.session.entries import Usage
from ctxagent.agent.session.store import Project

from ..support.sessions.proxied import MODEL, Proxied

ID = "20260101-080000-00000a"
CENT = 0.01


@pytest.fixture
def project(tmp_path: Path) -> Project:
    cwd = tmp_path / "project"
    cwd.mkdir()
    return Project(tmp_path / "state", cwd)


def status(project: Project) -> ProxyStatus:
    return StatusReader().status(project.logs())


def only(project: Project) -> SessionStatus:
    (session,) = status(project).sessions
    return session


def dollars(**counts: int) -> float:
    found = cost(MODEL, Usage(**counts))
    assert found is not None
    return found


def curve(session: SessionStatus) -> tuple[list[int], list[int]]:
    told = session.to_json()["context"]
    return told["with"], told["without"]


# Without edits


def test_without_edits_both_are_the_same(project: Project) -> None:
    """Also if the server read less from its cache than possible, and after the cache expired."""
    made = Proxied(ID).words("Fix the tests").reply(written=9_000, plain=12)
    made.reply(read=9_000, written=700, plain=5).reply(read=8_704, written=1_500)
    made.later(3_000).reply(written=11_000, plain=3).reply(read=11_000, plain=20)
    made.write(project)
    found = status(project)
    assert found.with_dollars > 0
    assert found.without_dollars == found.with_dollars
    with_us, without = curve(found.sessions[0])
    assert with_us == without == [9_012, 9_705, 10_204, 11_003, 11_020]
    assert found.sessions[0].edits == ()


# With edits


def test_what_was_saved_before_counts_as_read_and_the_rest_as_growth(project: Project) -> None:
    """The third call follows an edit directly; the fourth call keeps that edit."""
    made = Proxied(ID).words("go").reply(written=100_000).reply(read=100_000, written=10_000)
    made.mask(115_000, 30_000).reply(read=8_000, written=22_000, saved=85_000)
    made.reply(read=30_000, written=4_000, saved=85_000).write(project)
    session = only(project)
    assert curve(session) == (
        [100_000, 110_000, 30_000, 34_000],
        [100_000, 110_000, 115_000, 119_000],
    )
    wanted = (
        dollars(cache_creation=100_000, output=100)
        + dollars(cache_read=100_000, cache_creation=10_000, output=100)
        + dollars(cache_read=110_000, cache_creation=5_000, output=100)
        + dollars(cache_read=115_000, cache_creation=4_000, output=100)
    )
    assert session.without_dollars == pytest.approx(wanted)
    spent = (
        dollars(cache_creation=100_000, output=100)
        + dollars(cache_read=100_000, cache_creation=10_000, output=100)
        + dollars(cache_read=8_000, cache_creation=22_000, output=100)
        + dollars(cache_read=30_000, cache_creation=4_000, output=100)
    )
    assert session.with_dollars == pytest.approx(spent)


def test_an_edit_after_the_cache_has_ended_saves_writing(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=100_000).later(cache_terms(MODEL).life + 1)
    made.mask(101_000, 20_000).reply(written=20_000, saved=81_000).write(project)
    wanted = dollars(cache_creation=100_000, output=100) + dollars(
        cache_creation=101_000, output=100
    )
    assert only(project).without_dollars == pytest.approx(wanted)


def test_a_pause_that_ends_the_cache_costs_more_without(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=100_000).mask(101_000, 20_000)
    made.reply(read=5_000, written=15_000, saved=81_000).later(3_000)
    made.reply(written=21_000, saved=81_000).write(project)
    wanted = (
        dollars(cache_creation=100_000, output=100)
        + dollars(cache_read=100_000, cache_creation=1_000, output=100)
        + dollars(cache_creation=102_000, output=100)
    )
    assert only(project).without_dollars == pytest.approx(wanted)


def test_a_result_that_went_to_a_file_would_have_been_written_once(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=10_000).result("[moved]", saved=40_000)
    made.reply(read=10_000, written=1_000, saved=40_000)
    made.reply(read=11_000, written=500, saved=40_000).write(project)
    session = only(project)
    wanted = (
        dollars(cache_creation=10_000, output=100)
        + dollars(cache_read=10_000, cache_creation=41_000, output=100)
        + dollars(cache_read=51_000, cache_creation=500, output=100)
    )
    assert session.without_dollars == pytest.approx(wanted)
    (edit,) = session.edits
    assert (edit.layer, edit.what, edit.call) == ("demote", "result moved to a file", 2)
    assert (edit.before - edit.after, edit.can_undo) == (40_000, False)


def test_a_result_that_is_only_kept_in_a_file_is_no_edit(project: Project) -> None:
    Proxied(ID).words("go").reply(written=10_000).result().reply(read=10_000).write(project)
    assert only(project).edits == ()


def test_the_cost_of_an_undo_counts_only_with_the_proxy(project: Project) -> None:
    """After an undo the server reads the history again, which would not have cost anything without
    the proxy.
    """
    made = Proxied(ID).words("go").reply(written=100_000).mask(101_000, 20_000)
    made.reply(read=5_000, written=15_000, saved=81_000).revert(3 + 1)
    made.reply(read=5_000, written=97_000).reply(read=102_000, written=10).write(project)
    session = only(project)
    wanted = (
        dollars(cache_creation=100_000, output=100)
        + dollars(cache_read=100_000, cache_creation=1_000, output=100)
        + dollars(cache_read=101_000, cache_creation=1_000, output=100)
        + dollars(cache_read=102_000, cache_creation=10, output=100)
    )
    assert session.without_dollars == pytest.approx(wanted)
    assert [(edit.seq, edit.is_undone) for edit in session.edits] == [(4, True)]


def test_a_session_that_is_no_longer_edited_is_read_again(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=100_000).mask(101_000, 20_000)
    made.reply(read=5_000, written=15_000, saved=81_000).note("left alone: refused")
    made.reply(read=5_000, written=97_000).write(project)
    wanted = (
        dollars(cache_creation=100_000, output=100)
        + dollars(cache_read=100_000, cache_creation=1_000, output=100)
        + dollars(cache_read=101_000, cache_creation=1_000, output=100)
    )
    assert only(project).without_dollars == pytest.approx(wanted)


def test_the_client_sends_no_more_than_the_window_takes(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=150_000).mask(160_000, 20_000)
    made.reply(written=20_000, saved=140_000).reply(read=20_000, written=9_000, saved=140_000)
    made.write(project)
    (session,) = StatusReader(window=165_000).status(project.logs()).sessions
    assert curve(session)[1] == [150_000, 160_000, 165_000]
    assert session.window == 165_000


def test_without_a_cache_everything_is_input(project: Project) -> None:
    made = Proxied(ID).words("go").reply(plain=50_000).mask(51_000, 9_000)
    made.reply(plain=9_000, saved=42_000).write(project)
    wanted = dollars(input=50_000, output=100) + dollars(input=51_000, output=100)
    assert only(project).without_dollars == pytest.approx(wanted)


# Requests of other purposes


def test_what_the_proxy_asks_is_paid_with_it_alone(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=10_000)
    made.reply(read=10_000, output=900, saved=None, purpose="summary").write(project)
    session = only(project)
    first = dollars(cache_creation=10_000, output=100)
    assert session.without_dollars == pytest.approx(first)
    assert session.with_dollars == pytest.approx(first + dollars(cache_read=10_000, output=900))
    assert len(session.turns) == 1


def test_what_the_client_asks_twice_is_paid_twice(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=10_000)
    made.reply(read=10_000, purpose="attempt").write(project)
    session = only(project)
    assert session.with_dollars == session.without_dollars
    assert session.with_dollars == pytest.approx(
        dollars(cache_creation=10_000, output=100) + dollars(cache_read=10_000, output=100)
    )
    assert len(session.turns) == 1


def test_replies_that_the_client_brought_cost_nothing(project: Project) -> None:
    made = Proxied(ID).words("go").reply(output=0).reply(written=10_000).write(project)
    assert made.exists()
    assert curve(only(project)) == ([10_000], [10_000])


def test_a_model_without_a_price_has_no_sum(project: Project) -> None:
    Proxied(ID, model="ollama-cloud/nobody-knows").words("go").reply(written=9).write(project)
    other = Proxied("20260101-090000-00000b").words("go").reply(written=10_000)
    other.write(project)
    found = status(project)
    assert [each.with_dollars is None for each in found.sessions] == [False, True]
    assert found.with_dollars == pytest.approx(dollars(cache_creation=10_000, output=100))


# What a session is


def test_client_title_and_reason(project: Project) -> None:
    made = Proxied(ID).words("<system-reminder>", source="instructions")
    made.words("Fix   the\ntests \x1b[31mnow").reply(written=9).summary(170_000, 20_000)
    made.mask(20_000, 18_000, count=1, trigger="with the summary")
    made.note("left alone: the server refused it").note("secret", topic="intent").write(project)
    session = only(project)
    assert (session.title, session.client) == ("Fix the tests now", "claude-cli/2.1.197")
    assert (session.model, session.protocol) == (MODEL, "messages")
    assert [(edit.what, edit.reason, edit.call) for edit in session.edits] == [
        ("summary of #1 to #2", "85%", 2),
        ("1 old result cleared", "with the summary", 2),
    ]
    assert [note.text for note in session.notes] == ["left alone: the server refused it"]


def test_a_title_that_the_user_gave_counts(project: Project) -> None:
    made = Proxied(ID).words("first").note("A better name", topic="title").words("second")
    made.write(project)
    assert only(project).title == "A better name"


def test_the_newest_session_comes_first_and_others_are_left_out(project: Project) -> None:
    for number in range(MAX_SESSIONS + 3):
        log = Proxied(f"20260101-08{number:04}-00000a").words("go").write(project)
        os.utime(log, (1000 + number, 1000 + number))
    Proxied("20260102-080000-00000c", client={}).words("not of the proxy").write(project)
    found = status(project)
    ids = [each.id for each in found.sessions]
    assert ids == sorted(ids, reverse=True)
    assert (len(ids), found.left_out) == (MAX_SESSIONS, 3)
    assert ids[0] == f"20260101-08{MAX_SESSIONS + 2:04}-00000a"


def test_calls_that_a_fork_has_copied_count_once(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=9_000).reply(read=9_000, written=100)
    made.write(project)
    fork = replace(made, id="20260101-090000-00000b", entries=made.entries[:-1])
    fork.reply(read=9_000, written=5_000).write(project)
    forked, first = status(project).sessions
    assert first.with_dollars == pytest.approx(
        dollars(cache_creation=9_000, output=100)
        + dollars(cache_read=9_000, cache_creation=100, output=100)
    )
    assert forked.with_dollars == pytest.approx(
        dollars(cache_read=9_000, cache_creation=5_000, output=100)
    )
    assert curve(forked)[0] == [9_000, 14_000]


# Reading


def test_only_new_lines_are_read(project: Project) -> None:
    made = Proxied(ID).words("go").reply(written=100_000)
    log, reader = made.write(project), StatusReader()
    assert reader.status([log]) is reader.status([log])
    assert len(reader.status([log]).sessions[0].calls) == 1
    before = made.last
    made.mask(101_000, 20_000).reply(written=20_000, saved=81_000).revert(before + 1)
    new = made.data(before)
    with log.open("ab") as file:  # an incomplete line is read when it is complete
        file.write(new[:-5])
        file.flush()
        assert [e.is_undone for e in reader.status([log]).sessions[0].edits] == [False]
        file.write(new[-5:])
    assert [e.is_undone for e in reader.status([log]).sessions[0].edits] == [True]
    assert reader.status([log]) == StatusReader().status([log])


def test_another_log_in_the_same_place_is_read_from_its_beginning(project: Project) -> None:
    log, reader = Proxied(ID).words("one").reply(written=9).write(project), StatusReader()
    assert reader.status([log]).sessions[0].title == "one"
    Proxied(ID).words("two").write(project)
    assert reader.status([log]).sessions[0].title == "two"


def test_lines_that_are_no_entries_are_passed_over(project: Project) -> None:
    log = Proxied(ID).words("go").reply(written=9_000).write(project)
    good = status(project)
    with log.open("ab") as file:
        file.write(b'\xff\n[]\n{"v": 1, "seq": 9, "at": "", "kind": "assistant"}\n{"torn')
    assert status(project) == good


def test_a_log_that_is_gone_or_too_large_is_left_out(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Proxied(ID).words("go").write(project)
    assert StatusReader().status([log.with_name("none")]) == ProxyStatus((), 1)
    monkeypatch.setattr("ctxagent.addons.proxy.status.MAX_READ_BYTES", 10)
    assert status(project) == ProxyStatus((), 1)


# The running proxy


def test_a_proxy_is_known_by_its_file_while_it_lives(tmp_path: Path) -> None:
    assert running_address(tmp_path) == ""
    file = tmp_path / RUNNING_NAME
    for text in ("", "[]", "{}", '{"pid": "x", "address": "y"}', '{"pid": 1e400, "address": ""}'):
        file.write_text(text)
        assert running_address(tmp_path) == "", text
    file.write_text(json.dumps({"pid": os.getpid(), "address": "http://127.0.0.1:1"}))
    assert running_address(tmp_path) == "http://127.0.0.1:1"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    file.write_text(json.dumps({"pid": dead.pid, "address": "http://127.0.0.1:1"}))
    assert running_address(tmp_path) == ""
