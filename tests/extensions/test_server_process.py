"""Server processes: their streams, their end, and the sandbox around them."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxagent.agent.config.start_gate import Enclose
from ctxagent.agent.extensions.server_process import ExitInfo, run_server
from ctxagent.tools.system.spawn import Enclosed

from ..support.command import gone
from ..support.starts import cleared

ECHO = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
print("walrus", file=sys.stderr, flush=True)
for line in sys.stdin:
    print(line.upper(), end="", flush=True)
"""


def reporting(command: Sequence[str]) -> Enclosed:
    """A sandbox that uses stdin for its reports, so that the command has no stdin."""
    script = 'echo up >&0; (exec "$@" </dev/null)'
    return Enclosed(["/bin/sh", "-c", script, "sh", *command], reports=True)


@pytest.mark.parametrize("enclose", [None, reporting])
def test_a_server_answers_and_ends_with_its_child_processes(
    tmp_path: Path, enclose: Enclose | None
) -> None:
    exit_info = ExitInfo()

    async def scene() -> list[int]:
        async with run_server(
            cleared([sys.executable, "-c", ECHO], tmp_path, os.environ, enclose), exit_info
        ) as server:  # fmt: skip
            pids = [int(pid) for pid in (await server.stdout.readline()).split()]
            server.stdin.write(b"herring\n")
            assert await server.stdout.readline() == b"HERRING\n"
        return pids

    assert gone(*asyncio.run(scene()))
    assert exit_info.stderr_reason == "walrus"


def test_a_server_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])

    async def scene() -> None:
        with pytest.raises(OSError, match="it cannot be started"):
            async with run_server(cleared(["walrus\0"], tmp_path, os.environ), ExitInfo()):
                pass

    asyncio.run(scene())
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_too_many_messages_are_counted() -> None:
    async def scene() -> int:
        exit_info, count = ExitInfo(), 1
        while not exit_info.count_unrequested():
            count += 1
        assert "messages in a minute" in exit_info.reason
        return count

    assert asyncio.run(scene()) == 10_001
