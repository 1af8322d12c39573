"""A thousand calls through a window of 200,000 tokens, filled to its summary again and again: the
memory of the process, the largest in each hundred calls.

The real command, headless, against the strict server of the tests. Memory is looked at when a
request has come, so that what making it takes counts too. Each reply brings 2,000 tokens of text
that no mask takes away, and a call.
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
TEXT = "".join(map(LINE.format, range(100)))  # repeats nothing, or it would be stopped


class Player:
    """Asks for one call after another, and looks at who asks."""

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
        self.seen.append((measure.memory_of(self._pid), len(str(body["messages"]))))
        text = f"Part {len(self.seen)}. {TEXT}"  # no two alike, as in life
        return Say(text, tools=[("Bash", {"command": f"echo {len(self.seen)}"})])


def main(calls: int, window: int) -> Iterator[measure.Table]:
    player = Player(calls)
    with tempfile.TemporaryDirectory() as folder, Server(player, window=window) as server:
        command = [
            measure.COMMAND, "-p", "Run them all.", "--permission-mode", "bypass",
            "--context-window", str(window),
        ]  # fmt: skip
        env = environ(folder, server.url)
        used = measure.whole(command, env=env, cwd=Path(folder), began=player.began)
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
