"""`ctxagent fleet run --config` with jobs of a real Slurm with one node."""

import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..support.command import PATIENCE, comes
from ..support.fleet import Fleet, paid_twice, tail, work
from ..support.server.loopback import Server
from ..support.slurm import needs_slurm, slurm

pytestmark = [
    needs_slurm,
    pytest.mark.skipif(not find_spec("parsl"), reason="the extra fleet is not installed"),
]
CONFIG = """\
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SimpleLauncher
from parsl.providers import SlurmProvider

config = Config(
    executors=[
        HighThroughputExecutor(
            address="127.0.0.1",
            max_workers_per_node=2,
            provider=SlurmProvider(
                "test", init_blocks=1, max_blocks=1, walltime="00:10:00", launcher=SimpleLauncher()
            ),
        )
    ],
)
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    (fleet.place.project / "slurm.py").write_text(CONFIG)
    yield fleet
    fleet.end()


def jobs(env: dict[str, str]) -> list[str]:
    """Return the waiting and running jobs."""
    asked = ["squeue", "--noheader", "--format=%i"]
    return subprocess.run(asked, env=env, capture_output=True, text=True).stdout.split()


def test_a_job_of_slurm_does_the_tasks_and_ends_with_its_fleet(fleet: Fleet) -> None:
    fleet.tasks(3)
    with slurm() as variables, Server(work) as server:
        env = {**fleet.place.server(server.url), **variables}
        process = fleet.start("--config", "slurm.py", env=env)
        assert comes(lambda: len(server.requests) > 0, PATIENCE)
        assert len(jobs(env)) == 1
        process.kill()
        tail(process)
        done = fleet.call("run", "--config", "slurm.py", env=env)
        assert done.returncode == 0, done.stderr
        assert comes(lambda: not jobs(env), PATIENCE), "each job ends with its fleet"
        assert list(paid_twice(fleet, server)) == []
    assert fleet.status()["done"] == 3
