"""Parsl as an engine: which errors mean a lost executor, and how executors are replaced."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ctxagent.addons.fleet.ledger import FleetFolder
from ctxagent.addons.fleet.parsl_engine import ParslEngine

CONFIG = """\
from parsl.config import Config
from parsl.executors.threads import ThreadPoolExecutor

config = Config(executors=[ThreadPoolExecutor(label=name) for name in ("a", "b")], strategy="none")
"""

pytestmark = pytest.mark.skipif(
    not find_spec("parsl"), reason="the extra ctxagent[fleet] is not installed"
)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ParslEngine]:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the engine changes
    (tmp_path / "parsl.py").write_text(CONFIG)
    engine = ParslEngine(tmp_path / "parsl.py", FleetFolder(tmp_path / "tasks.fleet"))
    yield engine
    engine.close()


def test_executors_that_are_given_up_are_replaced_again_and_again(engine: ParslEngine) -> None:
    executors = engine._kernel.executors
    before = executors["b"]
    for label, new in (("a", "a-renewed-1"), ("a-renewed-1", "a-renewed-2")):
        engine.renew()
        executors[label].bad_state_is_set = True
        engine.renew()
        assert label not in executors
        assert new in executors
    assert executors["b"] is before


def test_a_lost_worker_is_not_a_lost_executor(engine: ParslEngine) -> None:
    from parsl.executors.high_throughput.errors import ManagerLost, WorkerLost

    assert not engine.is_lost(WorkerLost(1, "here"))
    assert engine.is_lost(ManagerLost(b"m", "here"))
