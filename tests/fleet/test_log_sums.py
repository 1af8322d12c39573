"""The sums of running sessions from their logs, and the cost of reading them."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.fleet.ledger import FleetFolder, FleetLedger, SessionSums
from ctxagent.addons.fleet.summary import CACHE_NAME, count_from_logs
from ctxagent.agent.session.entries import Assistant, Entry, ToolResult
from ctxagent.agent.session.log import encode_line


def lines(*entries: Entry) -> bytes:
    at = "2026-11-21T22:40:58.123Z"
    return b"".join(encode_line(replace(entry, seq=n, at=at)) for n, entry in enumerate(entries, 1))


REPLY = Assistant(
    content=[], usage={"input": 10, "output": 2}, stop_reason="end_turn", model="m", cost_usd=0.5
)
RESULT = ToolResult(tool_use_id="1", content="x")


class Fleet:
    """A ledger with running tasks, each with a log."""

    def __init__(self, root: Path, *, tasks: int = 1, running: int = 1) -> None:
        self.folder = FleetFolder.of(root / "tasks.jsonl")
        ledger = FleetLedger(self.folder)
        self.logs = []
        for n in range(tasks):
            log = self.folder.state / "projects" / f"p{n}" / "sessions" / f"s{n}" / "log.jsonl"
            if n < running:
                log.parent.mkdir(parents=True)
                log.write_bytes(lines(REPLY, RESULT))
                ledger.begin(f"t{n}", "d", f"s{n}", 1, str(log))
                self.logs.append(log)
        ledger.close()
        self.records = ledger.records

    def sums(self) -> list[SessionSums]:
        count_from_logs(self.records.values(), self.folder)
        return [record.sums[record.session] for record in self.records.values()]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the list of parsed lines."""
    from ctxagent.addons.fleet import summary

    found, parse = list[bytes](), summary.try_parse_entry

    def parsed(line: bytes) -> Any:
        found.append(line)
        return parse(line)

    monkeypatch.setattr(summary, "try_parse_entry", parsed)
    return found


def test_only_appended_lines_are_read(tmp_path: Path, read: list[bytes]) -> None:
    fleet = Fleet(tmp_path)
    (log,) = fleet.logs
    once = SessionSums(0.5, calls=1, tool_calls=1, tokens=12)
    assert fleet.sums() == [once]
    assert len(read) == 2
    assert fleet.sums() == [once]
    assert len(read) == 2
    with log.open("ab") as file:
        file.write(lines(REPLY) + b'{"v": 1, "torn')
    assert fleet.sums() == [SessionSums(1.0, calls=2, tool_calls=1, tokens=24)]
    assert len(read) == 3
    (fleet.folder.path / CACHE_NAME).write_text('{"of": 1}')
    assert fleet.sums() == [SessionSums(1.0, calls=2, tool_calls=1, tokens=24)]
    log.unlink()
    log.write_bytes(lines(RESULT))
    assert fleet.sums() == [SessionSums(tool_calls=1)]


def test_a_moved_log_is_found_by_one_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, tasks=9, running=9)
    for n, log in enumerate(fleet.logs[3:]):
        other = tmp_path / "tasks.fleet" / "state" / "projects" / f"other{n}" / "sessions"
        other.mkdir(parents=True)
        log.parent.rename(other / log.parent.name)
    for record in list(fleet.records.values())[:6]:
        kept = fleet.folder.task(record.id, record.session)
        kept.path.mkdir(parents=True)
        kept.stderr.touch()
    scans, scandir = Counter[str](), os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scans.update([str(path)]) or scandir(path))
    calls = [sums.calls for sums in fleet.sums()]
    assert calls == [1] * 6 + [0] * 3, "the last three have not started"
    assert max(scans.values()) == 1


def test_looking_costs_a_few_calls_for_each_task_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, tasks=2_000, running=50)
    fleet.sums()
    calls, stat = list[Any](), os.stat
    monkeypatch.setattr(
        os, "stat", lambda *given, **more: (calls.append(given), stat(*given, **more))[1]
    )
    fleet.sums()
    assert 0 < len(calls) <= 4 * 50
