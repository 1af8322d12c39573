"""Random edits of the context between turns, against a strict server of each protocol.

The sessions have parallel calls, thinking and subagents. Edits are undone, and sessions resumed,
forked, rewound, and killed in the middle of a turn or an edit. No request is refused, and what was
dropped is found.
"""

import asyncio
import random
import time
from collections.abc import Coroutine
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from ctxagent import Agent
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import CompactionFailed, UsageError
from ctxagent.agent.events import CallStarted, Event
from ctxagent.agent.session.entries import Assistant, End, Entry, Usage
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import Project

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.server.wires import Wire, over_each_wire

RECORD = (
    "## Session Intent\nCount.\n\n## Key Decisions\n1. Estimate.\n\n"
    "## Current State\nPhase: counting\n\n## Next Steps\n1. Count on.\n"
)
MAX_ERROR = 0.03  # of the price shown before a call
MODE = "bypass"
WAYS = ("resume", "fork", "rewind", "kill", "kill")  # to leave a session and go on


class Player:
    """Edits one session after the other, each a copy of the one before or that one again."""

    def __init__(self, folder: Path, wire: Wire, seed: int, leaving: float = 0.2) -> None:
        self.random, self.leaving = random.Random(seed), leaving
        self.place = Place(folder)
        self.server = wire(self.reply, bound=wire is Server)
        self.env = self.place.environ(self.server.variables)
        self.project = Project(self.place.state, self.place.project)
        self.edits = self.turns = self.children = self.kills = 0
        self.ways: list[str] = []

    async def open(self, session: str = "", *, fork: bool = False) -> None:
        self.events: list[Event] = []
        self.agent = Agent(
            self.place.project,
            environ=self.env,
            resume=session or False,
            fork=fork,
            on_event=self.events.append,
            settings={"permissions.mode": MODE},
        )
        await self.agent.open()

    @property
    def log(self) -> Path:
        return self.agent.state.log.path

    def entries(self) -> list[Entry]:
        return read_log(self.log).entries

    def reply(self, request: Body) -> Say:
        last = request["messages"][-1]["content"]
        blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
        if "tools" not in request or is_summary_question(str(blocks[-1].get("text", ""))):
            return Say(RECORD)
        is_child = "Task" not in [tool["name"] for tool in request["tools"]]
        if any(block["type"] == "tool_result" for block in blocks):
            self.children += is_child
            return Say("Counted. " + "It was long. " * self.random.randint(1, 8), thinking="So.")
        calls: list[Any] = [
            ("Bash", {"command": f"seq {start} {start + 300}"})
            for start in self.random.sample(range(90), self.random.randint(1, 3))
        ]
        if not is_child and self.random.random() < 0.2:
            given = {"description": "count apart", "prompt": "Count too.", "type": "general"}
            calls.insert(self.random.randint(0, len(calls)), ("Task", given))
        return Say("I count.", thinking="Let me count.", tools=calls)

    def words(self) -> str:
        self.turns += 1
        return f"Count {self.turns}. " + "Carefully. " * 9

    async def say(self) -> None:
        """Run a turn. The tokens that were shown for its first call are what the server counts."""
        before, started = self.agent.state.log.last_seq, len(self.calls())
        result = await self.agent.run(self.words())
        assert result.status == "ok", result
        assert self.server.rejected == []
        expected = self.calls()[started].tokens
        replies = (e for e in self.entries() if isinstance(e, Assistant) and e.purpose == "turn")
        counted = Usage.from_json(next(e for e in replies if e.seq > before).usage).prompt
        assert abs(expected - counted) <= MAX_ERROR * counted

    def calls(self) -> list[CallStarted]:
        return [e for e in self.events if isinstance(e, CallStarted)]

    def messages(self) -> Any:
        """Return the messages of the next request. A view in a new process equals the live one."""
        made = [
            build_request(view, model="m", max_tokens=1_000).messages
            for view in (self.agent.state.view, fold(self.entries()))
        ]
        assert made[0] == made[1]
        return made[0]

    async def edit(self) -> None:
        """Make one random edit, and sometimes undo it."""
        edits, pick = self.agent.context, self.random.choice
        items, before = edits.items(), self.messages()
        refs = [item.ref for item in items if item.can_drop]
        masked = [item.ref for item in items if item.can_restore]
        every = [item.ref for item in items]
        acts: list[Coroutine[Any, Any, Any]] = [
            edits.drop(self.random.sample(refs, min(len(refs), self.random.randint(1, 3)))),
            edits.restore([pick(masked)] if masked else []),
            edits.compact(pick(every), pick(every)),
            edits.compact(before=pick(every)),
            edits.undo(),
        ]
        chosen = self.random.choices(acts, weights=(6, 4, 2, 1, 2))[0]
        for act in acts:
            if act is not chosen:
                act.close()
        last = self.agent.state.log.last_seq
        try:
            planned = await edits.plan_undo() if chosen is acts[-1] else None
            done = await chosen
        except (CompactionFailed, UsageError):
            chosen.close()
            assert self.messages() == before
            return
        self.edits += 1
        self.messages()
        if getattr(done, "action", "") == "drop":
            recall = self.agent.state.context.recall
            assert recall is not None
            assert all(recall(ref) is not None for ref in done.refs)
        if planned:
            assert planned.tokens_after == self.agent.state.model.current_window().tokens
        newest = self.entries()[-1]
        if chosen is not acts[-1] and newest.seq > last and self.random.random() < 0.4:
            await edits.undo()
            assert self.messages() == before

    async def leave(self) -> None:
        """Resume the session, or continue in a copy: whole, or up to the end of a turn. A killed
        session is resumed.
        """
        if not self.ways:
            self.ways = self.random.sample(WAYS, len(WAYS))
        how, log = self.ways.pop(), self.log
        every = [item.ref for item in self.agent.context.items()]
        before = self.agent.state.view.dropped
        ends = [entry.seq for entry in self.entries() if isinstance(entry, End)]
        await self.agent.close()
        if how == "kill":
            self.kill(every)
        elif how == "rewind":
            log = self.project.fork(log, self.random.choice(ends[-4:]))
        await self.open(log.parent.name, fork=how == "fork")
        if how != "rewind":
            assert before <= self.agent.state.view.dropped

    def kill(self, refs: list[int]) -> None:
        """Kill the real command at a request of a turn, or of an edit that asks for a summary."""
        arguments, requests = ["--continue", "--permission-mode", MODE, "-p", self.words()], 2
        if self.random.random() < 0.3:
            arguments = ["context", "compact", "--before", str(self.random.choice(refs))]
            requests = 1
        asked = len(self.server.requests) + self.random.randint(1, requests)
        process = self.place.start(*arguments, env=self.env, stdout=DEVNULL, stderr=DEVNULL)
        while len(self.server.requests) < asked and process.poll() is None:
            time.sleep(0.002)
        self.kills += process.poll() is None
        process.kill()
        process.wait()

    async def play(self, edits: int) -> None:
        with self.server:
            await self.open()
            for _ in range(3):
                await self.say()
            while self.edits < edits:
                for _ in range(self.random.randint(1, 4)):
                    await self.edit()
                if self.random.random() < self.leaving:
                    await self.leave()
                await self.say()
            await self.agent.close()
        assert self.server.rejected == []


@pytest.mark.slow
@pytest.mark.variants
@over_each_wire
def test_no_request_is_refused_after_random_edits(tmp_path: Path, wire: Wire) -> None:
    player = Player(tmp_path, wire, seed=1, leaving=0.4)
    player.ways = ["fork", "kill"]
    asyncio.run(player.play(12))
    assert player.kills
    assert player.children


@pytest.mark.full
@pytest.mark.timeout(7_200)
@over_each_wire
def test_no_request_is_refused_after_hundreds_of_edits(tmp_path: Path, wire: Wire) -> None:
    kills = 0
    for seed in range(2, 16):
        player = Player(tmp_path / str(seed), wire, seed)
        asyncio.run(player.play(50))
        assert player.children
        kills += player.kills
    assert kills >= 14
