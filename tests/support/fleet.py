"""A fleet as a user runs it: small repositories, a manifest, the real command, and checks of the
server, the logs and the ledger.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ctxagent.addons.fleet.ledger import FleetFolder
from ctxagent.agent.session.entries import Assistant, User
from ctxagent.agent.session.log import Entries
from ctxagent.agent.session.totals import Totals

from .command import PATIENCE, Place, alive, comes
from .server.loopback import Body, Say, Server

BYPASS = ("--permission-mode", "bypass")
IDENTITY = ("-c", "user.name=T", "-c", "user.email=t@example.com")
CALLS = 2  # calls that an agent makes before it answers
PARSL_CONFIG = """\
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

config = Config(
    executors=[
        HighThroughputExecutor(
            address="127.0.0.1",
            max_workers_per_node=2,
            heartbeat_period=1,
            heartbeat_threshold=10,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
    ],
)
"""


def work(body: Body) -> Say:
    """Reply with two calls that change files, then with an answer."""
    replies = sum(message["role"] == "assistant" for message in body["messages"])
    if replies < CALLS:
        return Say(f"Step {replies}.", tools=[("Bash", {"command": f"echo {replies} >> made.txt"})])
    return Say("All done.")


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; return its output."""
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(folder: Path, *, text: str = "hello\n") -> str:
    """Create a repository with one commit; return the commit."""
    folder.mkdir(parents=True)
    (folder / "read.me").write_text(text)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


class Fleet:
    """A manifest `tasks.jsonl` in the project of a place, next to repositories."""

    def __init__(self, root: Path, *, repositories: int = 1) -> None:
        self.place = Place(root)
        self.folder = FleetFolder.of(self.place.project / "tasks.jsonl")
        for number in range(repositories):
            repository(self.place.project / f"r{number}")
        self.repositories = repositories

    def write(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Write the manifest."""
        lines = "".join(json.dumps(task) + "\n" for task in tasks)
        (self.place.project / "tasks.jsonl").write_text(lines)

    def tasks(self, count: int, **more: Any) -> None:
        """Write a manifest of `count` tasks over all repositories."""
        self.write(
            [
                {"id": f"t{n}", "prompt": f"Task {n}.", "dir": f"r{n % self.repositories}", **more}
                for n in range(count)
            ]
        )

    def scripted(self, script: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the option for a model that plays a script."""
        path = self.place.root / "script.json"
        path.write_text(json.dumps(script))
        return ("-c", f"model.id=scripted:{path}")

    def call(
        self, *words: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run `ctxagent fleet COMMAND tasks.jsonl …` to its end."""
        return self.place.run(*BYPASS, "fleet", words[0], "tasks.jsonl", *words[1:], env=env)

    def start(self, *words: str, env: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Start a run."""
        return self.place.start(
            *BYPASS, "fleet", "run", "tasks.jsonl", *words, env=env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        """Return the output of `fleet status --json`."""
        found: dict[str, Any] = json.loads(self.call("status", "--json").stdout)
        return found

    def agents(self) -> list[int]:
        """Return the process IDs of running agents."""
        found = []
        for lock in self.folder.path.glob("tasks/*/*/lock"):
            pid = lock.read_text().partition(" ")[0]
            if pid and alive(int(pid)):
                found.append(int(pid))
        return found

    def logs(self) -> list[Path]:
        """Return the logs of all sessions."""
        return sorted(self.folder.path.glob("**/sessions/*/log.jsonl"))

    def end(self) -> None:
        """Kill all running agents."""
        for pid in self.agents():
            os.killpg(pid, signal.SIGKILL)


def logged_dollars(fleet: Fleet) -> float:
    """Return the dollars recorded in all logs."""
    totals = [Totals() for _ in fleet.logs()]
    for log, total in zip(fleet.logs(), totals, strict=True):
        for entry in Entries(log):
            total.add(entry)
    return sum(total.all.cost_usd or 0.0 for total in totals)


def paid_twice(fleet: Fleet, server: Server) -> Iterator[str]:
    """Yield a message for each turn that began twice, and for each request that was repeated
    although its reply was recorded. A reply that was cut off does not count and may be requested
    again.
    """
    newest = {digest: number for number, digest in enumerate(server.digests, 1)}
    for log in fleet.logs():
        entries = list(Entries(log))
        turns = sum(isinstance(entry, User) and entry.begins_turn for entry in entries)
        if turns != 1:
            yield f"{log}: {turns} turns"
        replies = [e for e in entries if isinstance(e, Assistant) and e.purpose != "attempt"]
        asked = Counter(str(reply.request.get("sha256")) for reply in replies)
        yield from (f"{log}: {digest} is there twice" for digest, n in asked.items() if n > 1)
        for reply in replies:
            number = int((reply.message_id or "msg_0").rpartition("_")[2])
            if newest.get(str(reply.request.get("sha256"))) != number:
                yield f"{log}: {reply.message_id} was asked for again"


def tail(process: "subprocess.Popen[str]") -> str:
    """Wait for the end of a process; return its output."""
    out, err = process.communicate(timeout=PATIENCE)
    return out + err


def parent_of(process: int) -> int | None:
    """Return the parent of a process, such as the worker that started an agent."""
    try:
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def run_with_kills(
    fleet: Fleet,
    server: Server,
    aims: Sequence[str],
    *words: str,
    env: Mapping[str, str],
    seed: int = 1,
) -> tuple[int, str]:
    """Run a fleet to its end and kill each aim after some more requests: "fleet" (restarted),
    "agent", or the Parsl "worker" or "block" that started an agent. Return the exit code and the
    last output.
    """
    chance = random.Random(seed)
    process = fleet.start(*words, env=env)

    def reached(requests: int) -> bool:
        return len(server.requests) >= requests or process.poll() is not None

    for aim in aims:
        asked = len(server.requests) + chance.randint(1, 4)
        comes(partial(reached, asked), 120)
        if aim == "fleet":
            process.kill()
            tail(process)
            process = fleet.start(*words, env=env)
            continue
        while not (agents := fleet.agents()) and process.poll() is None:
            time.sleep(0.01)
        victim = chance.choice(agents) if agents else None
        for _ in range({"worker": 1, "block": 2}.get(aim, 0)):
            victim = parent_of(victim) if victim is not None else None
        if victim is not None and victim not in (1, process.pid):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
    said = tail(process)
    return process.returncode, said
