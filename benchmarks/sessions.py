"""Measure many sessions: finding their logs, the first rows of a list, and all rows; and the picker
of the real command in a pseudo-terminal: from the key to its first rows, until all can be searched,
and from a search to the resumed session.

Each log begins with 30 kB of system prompt and tools and has 20 to 60 entries; one log in a hundred
has 5 MB.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import measure
import pexpect
import pyte
from serving import environ

from ctxagent.agent.session.entries import Assistant, End, Entry, Session, ToolResult, User
from ctxagent.agent.session.listing import CATALOGUE_NAME as CATALOGUE
from ctxagent.agent.session.listing import SessionRow, session_rows
from ctxagent.agent.session.log import LOG_NAME, Log
from ctxagent.agent.session.store import Project

SIZES: dict[str, dict[str, Any]] = {
    "full": {"sessions": 5_000, "runs": 5},
    "quick": {"sessions": 500, "runs": 1},
    "tiny": {"sessions": 25, "runs": 1},
}
LARGE = 100  # one log in LARGE is large
PAGE = 20
WORDS = (Path(__file__).parent / "README.md").read_text().split()


def main(sessions: int, runs: int) -> Iterator[measure.Table]:
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder) / "project"
        cwd.mkdir()
        env = environ(folder, "http://127.0.0.1:9")
        project = Project(Path(env["CTXAGENT_STATE_DIR"]), cwd)
        size = _fill(project, sessions)
        logs = project.logs()
        found = [*session_rows(logs)]
        assert len(found) == sessions
        assert all(row.title and row.last and row.branch for row in found)
        figures = {
            "finding the logs": _seconds(project.logs, runs),
            f"the first {PAGE} rows": _seconds(lambda: [*islice(session_rows(logs), PAGE)], runs),
            "all rows, of which none is kept": _seconds(lambda: _forgotten(project), runs),
            "all rows": _seconds(lambda: [*session_rows(logs)], runs),
            "one by its id": _seconds(lambda: project.find_log(found[-1].id), runs),
            "`sessions list`": _seconds(lambda: _listed(env, cwd), runs),
        }
        picked = [_picked(env, cwd, found[-1], sessions) for _ in range(runs)]
        figures |= {name: min(each[name] for each in picked) for name in picked[0]}
    table = {name: {"wall_s": seconds} for name, seconds in figures.items()}
    yield measure.Table(f"{sessions:,} sessions, {size / 1e6:,.0f} MB", table)


def _seconds(act: Callable[[], object], runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - started)
    return best


def _forgotten(project: Project) -> list[SessionRow]:
    (project.folder / CATALOGUE).unlink(missing_ok=True)  # exists only for many sessions
    return [*session_rows(project.logs())]


def _listed(env: dict[str, str], cwd: Path) -> None:
    subprocess.run(
        [measure.COMMAND, "sessions", "list"], env=env, cwd=cwd, check=True, capture_output=True
    )


def _picked(env: dict[str, str], cwd: Path, oldest: SessionRow, sessions: int) -> dict[str, float]:
    """Return the seconds of each step in the picker, until the oldest session is resumed."""
    child = pexpect.spawn(
        measure.COMMAND, cwd=str(cwd), env={**env, "TERM": "xterm-256color"}, dimensions=(40, 100)
    )
    screen = pyte.Screen(100, 40)
    stream = pyte.ByteStream(screen)

    def until(seen: str) -> float:
        while not re.search(seen, "\n".join(screen.display)):
            stream.feed(child.read_nonblocking(65_536, timeout=20))
        return time.perf_counter()

    until("% full")
    started = time.perf_counter()
    child.send("/resume\r")
    painted = until(rf"search:(.*\n){{{PAGE}}}.* kB")
    whole = until(rf"{sessions:,} *\n")
    asked = time.perf_counter()
    child.send(oldest.id)
    found = until("1 of")
    child.send("\r")
    opened = until("resumed")
    child.send("/quit\r")
    child.expect(pexpect.EOF)
    child.close()
    return {
        "picker: first rows painted": painted - started,
        "picker: all can be found": whole - started,
        "picker: the oldest found": found - asked,
        "picker: session resumed": opened - found,
    }


def _fill(project: Project, sessions: int) -> int:
    """Write the logs; return their size in bytes."""
    chance, total = random.Random(7), 0
    tools = [{"name": f"Tool{n}", "description": "x" * 1_000} for n in range(27)]
    for number in range(sessions):
        path = project.folder / "sessions" / f"20261101-{number:06}-{number:06x}" / LOG_NAME
        log = Log(path)
        for entry in _entries(chance, str(project.cwd), tools, path.parent.name, number):
            log.append(entry)
        log.close()
        os.utime(path, (1.79e9 + number, 1.79e9 + number))
        total += path.stat().st_size
    return total


def _entries(
    chance: random.Random, cwd: str, tools: list[dict[str, object]], id: str, number: int
) -> list[Entry]:
    def words(count: int) -> str:
        return " ".join(chance.choices(WORDS, k=count))

    found: list[Entry] = [
        Session(id=id, cwd=cwd, branch=f"topic/{number % 97}", version="0", model="m",
                system="s" * 3_000, tools=tools),
        User(content=words(20)),
        User(content=words(50), source="environment"),
        User(content=words(300), source="instructions"),
    ]  # fmt: skip
    result = "r" * (170_000 if number % LARGE == 0 else 2_500)
    for call in range(chance.randrange(8, 28)):
        use = {"type": "tool_use", "id": f"t{call}", "name": "Bash", "input": {"command": "ls"}}
        said = {"type": "text", "text": words(12)}
        found.append(Assistant(content=[said, use], usage={}, stop_reason="tool_use", model="m"))
        found.append(ToolResult(tool_use_id=f"t{call}", content=result))
    done = {"type": "text", "text": words(60)}
    found.append(Assistant(content=[done], usage={}, stop_reason="end_turn", model="m"))
    return [*found, End(status="ok")]


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
