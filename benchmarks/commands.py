"""Measure the overhead of a command: CPU and wall milliseconds per Bash call, over 200 calls, in a
git repository, with the sandbox (if available) and without.

The real command runs headless, over HTTP to a loopback server in this process, whose CPU time is
not counted. Two runs alternate, with more and with fewer calls. The overhead is the difference of
their times (kernel accounting of the process and all its children), divided by the difference of
calls. So startup and shutdown are excluded.
"""

import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure
from serving import HELLO, answering, call, environ
from startup import repository

SIZES: dict[str, dict[str, Any]] = {
    "full": {"calls": (100, 300), "runs": 5},
    "quick": {"calls": (20, 100), "runs": 3},
    "tiny": {"calls": (1, 3), "runs": 1, "names": ("it changes a file",)},
}
COMMANDS = {
    "it changes a file": "echo {0} >> part1/module1.py",
    "it changes none": "sh -c 'echo {0}'",  # the command text does not show this
    "it reads": "echo {0}",
}
UNCONFINED = "it changes a file, no sandbox"


class Player:
    """Model that requests `left` commands, one after another."""

    def __init__(self) -> None:
        self.command, self.left = "", 0

    def __call__(self) -> bytes:
        self.left -= 1
        given = {"command": self.command.format(self.left)}
        return call(f"toolu_{self.left}", "Bash", given) if self.left >= 0 else HELLO


def used(
    folder: Path, player: Player, url: str, command: str, calls: int, options: Sequence[str]
) -> measure.Measured:
    """Return the CPU and wall seconds of a session with `calls` commands."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        work_tree = Path(place, "project")
        repository(work_tree)
        player.command, player.left = command, calls
        took = measure.run_command(
            [measure.COMMAND, "-p", "Run them.", "--permission-mode", "bypass", *options],
            env=environ(place, url),
            cwd=work_tree,
        )
    return took["cpu_s"], took["wall_s"]


def main(
    calls: tuple[int, int], runs: int, names: Sequence[str] = (*COMMANDS, UNCONFINED)
) -> Iterator[measure.Table]:
    player = Player()
    took: dict[tuple[str, int], list[measure.Measured]] = {}
    with tempfile.TemporaryDirectory() as folder, answering(player) as url:
        for _, name, many in itertools.product(range(runs), names, calls):
            command = COMMANDS.get(name, COMMANDS["it changes a file"])
            options = ("-c", "sandbox.mode=off") if name == UNCONFINED else ()
            seconds = used(Path(folder), player, url, command, many, options)
            took.setdefault((name, many), []).append(seconds)
    yield measure.Table("a command", {name: _each(name, calls, took) for name in names})


def _each(
    name: str, calls: tuple[int, int], took: dict[tuple[str, int], list[measure.Measured]]
) -> dict[str, float]:
    """Return the milliseconds per call, as the median over the pairs of runs."""
    fewer, more = (took[name, many] for many in calls)
    pairs = [
        [(b - a) * 1e3 / (calls[1] - calls[0]) for a, b in zip(*pair, strict=True)]
        for pair in zip(fewer, more, strict=True)
    ]
    cpu, wall = (statistics.median(each) for each in zip(*pairs, strict=True))
    return {"cpu_ms": cpu, "wall_ms": wall}


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
