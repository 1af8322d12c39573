"""Count refused requests over 150 calls in windows of 24,000, 60,000 and 200,000 tokens. The server
counts tokens differently from us, binds thinking to the preceding context, and requires the prompt
and the reserved reply to fit in the window.

The real command runs headless, with each given preset, over HTTP to the strict server of the tests.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure
from serving import environ

from ctxagent.tests.support.server.loopback import Server, uneven
from ctxagent.tests.support.server.mixture import Mixture

SPREAD = 0.4  # factors of our estimate from 0.8 to 1.4
SIZES: dict[str, dict[str, Any]] = {
    "full": {"calls": 150, "presets": ("default", "v5", "ctx-001", "anchored", "ledger")},
    "quick": {"calls": 60, "windows": (24_000, 60_000)},
    "tiny": {"calls": 3, "windows": (24_000,)},
}
MODEL = "claude-sonnet-5-5"


def run(calls: int, window: int, preset: str, seed: int) -> dict[str, float]:
    """Run one session to its end; return its figures. Raises CalledProcessError if it fails."""
    player, size_of = Mixture(calls, seed), uneven(SPREAD)
    server = Server(player, bound=True, strict=True, window=window, size_of=size_of)
    with tempfile.TemporaryDirectory() as folder, server:
        project = Path(folder) / "project"
        project.mkdir()
        command = [
            measure.COMMAND, "-p", "Count everything.", "--output-format", "json",
            "--permission-mode", "bypass", "--model", MODEL,
            "--context-window", str(window), "-c", f"compact.preset={preset}",
        ]  # fmt: skip
        started = time.perf_counter()
        done = subprocess.run(
            command, env=environ(folder, server.url), cwd=project, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        wall = time.perf_counter() - started
    compaction = json.loads(done.stdout)["compaction"]
    return {
        "calls": player.done,
        "cleared": compaction["microcompacted"],
        "summaries": compaction["summaries"],
        "rejected": len(server.rejected),
        "wall_s": wall,
    }


def main(
    calls: int,
    windows: Sequence[int] = (24_000, 60_000, 200_000),
    presets: Sequence[str] = ("default",),
) -> Iterator[measure.Table]:
    rows = {
        f"{window:,} tokens, {preset}": run(calls, window, preset, seed)
        for window in windows
        for seed, preset in enumerate(presets, 1)
    }
    yield measure.Table("strict windows", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
