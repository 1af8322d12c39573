"""Measure the cost of five MCP servers with 120 tools and 50 calls of ten of them: through the one
fixed tool, with all tools in the list from the start, and the same work without servers.

The real command runs headless, over HTTP to the strict server of the tests, which binds thinking:
it refuses a request whose prefix has changed. Costs are the charges of a caching server.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure
from serving import environ

from ctxagent.addons.replay.cache_prices import CacheBill, PromptCache
from ctxagent.agent.models.catalog import cache_terms
from ctxagent.tests.support.server.loopback import Say, Server

PLAIN = Path(__file__).resolve().parents[1] / "tests" / "support" / "mcp" / "plain.py"
SERVERS = ("tickets", "wiki", "deploys", "metrics", "mail")
SIZES: dict[str, dict[str, Any]] = {
    "full": {"calls": 50},
    "quick": {"calls": 20},
    "tiny": {"calls": 5},
}
MODEL = "claude-sonnet-5-5"
TERMS = cache_terms("claude-sonnet-5")  # cache reads cost a tenth
DOLLARS_PER_TOKEN = 3e-6  # of plain input
NONE, FIXED, START = "no servers", "the one tool", "in the list from the start"
CALLS_OF_A_TOOL = 5
ANSWER = "a line of the record that was asked for, with what stands in it\n" * 20


class Player:
    """Model that calls ten tools in turn, each several times; it first searches for each tool if
    necessary.
    """

    def __init__(self, calls: int, variant: str) -> None:
        self.steps = list(self._steps(calls, variant))
        self.cache, self.bill, self.first = PromptCache(TERMS.life), CacheBill(), 0

    def _steps(self, calls: int, variant: str) -> Iterator[tuple[str, dict[str, Any]]]:
        found = set[str]()
        kinds = max(1, calls // len(SERVERS) // CALLS_OF_A_TOOL)
        for number in range(calls):
            server = SERVERS[number % len(SERVERS)]
            kind = number // len(SERVERS) % kinds
            name = f"mcp__{server}__read_kind{kind}"
            given = {"owner": "me", "name": f"r{number}", "text": ANSWER}
            if variant == NONE:
                yield "Bash", {"command": f"printf '%s' '{number}: {ANSWER}'"}
                continue
            if variant != START and name not in found:
                found.add(name)
                yield "Mcp", {"query": f"{server} record kind{kind}"}
            if variant == FIXED:
                yield "Mcp", {"tool": name, "arguments": given}
            else:
                yield name, given

    def __call__(self, body: dict[str, Any]) -> Say:
        bill = self.cache.charge(body)
        self.bill += bill
        self.first = self.first or bill.prompt
        if not self.steps:
            return Say("All done.")
        return Say("Next.", thinking="And the next.", tools=[self.steps.pop(0)])


def run(calls: int, variant: str) -> dict[str, float]:
    """Run one session to its end; return its figures. Raises CalledProcessError if it fails."""
    player = Player(calls, variant)
    with tempfile.TemporaryDirectory() as folder, Server(player, bound=True) as server:
        project = Path(folder) / "project"
        project.mkdir()
        env = environ(folder, server.url)
        if variant != NONE:
            configure(Path(env["HOME"]), Path(folder) / "notes")
        load = ("-c", f"mcp.load_at_start={json.dumps(SERVERS)}") if variant == START else ()
        command = [
            measure.COMMAND, "-p", "Read them all.", "--permission-mode", "bypass",
            "--model", MODEL, *load,
        ]  # fmt: skip
        subprocess.run(
            command, env=env, cwd=project, check=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return {
        "first_tokens": player.first,
        "tokens": player.bill.prompt,
        "hit_share": player.bill.read / player.bill.prompt,
        "misses": player.bill.misses,
        "dollars": player.bill.relative(TERMS) * DOLLARS_PER_TOKEN,
        "rejected": len(server.rejected),
    }


def configure(home: Path, notes: Path) -> None:
    """Write the servers to the user's MCP configuration."""
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(PLAIN), "catalog", str(notes)],
    }
    path = home / ".config" / "ctxagent" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"mcpServers": dict.fromkeys(SERVERS, server)}))


def main(calls: int, variants: Sequence[str] = (NONE, FIXED, START)) -> Iterator[measure.Table]:
    rows = {variant: run(calls, variant) for variant in variants}
    for row in rows.values():
        row["more_first"] = row["first_tokens"] - rows[NONE]["first_tokens"]
    yield measure.Table("tools of MCP servers", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
