"""Measure the scan for files that a command planted in a project: the first scan, and a later scan
after a command that made one file.

`folders_read` counts the folders whose entries were read again.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure

from ctxagent.agent.security import planted

SIZES: dict[str, dict[str, Any]] = {
    "full": {"folders": 5_000, "turns": 20},
    "quick": {"folders": 1_000, "turns": 5},
    "tiny": {"folders": 20, "turns": 1},
}
FILES = 10  # in each folder


def scan(watch: planted.PlantedWatch, made: Path | None = None) -> dict[str, float]:
    """Simulate one command, which may make a file; return the figures of the scan after it."""
    read = 0
    scandir = os.scandir

    def counted(path: str) -> Any:
        nonlocal read
        read += 1
        return scandir(path)

    watch.begin({}, unasked=False)
    if made:
        made.write_text("x")
    began = time.perf_counter()
    os.scandir = counted  # type: ignore[assignment]
    try:
        watch.end()
    finally:
        os.scandir = scandir
    return {"wall_ms": (time.perf_counter() - began) * 1e3, "folders_read": read}


def main(folders: int, turns: int) -> Iterator[measure.Table]:
    planted._CLOCK_TICK_NS = 0  # the tree was made long ago
    with tempfile.TemporaryDirectory() as name:
        places = [Path(name, f"a{number % 50}", f"b{number}") for number in range(folders)]
        for place in places:
            place.mkdir(parents=True)
            for number in range(FILES):
                (place / f"{number}.py").touch()
        watch = planted.PlantedWatch(Path(name))
        began = time.perf_counter()
        watch.begin({}, unasked=False)
        first = {"wall_ms": (time.perf_counter() - began) * 1e3}
        watch.end()
        rows = [scan(watch, places[turn] / "new.py") for turn in range(turns)]
        later = {key: sorted(row[key] for row in rows)[turns // 2] for key in rows[0]}
        yield measure.Table("a scan for planted files", {"first": first, "later": later})


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
