"""The benchmark with other agents: a small agent in place of pi, directly and through our proxy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_peers import recording, small_agent

RUN = Path(__file__).parents[2] / "benchmarks" / "clients" / "run.py"


def played(agent: Path, *more: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, RUN, "--client", "codex=no-such-command", "--client", f"pi={agent}",
         "--calls", "5", "--bytes", "3000", *more],
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert "codex, " in done.stderr
    assert "skipped, there is no command no-such-command" in done.stderr
    rows = [json.loads(line)["rows"] for line in done.stdout.splitlines() if line[:1] == "{"]
    return rows[0]["pi"], done.stderr


def test_a_task_and_a_long_session_are_counted(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    figures, _ = played(agent, "--scenario", "task")
    assert figures["done"] == 1
    assert (figures["calls asked for"], figures["outputs that came back whole"]) == (3, 3)
    figures, _ = played(agent, "--scenario", "long")
    assert figures["done"] == 1
    assert (figures["requests"], figures["calls asked for"]) == (6, 5)
    assert figures["prompts, dollars"] > 0


def test_a_client_that_breaks_a_rule_is_reported(tmp_path: Path) -> None:
    figures, told = played(small_agent(tmp_path, forgets=True), "--scenario", "long")
    assert figures["done"] == 0
    assert figures["  refused by a rule"] == 1
    assert "pi, long: " in told


@pytest.mark.slow
def test_our_proxy_passes_bodies_unchanged(tmp_path: Path) -> None:
    figures, _ = played(small_agent(tmp_path), "--scenario", "long", "--bytes", "200", "--proxy")
    assert figures["done"] == 1
    assert figures["bodies of the client"] == figures["requests"] == 6
    assert figures["  that came on as they were"] == 6


def test_bodies_are_kept_on_request(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    played(small_agent(tmp_path), "--scenario", "long", "--capture", str(kept))
    rows = [json.loads(line) for line in (kept / "pi-long.jsonl").read_text().splitlines()]
    assert [row["path"] for row in rows] == ["/v1/messages"] * 6
    assert [len(row["body"]["messages"]) for row in rows] == [1, 4, 7, 10, 13, 16]


def test_the_long_session_can_be_a_recorded_one(tmp_path: Path) -> None:
    session = recording(tmp_path / "s.jsonl")
    figures, told = played(small_agent(tmp_path), "--scenario", "long", "--recording", str(session))
    assert "codex, long: skipped" in told
    assert figures["done"] == 1
    assert (figures["calls asked for"], figures["outputs that came back whole"]) == (4, 4)
