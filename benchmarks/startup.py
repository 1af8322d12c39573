"""Start-up: CPU and wall seconds until something is there, beside an empty Python process.

`first paint` is what a REPL in a pseudo-terminal has used when its prompt is there, `first request`
what `-p` has used when a server on loopback has the whole of its request; both by the CPU clock of
the process at that moment. `one request` is the whole command, with the reply and its end.
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
    """What a command had used when its first request was there."""

    def __init__(self) -> None:
        self._known, self._started, self._pid = Event(), 0.0, 0
        self.used = (0.0, 0.0)

    def request(self) -> bytes:
        """Told by the server when it has the whole request; the reply to it."""
        self._known.wait()
        if self.used == (0.0, 0.0):
            self.used = measure.used_by(self._pid), time.perf_counter() - self._started
        return HELLO

    def run(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> measure.Measured:
        self._known.clear()
        self._started, self.used = time.perf_counter(), (0.0, 0.0)
        measure.whole(command, env=env, cwd=cwd, began=self._began)
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
    whole = partial(_used, env=env, cwd=plain)
    python, saying = [sys.executable, "-c"], [measure.COMMAND, "-p", "hello"]
    return {
        EMPTY: partial(whole, [*python, "pass"]),
        "--version": partial(whole, [measure.COMMAND, "--version"]),
        "--help": partial(whole, [measure.COMMAND, "--help"]),
        "import of the REPL": partial(
            whole, [sys.executable, "-c", "import ctxagent.agent.ui.repl.repl"]
        ),
        "import of anthropic": partial(whole, [sys.executable, "-c", "import anthropic"]),
        "first paint of the REPL": partial(measure.first_paint, env=env, cwd=plain),
        "-p, first request": partial(meter.run, saying, env=env, cwd=plain),
        "-p, first request, in git": partial(meter.run, saying, env=env, cwd=work_tree),
        "-p, one request": partial(whole, saying),
    }


def _used(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> measure.Measured:
    used = measure.whole(command, env=env, cwd=cwd)
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
