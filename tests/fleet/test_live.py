"""The live view of a fleet: its content, and the amount of data it reads."""

from pathlib import Path

import pytest

from ctxagent.addons.fleet.ledger import AttemptOutcome
from ctxagent.addons.fleet.live import ASKING, OutageNote, Pace, RunNotes
from ctxagent.agent.session.entries import Entry

from ..support.running_fleet import RESULT, RunningFleet, calling


def test_a_refresh_shows_activities_and_progress(tmp_path: Path) -> None:
    fleet = RunningFleet(tmp_path, said="No.")
    RunNotes(1_000.0, 0.25, 1).write(fleet.folder)
    fleet.say(calling("make test"))
    live = fleet.live()
    view = live.refresh()
    assert (view.counts["failed"], view.counts["running"], view.counts["waiting"]) == (1, 1, 8)
    assert (view.finished, view.tasks, view.dollars, view.calls) == (1, 10, 0.75, 4)
    assert (view.dollars_per_hour, view.seconds_left) == (None, None)
    (worker,) = view.workers
    assert (worker.id, worker.activity, worker.calls) == ("t1", "Bash make test", 1)
    (end,) = view.ended
    assert (end.id, end.state, end.why) == ("t0", "failed", "error: No.")
    fleet.say(RESULT)
    assert live.refresh().workers[0].activity == ASKING
    fleet.ledger.end("t1", "s1", 1, AttemptOutcome(1.25, exit_code=0))
    fleet.now += 100
    view = live.refresh()
    assert (view.finished, view.workers, view.dollars) == (2, [], 1.5)
    assert view.dollars_per_hour == pytest.approx(3_600 * 1.25 / 100)
    assert view.seconds_left == pytest.approx(8 * 100)
    assert [end.id for end in view.ended] == ["t1", "t0"]


def test_a_fleet_whose_run_has_ended_has_no_pace_and_no_workers(tmp_path: Path) -> None:
    fleet = RunningFleet(tmp_path)
    RunNotes(1_000.0, 0.0, 0, (OutageNote("server", "dead", 900.0, 1_100.0),)).write(fleet.folder)
    fleet.is_running = False
    view = fleet.live().refresh()
    assert (view.counts["stopped"], view.counts["running"]) == (1, 0)
    assert (view.workers, view.outages, view.dollars_per_hour) == ((), (), None)


def test_a_refresh_reads_only_new_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ctxagent.addons.fleet import live, summary

    fleet, read = RunningFleet(tmp_path), list[bytes]()
    parse = summary.try_parse_entry

    def parsed(line: bytes) -> Entry | None:
        read.append(line)
        return parse(line)

    monkeypatch.setattr(summary, "try_parse_entry", parsed)
    monkeypatch.setattr(live, "try_parse_entry", parsed)
    fleet.say(*[calling("true"), RESULT] * 50)
    summary.count_from_logs(fleet.ledger.records.values(), fleet.folder)
    fleet.say(calling("make"))
    read.clear()
    looking = fleet.live()
    assert looking.refresh().workers[0].activity == "Bash make"
    assert looking.refresh().calls == 3 + 51
    fleet.say(RESULT)
    read.clear()
    looking.refresh()
    looking.refresh()
    assert len(read) == 1


def test_the_pace_is_that_of_the_last_minutes() -> None:
    pace = Pace()
    for minute in range(60):
        pace.add(60.0 * minute, 1.0 if minute < 40 else 1.0 + 0.5 * (minute - 39), minute)
    assert pace.dollars_per_hour == pytest.approx(30.0)
    assert pace.seconds_left(10) == pytest.approx(600.0)
