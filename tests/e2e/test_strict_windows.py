"""Small windows of a server that counts tokens in its own way, and checks the prompt and the room
for the reply. It refuses nothing, and results that the model has not answered stay.
`benchmarks/windows.py` does the same for longer and in larger windows.
"""

import asyncio
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.events import TurnFinished
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.session.entries import Assistant, Mask, Summary

from ..support.server.loopback import Server, uneven
from ..support.server.mixture import Mixture
from ..support.sessions.conversation import Conversation
from .test_engine_http import connected


def unanswered_and_cleared(talk: Conversation) -> list[int]:
    """Return the seqs of results that were cleared before the model had replied to them."""
    answered, found = 0, []
    for entry in talk.entries():
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            answered = entry.seq
        elif isinstance(entry, Mask) and entry.layer == "microcompact":
            found += [t["seq"] for t in entry.targets if t["seq"] > answered]
    return found


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "window", "seed"),
    [("default", 24_000, 3), ("v5", 24_000, 4), ("ledger", 16_000, 9)],
)
def test_no_request_is_refused(tmp_path: Path, name: str, window: int, seed: int) -> None:
    player, project = Mixture(40, seed), tmp_path / "project"
    project.mkdir()
    with Server(player, bound=True, strict=True, window=window, size_of=uneven(0.4)) as server:
        talk = connected(project, server, PRESETS[name], window)

        async def play() -> None:
            try:
                finished = await run_turn(talk.agent, "Count everything.")
                assert finished == TurnFinished("ok", "All done."), finished
            finally:
                await talk.agent.close()

        asyncio.run(play())
    assert [message for message, _ in server.rejected] == []
    assert talk.of(Summary)
    assert unanswered_and_cleared(talk) == []
