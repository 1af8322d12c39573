"""The ledger: started attempts, outcomes, and recovery after a kill in the middle of a line."""

import os
from pathlib import Path

import pytest

from ctxagent.addons.fleet.ledger import (
    AttemptOutcome,
    FleetFolder,
    FleetLedger,
    SessionSums,
    bill,
    read_records,
)
from ctxagent.agent.errors import RecordError, UsageError

ENDED = AttemptOutcome(exit_code=0, cost_usd=0.25, calls=3)


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    return FleetFolder.of(tmp_path / "tasks.jsonl")


def test_records_are_read_back(folder: FleetFolder) -> None:
    ledger = FleetLedger(folder)
    ledger.begin("a", "d1", "s1", 1)
    ledger.end("a", "s1", 1, ENDED)
    ledger.begin("b", "d2", "s2", 1)
    ledger.end(
        "b", "s2", 1, AttemptOutcome(exit_code=4, kind="limit", message="too much", cost_usd=1.0)
    )
    ledger.retry("b")
    ledger.begin("b", "d2", "s2", 2)
    ledger.begin("b", "d2", "s2", 2)
    ledger.end("b", "s2", 2, AttemptOutcome(exit_code=0, cost_usd=1.5))
    ledger.begin("c", "d3", "s3", 1)
    ledger.begin("c", "d4", "s4", 1)
    assert read_records(folder) == ledger.records
    ledger.close()
    records = read_records(folder)
    assert list(records) == ["a", "b", "c"]
    assert [each.state for each in records.values()] == ["done", "done", "running"]
    assert (records["b"].attempt, records["b"].starts) == (2, 3)
    assert records["a"].outcome == ENDED
    assert bill(records.values()) == 0.25 + 1.5
    assert records["c"].sums == {"s3": SessionSums(), "s4": SessionSums()}
    assert records["b"].sums == {"s2": SessionSums(cost_usd=1.5)}
    assert records["a"].total("calls") == 3


def test_the_outcome_is_kept_until_the_task_continues(folder: FleetFolder) -> None:
    ledger = FleetLedger(folder)
    ledger.begin("a", "d1", "s1", 1)
    ledger.end(
        "a",
        "s1",
        1,
        AttemptOutcome(exit_code=1, kind="error", message="why", cost_usd=0.5, calls=3),
    )
    record = ledger.records["a"]
    assert (record.state, record.outcome and record.outcome.message) == ("failed", "why")
    ledger.retry("a")
    assert (record.state, record.outcome, record.has_ended) == ("stopped", None, True)
    ledger.begin("a", "d2", "s2", 1)
    ledger.end("a", "s2", 1, AttemptOutcome(exit_code=0, cost_usd=0.25, calls=2))
    assert (record.total("calls"), record.cost_usd) == (5, 0.75)
    assert read_records(folder) == ledger.records
    ledger.close()


@pytest.mark.slow
def test_a_partial_line_is_removed_and_invalid_lines_are_skipped(
    folder: FleetFolder,
) -> None:
    ledger = FleetLedger(folder)
    ledger.begin("a", "d1", "s1", 1)
    ledger.end("a", "s1", 1, ENDED)
    ledger.close()
    whole = folder.ledger.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        folder.ledger.write_bytes(whole[:end])
        assert read_records(folder)["a"].state == "running"
        ledger = FleetLedger(folder)
        assert ledger.records["a"].state == "running"
        ledger.end("a", "s1", 1, ENDED)
        ledger.close()
        assert folder.ledger.read_bytes().count(b"\n") == 2
        assert read_records(folder)["a"].state == "done"
    folder.ledger.write_bytes(b'[1]\n{"event": "ended", "task": "z"}\n{}\n\xff\n' + whole)
    assert list(read_records(folder)) == ["a"]


def test_only_one_process_can_open_the_ledger(folder: FleetFolder) -> None:
    ledger = FleetLedger(folder)
    with pytest.raises(UsageError, match=f"another process \\(pid {os.getpid()}\\)"):
        FleetLedger(folder)
    ledger.close()
    FleetLedger(folder).close()


def test_an_unwritable_ledger_is_named(folder: FleetFolder) -> None:
    folder.path.mkdir()
    folder.ledger.mkdir()
    with pytest.raises(RecordError, match=r"ledger\.jsonl"):
        FleetLedger(folder)
    with pytest.raises(RecordError, match=r"ledger\.jsonl"):
        read_records(folder)
