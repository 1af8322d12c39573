"""Measure the memory of the process over a thousand calls in a window of 200,000 tokens that is
filled and summarized repeatedly: the maximum in each hundred calls.

The real command runs headless against the strict server of the tests. Memory is read when a request
arrives, so building the request is included. Each reply has a call and 2,000 tokens of text that no
mask removes.
"""

import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
from serving import SUMMARY, environ

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.tests.support.server.loopback import Say, Server

SIZES: dict[str, dict[str, Any]] = {
    "full": {"calls": 1_000, "window": 200_000},
    "quick": {"calls": 120, "window": 200_000},
    "tiny": {"calls": 12, "window": 20_000},
}
BUCKETS = 10
LINE = "{}: the quick brown fox jumps over the lazy dog and runs away again.\n"
TEXT = "".join(map(LINE.format, range(100)))  # without repetition, which would stop the reply


class Player:
    """Model that requests one call after another and reads the memory of the client process."""

    def __init__(self, calls: int) -> None:
        self._pid, self._known = 0, threading.Event()
        self.calls, self.summaries = calls, 0
        self.seen: list[tuple[float, int]] = []  # MB, and characters of the messages

    def began(self, pid: int) -> None:
        self._pid = pid
        self._known.set()

    def __call__(self, body: dict[str, Any]) -> Say:
        self._known.wait()
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(SUMMARY)
        if len(self.seen) == self.calls:
            return Say("All done.")
        self.seen.append((measure.resident_mb_of(self._pid), len(str(body["messages"]))))
        text = f"Part {len(self.seen)}. {TEXT}"  # distinct, as in real sessions
        return Say(text, tools=[("Bash", {"command": f"echo {len(self.seen)}"})])


def main(calls: int, window: int) -> Iterator[measure.Table]:
    player = Player(calls)
    with tempfile.TemporaryDirectory() as folder, Server(player, window=window) as server:
        command = [
            measure.COMMAND, "-p", "Run them all.", "--permission-mode", "bypass",
            "--context-window", str(window),
        ]  # fmt: skip
        env = environ(folder, server.url)
        used = measure.run_command(command, env=env, cwd=Path(folder), began=player.began)
    size = calls // BUCKETS
    rows = {}
    for start in range(0, size * BUCKETS, size):
        part = player.seen[start : start + size]
        rows[f"calls {start + 1:,} to {start + size:,}"] = {
            "MB": max(memory for memory, _ in part),
            "prompt_kB": max(length for _, length in part) / 1e3,
        }
    yield measure.Table("memory of the process", rows)
    most = [row["MB"] for row in rows.values()]
    half = BUCKETS // 2
    yield measure.Table(
        "memory of a long session",
        {
            f"{calls:,} calls": {
                "peak_MB": used["peak_MB"],
                "growth_MB": max(most[half:]) - max(most[:half]),
                "cpu_s": used["cpu_s"],
                "summaries": player.summaries,
                "rejected": len(server.rejected),
            }
        },
    )


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
