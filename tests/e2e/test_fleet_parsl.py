"""`ctxagent fleet run --config`: a fleet with workers of Parsl, one of which is killed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..support.command import PATIENCE, comes
from ..support.fleet import (
    CALLS,
    PARSL_CONFIG,
    Fleet,
    logged_dollars,
    paid_twice,
    run_with_kills,
    tail,
    work,
)
from ..support.server.loopback import Say, Server

pytestmark = pytest.mark.skipif(
    not find_spec("parsl"), reason="the extra ctxagent[fleet] is not installed"
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, repositories=2)
    (fleet.place.project / "parsl.py").write_text(PARSL_CONFIG)
    yield fleet
    fleet.end()


def test_killed_worker_repeats_nothing(fleet: Fleet) -> None:
    fleet.tasks(4)
    with Server(work) as server:
        env = fleet.place.server(server.url)
        words = ("--config", "parsl.py")
        code, said = run_with_kills(fleet, server, ["worker"], *words, env=env)
        assert code == 0, said
        assert list(paid_twice(fleet, server)) == []
        assert server.rejected == []
    status = fleet.status()
    assert (status["done"], len(fleet.logs())) == (4, 4)
    assert status["cost_usd"] == pytest.approx(logged_dollars(fleet), abs=1e-6)
    assert len(server.requests) == 4 * (CALLS + 1)
    assert sum(task["starts"] for task in status["each"]) >= 5, "one was lost"
    assert not (fleet.place.project / "runinfo").exists()
    assert (fleet.folder.path / "parsl").is_dir()


@pytest.mark.full
def test_only_block_can_be_lost_repeatedly(fleet: Fleet) -> None:
    fleet.tasks(6)
    with Server(work) as server:
        env = fleet.place.server(server.url)
        words = ("--config", "parsl.py")
        code, said = run_with_kills(fleet, server, ["block"] * 2, *words, env=env)
        assert code == 0, said
        assert "outage: the workers are lost" in said
        assert "outage: over, executor works again" in said
        assert "\nfailed " not in said
        assert list(paid_twice(fleet, server)) == []
    status = fleet.status()
    assert (status["done"], {task["attempt"] for task in status["each"]}) == (6, {1})


def programs(fleet: Fleet, name: str) -> list[int]:
    """Return the processes of a fleet that belong to Parsl or to our wrapper program."""
    mark, found = str(fleet.place.root).encode(), list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_it = any(word.endswith(name.encode()) for word in words[:5])
            if is_it and any(mark in word for word in words):
                found.append(int(process.name))
    return found


@pytest.mark.full
def test_the_workers_end_with_their_fleet_and_agents_go_on(fleet: Fleet) -> None:
    fleet.tasks(2)
    steps = [Say(tools=[("Bash", {"command": "until test -e ../go; do sleep 0.1; done"})])] * 2
    with Server([*steps, *[Say("Done.")] * 2]) as server:
        env = fleet.place.server(server.url)
        process = fleet.start("--config", "parsl.py", "--jobs", "2", env=env)
        assert comes(lambda: len(server.requests) == 2, PATIENCE)
        assert programs(fleet, "process_worker_pool.py")
        process.kill()
        tail(process)
        assert comes(lambda: not programs(fleet, "process_worker_pool.py"), PATIENCE)
        assert len(programs(fleet, "pool_supervisor.py")) == 1
        assert len(fleet.agents()) == 2
        for log in fleet.logs():
            (Path(json.loads(log.read_text().splitlines()[0])["cwd"]).parent / "go").touch()
        assert comes(lambda: not fleet.agents(), PATIENCE)
        assert comes(lambda: not programs(fleet, "pool_supervisor.py"), PATIENCE)
        done = fleet.call("run", "--config", "parsl.py", env=env)
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 4
        assert list(paid_twice(fleet, server)) == []


def test_invalid_parsl_configuration_is_named(fleet: Fleet) -> None:
    fleet.tasks(1)
    env = fleet.place.environ({"ANTHROPIC_API_KEY": "test-key-1"})
    for text, why in (("config = 1", "no configuration called `config`"), ("1/0", "ZeroDivision")):
        (fleet.place.project / "parsl.py").write_text(text)
        done = fleet.call("run", "--config", "parsl.py", env=env)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--config parsl.py" in done.stderr
        assert why in done.stderr
