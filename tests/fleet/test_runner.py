"""What starts when, and what each may cost. The attempts end as the tests say."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.fleet import runner
from ctxagent.agent.fleet.attempt import LOST, AttemptOrder
from ctxagent.agent.fleet.ledger import AttemptOutcome, FleetFolder, FleetLedger
from ctxagent.agent.fleet.manifest import Manifest
from ctxagent.agent.fleet.runner import MAX_LOSSES, FleetRun, RunLimits

End = Callable[[AttemptOrder], AttemptOutcome | Exception]


class Engine:
    """Ends an attempt when there is nothing more to start: the oldest first."""

    def __init__(self, end: End) -> None:
        self.end, self.orders = end, list[AttemptOrder]()
        self.most = 0  # at once
        self.open: list[tuple[AttemptOrder, Future[AttemptOutcome]]] = []

    def submit(self, order: AttemptOrder) -> "Future[AttemptOutcome]":
        future = _Waited(self)
        self.orders.append(order)
        self.open.append((order, future))
        self.most = max(self.most, len(self.open))
        return future

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
    """A future whose engine ends an attempt when somebody waits."""

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
    return FleetRun(Manifest(path), FleetLedger(FleetFolder.of(path)), engine, limits)


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


def test_a_task_has_its_own_budget_where_that_is_less(tmp_path: Path) -> None:
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


def test_a_share_that_was_too_small_goes_on_when_there_is_money(tmp_path: Path) -> None:
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
def test_what_was_lost_goes_on_in_its_session_but_not_for_ever(
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
    assert len(engine.orders) == 2 * MAX_LOSSES
    records = fleet_run._ledger.records.values()
    assert [record.state for record in records] == ["failed", "failed"]
    assert {record.outcome.kind for record in records if record.outcome} == {"killed"}


def test_cores_and_memory_that_a_task_needs_are_kept_for_it(
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


def test_a_manifest_that_changes_under_way_stops_it_when_all_have_ended(tmp_path: Path) -> None:
    def end(order: AttemptOrder) -> AttemptOutcome:
        (tmp_path / "tasks.jsonl").write_text("\n")
        return AttemptOutcome(exit_code=0)

    engine = Engine(end)
    fleet_run = made(tmp_path, engine, RunLimits(2), *[{}] * 9)
    with pytest.raises(UsageError, match="was changed where t2 stood"):
        fleet_run.run()
    states = [record.state for record in fleet_run._ledger.records.values()]
    assert states == ["done", "done"]
