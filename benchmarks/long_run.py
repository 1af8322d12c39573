"""Measure the cost of 400 Bash calls with 12 kB of output each in a window of 200,000 tokens: with
old results cleared, and with summaries only.

The real command runs headless, over HTTP to the strict server of the tests, which refuses requests
that break an API rule or do not fit. Costs are the charges of a caching server for prompts, in
tokens at the price of uncached input.
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
from serving import SUMMARY, environ

from ctxagent.addons.replay.cache_prices import CacheBill, PromptCache
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.models.catalog import cache_terms
from ctxagent.tests.support.server.loopback import Say, Server

WINDOW = 200_000
SIZES: dict[str, dict[str, Any]] = {
    "full": {"calls": 400},
    "quick": {"calls": 400},
    "tiny": {"calls": 2, "policies": ("default",)},
}
MODEL = "claude-sonnet-5"  # cache reads cost a tenth of plain input
TERMS = cache_terms(MODEL)
OUTPUT = "yes '{}: the quick brown fox jumps over the lazy dog, again and again' | head -c 12000"
PLAIN = "summaries only"
POLICIES = {
    "default": (),
    PLAIN: ("-c", "clear.when=off", "-c", "move.above=off"),
}


class Player:
    """Model that requests one command after another and adds up the cost of the prompts."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.done, self.peak, self.cache, self.bill = 0, 0, PromptCache(TERMS.life), CacheBill()

    def __call__(self, body: dict[str, Any]) -> Say:
        bill = self.cache.charge(body)
        self.bill += bill
        self.peak = max(self.peak, bill.written + bill.read + bill.plain)
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            return Say(SUMMARY)
        if self.done == self.calls:
            return Say("All done.")
        self.done += 1
        text = f"Command {self.done} comes from a script, not from a model."
        return Say(text, tools=[("Bash", {"command": OUTPUT.format(self.done)})])


def run(calls: int, options: tuple[str, ...]) -> dict[str, float]:
    """Run one session to its end; return its figures. Raises CalledProcessError if it fails."""
    player = Player(calls)
    with tempfile.TemporaryDirectory() as folder, Server(player, window=WINDOW) as server:
        project = Path(folder) / "project"
        project.mkdir()
        command = [
            measure.COMMAND, "-p", "Run them all.", "--output-format", "json",
            "--permission-mode", "bypass", "--model", MODEL,
            "--context-window", str(WINDOW), *options,
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
        "peak": player.peak,
        "cleared": compaction["microcompacted"],
        "summaries": compaction["summaries"],
        "cost": player.bill.relative(TERMS),
        "rejected": len(server.rejected),
        "wall_s": wall,
    }


def main(calls: int, policies: Sequence[str] = tuple(POLICIES)) -> Iterator[measure.Table]:
    rows = {name: run(calls, POLICIES[name]) for name in policies}
    if PLAIN in rows:
        for row in rows.values():
            row["ratio"] = row["cost"] / rows[PLAIN]["cost"]
    yield measure.Table("a long run", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
