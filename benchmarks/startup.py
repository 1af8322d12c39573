"""Measure start-up in CPU and wall seconds, compared with an empty Python process.

`first paint` ends when the prompt of a REPL is shown in a pseudo-terminal; `first request` ends
when a loopback server has the complete request of `-p`. Both read the CPU clock of the process at
that moment. `one request` is the whole command, including the reply and the exit.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import measure
from serving import HELLO, answering, environ

FILES = 200  # of the git repository
SIZES: dict[str, dict[str, Any]] = {
    "full": {"runs": 11},
    "quick": {"runs": 3},
    "tiny": {"runs": 1, "names": ("-p, first request",)},
}
EMPTY = "empty python"


class Meter:
    """Meter of a command's CPU and wall seconds until its first request."""

    def __init__(self) -> None:
        self._known, self._started, self._pid = Event(), 0.0, 0
        self.used = (0.0, 0.0)

    def request(self) -> bytes:
        """Record the time of the first request and return the reply; the server calls it after each
        complete request.
        """
        self._known.wait()
        if self.used == (0.0, 0.0):
            self.used = measure.cpu_seconds_of(self._pid), time.perf_counter() - self._started
        return HELLO

    def run(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> measure.Measured:
        self._known.clear()
        self._started, self.used = time.perf_counter(), (0.0, 0.0)
        measure.run_command(command, env=env, cwd=cwd, began=self._began)
        return self.used

    def _began(self, pid: int) -> None:
        self._pid = pid
        self._known.set()


def main(runs: int, names: Sequence[str] = ()) -> Iterator[measure.Table]:
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder, answering(meter.request) as url:
        acts = {
            name: act
            for name, act in _acts(Path(folder), environ(folder, url), meter).items()
            if not names or name in names
        }
        rows = measure.medians(acts, runs=runs)
    if EMPTY in rows:
        for figures in rows.values():
            figures["x_empty"] = figures["cpu_s"] / rows[EMPTY]["cpu_s"]
    yield measure.Table("start-up", rows)


def _acts(
    folder: Path, env: dict[str, str], meter: Meter
) -> dict[str, Callable[[], measure.Measured]]:
    plain, work_tree = folder / "plain", folder / "repository"
    plain.mkdir()
    repository(work_tree)
    command = partial(_measure_command, env=env, cwd=plain)
    python, saying = [sys.executable, "-c"], [measure.COMMAND, "-p", "hello"]
    return {
        EMPTY: partial(command, [*python, "pass"]),
        "--version": partial(command, [measure.COMMAND, "--version"]),
        "--help": partial(command, [measure.COMMAND, "--help"]),
        "import of the REPL": partial(
            command, [sys.executable, "-c", "import ctxagent.agent.ui.repl.repl"]
        ),
        "import of anthropic": partial(command, [sys.executable, "-c", "import anthropic"]),
        "first paint of the REPL": partial(measure.first_paint, env=env, cwd=plain),
        "-p, first request": partial(meter.run, saying, env=env, cwd=plain),
        "-p, first request, in git": partial(meter.run, saying, env=env, cwd=work_tree),
        "-p, one request": partial(command, saying),
    }


def _measure_command(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path
) -> measure.Measured:
    used = measure.run_command(command, env=env, cwd=cwd)
    return used["cpu_s"], used["wall_s"]


def repository(folder: Path) -> None:
    for number in range(FILES):
        file = folder / f"part{number % 10}" / f"module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"def one() -> int:\n    return {number}\n" * 20)
    name = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*name, "commit", "-q", "-m", "All."]):
        subprocess.run(["git", *words], cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
