"""Compare four subagents in parallel with the same four in sequence.

The real command runs headless against the strict server of the tests. Each subagent calls the model
`calls` times, at `thinking` seconds each, and runs a command in between. `wall_s` is the time from
the first subagent request to the request with the last answer; `cpu_s` is that of the whole
command. `at_once` is the maximum number of concurrent subagent requests.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure
from serving import environ

from ctxagent.tests.support.server.loopback import Body, Say, Server
from ctxagent.tests.support.sessions.errands import kind_of

SIZES: dict[str, dict[str, Any]] = {
    "full": {"calls": 12, "thinking": 0.5},
    "quick": {"calls": 5, "thinking": 0.3},
    "tiny": {"calls": 2, "thinking": 0.02, "orders": ("side by side",)},
}
AGENTS = 4
ORDERS = {"one after another": 1, "side by side": AGENTS}  # Task calls per message


class Player:
    """Model that starts the subagents, `width` at a time, and plays them."""

    def __init__(self, width: int, calls: int, thinking: float) -> None:
        self.began, self.ended, self.answers = 0.0, 0.0, 0
        self.asked: list[float] = []  # times of subagent requests
        self._width, self._calls, self._thinking = width, calls, thinking
        self._given = 0

    def __call__(self, body: Body) -> Say:
        if kind_of(body) == "agent":
            return self._of_agent(body)
        self.answers = str(body["messages"]).count("My part is done.")
        if self._given == AGENTS:
            self.ended = time.perf_counter()
            return Say("All done.")
        errands = range(self._given, self._given + self._width)
        self._given += self._width
        return Say(tools=[("Task", _errand(number)) for number in errands])

    def _of_agent(self, body: Body) -> Say:
        self.asked.append(time.perf_counter())
        self.began = self.began or self.asked[0]
        done = sum(message["role"] == "assistant" for message in body["messages"])
        if done == self._calls - 1:
            return Say("My part is done.", deltas=1, pace=self._thinking)
        command = {"command": f"seq {1_000 + done}"}
        return Say(tools=[("Bash", command)], deltas=1, pace=self._thinking / 2)  # in two pieces

    def at_once(self) -> int:
        return max(
            sum(now - self._thinking < began <= now for began in self.asked) for now in self.asked
        )


def _errand(number: int) -> dict[str, str]:
    return {"description": f"part {number}", "prompt": f"Do part {number}.", "type": "general"}


def main(
    calls: int, thinking: float, orders: Sequence[str] = tuple(ORDERS)
) -> Iterator[measure.Table]:
    rows = {order: one(Player(ORDERS[order], calls, thinking)) for order in orders}
    slowest = max(row["wall_s"] for row in rows.values())
    for row in rows.values():
        row["x_wall"] = row["wall_s"] / slowest
    yield measure.Table("four subagents", rows)


def one(player: Player) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Server(player) as server:
        command = [measure.COMMAND, "-p", "Have it done.", "--permission-mode", "bypass"]
        used = measure.run_command(command, env=environ(folder, server.url), cwd=Path(folder))
        return {
            "wall_s": player.ended - player.began,
            "cpu_s": used["cpu_s"],
            "at_once": player.at_once(),
            "requests": len(server.requests),
            "lost": AGENTS - player.answers,
            "rejected": len(server.rejected),
        }


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
