"""Random edits of the context between turns, against a strict server of each protocol.

The sessions have parallel calls and thinking; edits are undone, and sessions resumed, forked and
rewound. No request is refused, and what was dropped is found.
"""

import asyncio
import random
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import CompactionFailed, UsageError
from ctxagent.agent.events import CallStarted
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.session.entries import Assistant, End, Usage
from ctxagent.agent.session.log import LOG_NAME
from ctxagent.agent.session.store import Project

from ..support.server.loopback import Body, Say, Server
from ..support.server.wires import Wire, model_of, over_each_wire
from ..support.sessions.conversation import Conversation

RECORD = (
    "## Session Intent\nCount.\n\n## Key Decisions\n1. Estimate.\n\n"
    "## Current State\nPhase: counting\n\n## Next Steps\n1. Count on.\n"
)
MAX_ERROR = 0.03  # of the price shown before a call


class Player:
    """Edits one session after the other, each a copy of the one before or that one again."""

    def __init__(self, place: Path, wire: Wire, seed: int) -> None:
        self.random, self.place = random.Random(seed), place
        self.server = wire(self.reply, bound=wire is Server)
        self.number = self.edits = self.turns = 0
        (place / "project").mkdir()
        self.sessions = place / "project-state" / "sessions"

    def open(self) -> None:
        model = model_of(self.server, self.place)
        self.talk = Conversation(self.place / "project", model=model, session=f"s{self.number}")

    def reply(self, request: Body) -> Say:
        last = request["messages"][-1]["content"]
        blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
        if "about to be compressed" in str(blocks[-1].get("text", "")):
            return Say(RECORD)
        if any(block["type"] == "tool_result" for block in blocks):
            return Say("Counted. " + "It was long. " * self.random.randint(1, 8), thinking="So.")
        calls: list[Any] = [
            ("Bash", {"command": f"seq {start} {start + 300}"})
            for start in self.random.sample(range(90), self.random.randint(1, 3))
        ]
        return Say("I count.", thinking="Let me count.", tools=calls)

    async def say(self) -> None:
        """Run a turn. The tokens that were shown for its first call are what the server counts."""
        self.turns += 1
        before = self.talk.agent.log.last_seq
        started = len(self.talk.seen(CallStarted))
        finished = await run_turn(self.talk.agent, f"Count {self.turns}. " + "Carefully. " * 9)
        assert finished.status == "ok", finished
        assert self.server.rejected == []
        expected = self.talk.seen(CallStarted)[started].tokens
        replies = (each for each in self.talk.of(Assistant) if each.purpose == "turn")
        counted = Usage.from_json(next(e for e in replies if e.seq > before).usage).prompt
        assert abs(expected - counted) <= MAX_ERROR * counted

    def messages(self) -> Any:
        """Return the messages of the next request. A view in a new process equals the live one."""
        made = [
            build_request(view, model="m", max_tokens=1_000).messages
            for view in (self.talk.agent.view, fold(self.talk.entries()))
        ]
        assert made[0] == made[1]
        return made[0]

    async def edit(self) -> None:
        """Make one random edit, and sometimes undo it."""
        edits, pick = self.talk.agent.edits, self.random.choice
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
        last = self.talk.agent.log.last_seq
        try:
            done = await chosen
        except (CompactionFailed, UsageError):
            assert self.messages() == before
            return
        self.edits += 1
        self.messages()
        if getattr(done, "action", "") == "drop":
            recall = self.talk.agent.context.recall
            assert recall is not None
            assert all(recall(ref) is not None for ref in done.refs)
        newest = self.talk.entries()[-1]
        if chosen is not acts[-1] and newest.seq > last and self.random.random() < 0.4:
            await edits.undo()
            assert self.messages() == before

    async def leave(self) -> None:
        """Resume the session, or continue in a copy: whole, or up to the end of a turn."""
        await self.talk.agent.close()
        ends = [entry.seq for entry in self.talk.entries() if isinstance(entry, End)]
        how = self.random.choice(("resume", "fork", "rewind"))
        if how != "resume":
            log = self.sessions / f"s{self.number}" / LOG_NAME
            upto = self.random.choice(ends[-4:]) if how == "rewind" else None
            copy = Project(self.place / "copies", self.place / "project").fork(log, upto)
            self.number += 1
            shutil.move(copy.parent, self.sessions / f"s{self.number}")
        self.open()

    async def play(self, edits: int) -> None:
        with self.server:
            self.open()
            for _ in range(3):
                await self.say()
            while self.edits < edits:
                for _ in range(self.random.randint(1, 4)):
                    await self.edit()
                if self.random.random() < 0.15:
                    await self.leave()
                await self.say()
            await self.talk.agent.close()
        assert self.server.rejected == []


@pytest.mark.slow
@pytest.mark.variants
@over_each_wire
def test_no_request_is_refused_after_random_edits(tmp_path: Path, wire: Wire) -> None:
    asyncio.run(Player(tmp_path, wire, seed=1).play(12))


@pytest.mark.full
@pytest.mark.timeout(7_200)
@over_each_wire
def test_no_request_is_refused_after_hundreds_of_edits(tmp_path: Path, wire: Wire) -> None:
    for seed in range(2, 16):
        folder = tmp_path / str(seed)
        folder.mkdir()
        asyncio.run(Player(folder, wire, seed).play(50))
