"""Scheduling: when tasks start and how much each may cost. The test decides how attempts end."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.fleet import runner
from ctxagent.addons.fleet.attempt import LOST
from ctxagent.addons.fleet.ledger import AttemptOutcome, FleetFolder, FleetLedger, read_records
from ctxagent.addons.fleet.live import RunNotes
from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.addons.fleet.orders import AttemptOrder
from ctxagent.addons.fleet.outages import DISK, SERVER, Breaker, OutageRules
from ctxagent.addons.fleet.runner import RETRIES, FleetRun, RunLimits, RunObserver
from ctxagent.agent.errors import UsageError

End = Callable[[AttemptOrder], AttemptOutcome | Exception]
LOSSES = RETRIES["killed"] + 1


class Clock:
    """A clock that only advances by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class ExecutorLost(Exception):
    """Stand-in for Parsl's error for all tasks of a lost executor."""


class Engine:
    """Engine that ends the oldest attempt whenever nothing more can start."""

    def __init__(self, end: End) -> None:
        self.end, self.orders = end, list[AttemptOrder]()
        self.most = 0  # at once
        self.open: list[tuple[AttemptOrder, Future[AttemptOutcome]]] = []
        self.renewed: list[bool] = []  # whether the executor could be built again
        self.clock = Clock()

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]":
        future = _Waited(self)
        self.orders.append(order)
        self.open.append((order, future))
        self.most = max(self.most, len(self.open))
        return future

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, ExecutorLost)

    def renew(self) -> None:
        self.renewed.append(True)

    def close(self) -> None:
        pass

    def end_oldest(self) -> None:
        order, future = self.open.pop(0)
        outcome = self.end(order)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class _Waited(Future[AttemptOutcome]):
    """A future whose engine ends an attempt when it is waited for."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine


@pytest.fixture(autouse=True)
def _waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wait = runner.wait

    def ending(futures: Any, **options: Any) -> Any:
        if not any(future.done() for future in futures):
            next(iter(futures)).engine.end_oldest()
        return wait(futures, **options)

    monkeypatch.setattr(runner, "wait", ending)
    return


def made(tmp_path: Path, engine: Engine, limits: RunLimits, *tasks: dict[str, Any]) -> FleetRun:
    lines = [{"id": f"t{n}", "prompt": "x", "dir": "r", **task} for n, task in enumerate(tasks)]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return FleetRun(
        Manifest(path),
        FleetLedger(FleetFolder.of(path)),
        engine,
        limits,
        clock=engine.clock,
        sleep=engine.clock.sleep,
    )


def costing(dollars: float) -> End:
    return lambda order: AttemptOutcome(exit_code=0, cost_usd=dollars)


def test_no_more_than_the_jobs_run_at_once_and_all_are_done(tmp_path: Path) -> None:
    engine = Engine(costing(0))
    first = made(tmp_path, engine, RunLimits(3), *[{}] * 10)
    first.run()
    assert (engine.most, len(engine.orders)) == (3, 10)
    first._ledger.close()
    made(tmp_path, engine, RunLimits(3), *[{}] * 11).run()
    assert [order.task.id for order in engine.orders[10:]] == ["t10"]


def test_shares_never_pass_the_budget(tmp_path: Path) -> None:
    given = list[float]()

    def end(order: AttemptOrder) -> AttemptOutcome:
        given.append(sum(each.dollars or 0 for each, _ in engine.open) + (order.dollars or 0))
        return AttemptOutcome(exit_code=0, cost_usd=0.3)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(4, dollars=2.0), *[{}] * 20)
    fleet_run.run()
    assert fleet_run.ended == "budget"
    assert fleet_run.dollars <= 2.0
    assert len(engine.orders) == 6, "a seventh would pass it"
    assert max(given) <= 2.0
    assert engine.orders[0].dollars == 0.5
    assert all(order.is_share for order in engine.orders)


def test_a_smaller_own_budget_of_a_task_applies(tmp_path: Path) -> None:
    engine = Engine(costing(0.01))
    made(tmp_path, engine, RunLimits(2, dollars=10.0), {"budget_usd": 0.5}, {}).run()
    assert [(order.dollars, order.is_share) for order in engine.orders] == [
        (0.5, False),
        (9.5, True),
    ]
    engine = Engine(costing(0.01))
    (tmp_path / "b").mkdir()
    made(tmp_path / "b", engine, RunLimits(2), {"budget_usd": 0.5}, {}).run()
    assert [order.dollars for order in engine.orders] == [0.5, None]


def test_a_task_with_a_small_share_continues_when_there_is_budget(tmp_path: Path) -> None:
    def end(order: AttemptOrder) -> AttemptOutcome:
        if order.task.id == "t0" and order.attempt == 1:
            return AttemptOutcome(exit_code=4, kind="fleet budget", cost_usd=0.5)
        return AttemptOutcome(exit_code=0, cost_usd=0.6 if order.task.id == "t0" else 0.01)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(2, dollars=2.0), {}, {}, {})
    fleet_run.run()
    ids = [(order.task.id, order.attempt) for order in engine.orders]
    assert ids == [("t0", 1), ("t1", 1), ("t2", 1), ("t0", 2)]
    assert engine.orders[0].session == engine.orders[3].session
    assert fleet_run.dollars == pytest.approx(0.62)


@pytest.mark.parametrize(
    "lost", [AttemptOutcome(exit_code=-9, kind=LOST), RuntimeError("the worker is gone")]
)
def test_lost_attempts_continue_in_their_session_a_limited_number_of_times(
    tmp_path: Path, lost: AttemptOutcome | Exception
) -> None:
    losses = iter([lost] * 2)
    engine = Engine(lambda order: next(losses, AttemptOutcome(exit_code=0)))
    made(tmp_path, engine, RunLimits(1), {}).run()
    assert len({(order.session, order.attempt) for order in engine.orders}) == 1
    assert len(engine.orders) == 3
    (tmp_path / "b").mkdir()
    engine = Engine(lambda order: lost)
    fleet_run = made(tmp_path / "b", engine, RunLimits(1), {}, {})
    fleet_run.run()
    assert len(engine.orders) == 2 * LOSSES
    records = fleet_run._ledger.records.values()
    assert [record.state for record in records] == ["failed", "failed"]
    assert {record.outcome.kind for record in records if record.outcome} == {"killed"}


def test_cores_and_memory_are_reserved_for_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "machine_memory_mb", lambda: 1_000)
    alone = {"cores": 9}
    large, small = {"memory_mb": 600}, {"memory_mb": 200}
    for limits, tasks, most in [
        (RunLimits(4), [{"cores": 2}] * 6, 2),
        (RunLimits(4), [alone] * 3, 1),
        (RunLimits(4), [large] * 3, 1),
        (RunLimits(4), [large, small, small], 2),
        (RunLimits(4, is_local=False), [large, alone, large], 3),
    ]:
        engine = Engine(costing(0))
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        made(folder, engine, limits, *tasks).run()
        assert (engine.most, len(engine.orders)) == (most, len(tasks))


def test_after_an_interrupt_nothing_more_starts(tmp_path: Path) -> None:
    def end(order: AttemptOrder) -> AttemptOutcome:
        fleet_run.interrupt()
        return AttemptOutcome(exit_code=0)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(2), *[{}] * 9)
    fleet_run.run()
    assert (len(engine.orders), fleet_run.ended) == (2, "interrupted")
    assert fleet_run._ledger.folder.stop_file.exists()


def test_a_manifest_changed_during_a_run_stops_it_after_running_attempts(tmp_path: Path) -> None:
    def end(order: AttemptOrder) -> AttemptOutcome:
        (tmp_path / "tasks.jsonl").write_text("\n")
        return AttemptOutcome(exit_code=0)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(2), *[{}] * 9)
    with pytest.raises(UsageError, match=r"the line of t2 in .* has changed"):
        fleet_run.run()
    states = [record.state for record in fleet_run._ledger.records.values()]
    assert states == ["done", "done"]


def states(fleet_run: FleetRun) -> dict[str, str]:
    return {id: record.state for id, record in fleet_run._ledger.records.items()}


def down(cause: str, **more: Any) -> AttemptOutcome:
    return AttemptOutcome(exit_code=5, kind="unreachable", cause=cause, message="down", **more)


@pytest.mark.parametrize("cause", [SERVER, DISK])
def test_an_outage_in_the_middle_costs_no_task_an_attempt(tmp_path: Path, cause: str) -> None:
    seen = list[bool]()
    engine = Engine(
        lambda order: (
            down(cause)
            if len(engine.orders) > 3 and engine.clock.now < 180
            else AttemptOutcome(exit_code=0)
        )
    )
    fleet_run = made(tmp_path, engine, RunLimits(4), *[{}] * 30)
    notes = list[tuple[str, ...]]()

    def see(breaker: Breaker) -> None:
        seen.append(breaker.is_open)
        found = RunNotes.read(fleet_run._ledger.folder)
        assert found is not None
        notes.append(tuple(outage.cause for outage in found.outages))

    fleet_run._observer = RunObserver(outage=see)
    fleet_run.run()
    assert notes == [(cause,)] * (len(seen) - 1) + [()]
    assert set(states(fleet_run).values()) == {"done"}
    assert len(states(fleet_run)) == 30
    assert 180 < engine.clock.now < 400
    tries = len(engine.orders) - 30
    assert tries < 20, "a few probes, not every task again and again"
    assert seen[-1] is False
    assert seen[:-1] == [True] * (len(seen) - 1)


def test_while_a_cause_fails_one_probe_runs_at_a_time_with_growing_pauses(tmp_path: Path) -> None:
    began = list[float]()

    def end(order: AttemptOrder) -> AttemptOutcome:
        began.append(engine.clock.now)
        return down(SERVER)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(8, outages=OutageRules(longest=2_000)), *[{}] * 9)
    fleet_run.run()
    assert fleet_run.ended == "outage"
    times = list(dict.fromkeys(began))
    assert began.count(0.0) == 9, "those that ran, and one before the second failure"
    pauses = [round(after - before) for before, after in pairwise(times)]
    assert pauses[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert max(pauses) == 300
    assert set(states(fleet_run).values()) == {"stopped"}
    assert fleet_run._failed == 0


def test_an_unshared_failure_is_retried_and_then_counts(tmp_path: Path) -> None:
    engine = Engine(
        lambda order: down(SERVER) if order.task.id == "t1" else AttemptOutcome(exit_code=0)
    )
    limits = RunLimits(2, retries={"unreachable": 3})
    fleet_run = made(tmp_path, engine, limits, *[{}] * 40)
    observed = fleet_run._observer = RunObserver()
    observed.ended = lambda order, outcome, again: engine.clock.sleep(1)
    fleet_run.run()
    found = states(fleet_run)
    assert (found.pop("t1"), set(found.values())) == ("failed", {"done"})
    assert sum(order.task.id == "t1" for order in engine.orders) == 1 + 1 + 3
    outcome = fleet_run._ledger.records["t1"].outcome
    assert outcome is not None
    assert (outcome.kind, outcome.cause) == ("unreachable", "")


def test_a_lost_executor_is_built_again_and_no_loss_counts(tmp_path: Path) -> None:
    losses = list[int]()

    def end(order: AttemptOrder) -> AttemptOutcome | Exception:
        if len(losses) < 6 * 8 and engine.clock.now < 40:
            losses.append(1)
            return ExecutorLost("the block is gone")
        return AttemptOutcome(exit_code=0)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(8), *[{}] * 60)
    fleet_run.run()
    assert len(losses) >= 8
    assert engine.renewed
    assert list(states(fleet_run).values()) == ["done"] * 60
    assert {record.attempt for record in fleet_run._ledger.records.values()} == {1}


def test_outages_of_own_servers_are_independent(tmp_path: Path) -> None:
    own = {"settings": {"model.base_url": "http://127.0.0.1:1"}}
    tasks = [own if n % 3 == 0 else {} for n in range(12)]
    engine = Engine(
        lambda order: down(SERVER) if order.task.has_own_model else AttemptOutcome(exit_code=0)
    )
    limits = RunLimits(3, outages=OutageRules(longest=60))
    fleet_run = made(tmp_path, engine, limits, *tasks)
    fleet_run.run()
    found = states(fleet_run)
    assert fleet_run.ended == "outage"
    assert sum(state == "done" for state in found.values()) == 8
    assert "failed" not in found.values()


def test_the_number_of_retries_depends_on_the_kind_of_failure(tmp_path: Path) -> None:
    failed = AttemptOutcome(exit_code=1, kind="error", message="why")
    engine = Engine(lambda order: failed)
    fleet_run = made(tmp_path, engine, RunLimits(1, retries={"error": 2}), {})
    fleet_run.run()
    assert [order.attempt for order in engine.orders] == [1, 2, 3]
    assert states(fleet_run) == {"t0": "failed"}
    assert engine.clock.now >= 1.5, "with pauses"
    fleet_run._ledger.close()
    ends = iter([failed, AttemptOutcome(exit_code=0)])
    (tmp_path / "b").mkdir()
    engine = Engine(lambda order: next(ends))
    fleet_run = made(tmp_path / "b", engine, RunLimits(1, retries={"error": 2}), {})
    fleet_run.run()
    assert states(fleet_run) == {"t0": "done"}
    assert fleet_run._failed == 0


def test_the_cost_of_a_killed_agent_counts_before_its_task_continues(
    tmp_path: Path,
) -> None:
    lost = AttemptOutcome(exit_code=None, kind=LOST, cost_usd=0.4)
    losses = iter([lost] * 2)
    engine = Engine(lambda order: next(losses, AttemptOutcome(exit_code=0, cost_usd=0.4)))
    made(tmp_path, engine, RunLimits(1, dollars=1.0), {}).run()
    assert [order.dollars for order in engine.orders] == pytest.approx([1.0, 0.6, 0.6])


def test_an_agent_left_by_an_earlier_run_keeps_its_share(tmp_path: Path) -> None:
    engine = Engine(costing(0.1))
    fleet_run = made(tmp_path, engine, RunLimits(1, dollars=1.0), {}, {})
    line = fleet_run._manifest.lines["t0"]
    fleet_run._ledger.begin("t0", line.digest, "s", 1, share=0.7)
    fleet_run._ledger.close()
    engine = Engine(costing(0.1))
    made(tmp_path, engine, RunLimits(4, dollars=1.0), {}, {}).run()
    assert [order.dollars for order in engine.orders] == pytest.approx([0.7, 0.1])


def test_a_run_waits_while_the_disk_of_the_ledger_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(costing(0))
    fleet_run = made(tmp_path, engine, RunLimits(2), *[{}] * 3)
    sync, failed = os.fsync, list[int]()

    def full(fd: int) -> None:
        if engine.orders and engine.clock.now < 5:
            failed.append(fd)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(fd)

    monkeypatch.setattr(os, "fsync", full)
    fleet_run.run()
    assert failed
    assert list(states(fleet_run).values()) == ["done"] * 3
    assert read_records(fleet_run._ledger.folder) == fleet_run._ledger.records


@pytest.mark.parametrize(
    ("messages", "begun", "ended"),
    [
        (["no model m"] * 30, 3, "canary"),
        (["no model m", "too long", *["no model m"] * 28], 30, ""),
        (["no model m", "", *["no model m"] * 28], 30, ""),
    ],
)
def test_no_more_tasks_start_after_the_first_ones_failed_for_one_cause(
    tmp_path: Path, messages: list[str], begun: int, ended: str
) -> None:
    def end(order: AttemptOrder) -> AttemptOutcome:
        message = messages[int(order.task.id[1:])]
        return AttemptOutcome(exit_code=1, kind="rejected" if message else "", message=message)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(8, canary=None), *[{}] * 30)
    fleet_run.run()
    assert (len(engine.orders), fleet_run.ended) == (begun, ended)


def test_a_short_run_has_no_canary_unless_it_is_wanted(tmp_path: Path) -> None:
    def end(order: AttemptOrder) -> AttemptOutcome:
        return AttemptOutcome(exit_code=1, kind="rejected", message="no")

    engine = Engine(end)
    made(tmp_path, engine, RunLimits(8, canary=None), *[{}] * 20).run()
    assert len(engine.orders) == 20
    engine = Engine(end)
    (tmp_path / "b").mkdir()
    fleet_run = made(tmp_path / "b", engine, RunLimits(8, canary=2), *[{}] * 20)
    fleet_run.run()
    assert (len(engine.orders), fleet_run.waiting) == (2, 18)
