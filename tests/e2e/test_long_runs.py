"""Four hundred calls with large outputs fit into the context, and the session costs less."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.cache_prices import PromptCache
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import Accepted, Delta
from ctxagent.agent.models.base import Reply, abilities_of
from ctxagent.agent.models.catalog import Limits, cache_terms
from ctxagent.agent.models.gaps import ServerGaps
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.session.entries import Block, Summary, Usage
from ctxagent.tools.base import Context, Output, Params, Tool

from ..compaction.test_engine import RECORD, asks_for_a_record
from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation

CALLS = 400
TERMS = cache_terms("claude-sonnet-5")


class NumberParams(Params):
    n: int


class Bash(Tool[NumberParams]):
    """A fake Bash tool with 12 kB of output. Four hundred real commands would only take time."""

    name, description, effect, Params = "Bash", "Prints.", "read", NumberParams

    async def run(self, params: NumberParams, context: Context) -> Output:
        line = f"{params.n}: the quick brown fox jumps over the lazy dog, again and again\n"
        return Output(line * (12_000 // len(line)), {"exit_code": 0})


class Charging:
    """A scripted model that computes the bill of a server with a cache. Checks every request,
    stores none.
    """

    id = "scripted"
    abilities = abilities_of(id)

    def __init__(self, window: int) -> None:
        self.window, self.cache, self.dollars, self.done, self.peak = (
            window,
            PromptCache(TERMS.life),
            0.0,
            0,
            0,
        )
        self.gaps = ServerGaps(None, "", self.id, {})
        self._sizes: dict[str, int] = {}

    def _size(self, block: Block) -> int:
        said = block.get("text", block.get("content"))
        key = said if isinstance(said, str) else json.dumps(block)
        if key not in self._sizes:  # counting is most of the work of a long session
            self._sizes[key] = tokens.estimate_block(block)
        return self._sizes[key]

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        sent = body(request)
        validate(sent)
        blocks = [*request.system, *request.tools]
        blocks += [block for message in request.messages for block in message["content"]]
        size = sum(map(self._size, blocks))
        assert size + request.max_tokens <= self.window * 1.02
        self.peak = max(self.peak, size)
        self.dollars += self.cache.charge(sent).relative(TERMS)
        usage = Usage(input=size, output=30)
        yield Accepted(usage.to_json())
        if asks_for_a_record(request):
            yield Reply([{"type": "text", "text": RECORD}], "end_turn", usage, "scripted")
            return
        self.done += 1
        if self.done > CALLS:
            yield Reply([{"type": "text", "text": "done"}], "end_turn", usage, "scripted")
            return
        call: dict[str, Any] = {
            "type": "tool_use", "id": f"c{self.done}", "name": "Bash", "input": {"n": self.done},
        }  # fmt: skip
        yield Reply([{"type": "text", "text": "Next."}, call], "tool_use", usage, "scripted")

    def assumed_limits(self) -> Limits:
        return Limits(self.window, min(8_000, self.window // 8), "setting")

    async def limits(self) -> Limits:
        return self.assumed_limits()

    async def close(self) -> None:
        pass


def run(folder: Path, policy: Policy, window: int) -> tuple[Conversation, Charging]:
    folder.mkdir()
    model = Charging(window)
    talk = Conversation(folder, model=model, tools=[Bash()], policy=policy)
    finished = talk.say("print them all")
    assert (finished.status, finished.text) == ("ok", "done"), finished
    assert model.peak < window
    return talk, model


@pytest.mark.full
@pytest.mark.parametrize(
    ("window", "share", "most"), [(200_000, 0.45, 2_900_000), (32_000, 0.90, 2_700_000)]
)
def test_four_hundred_calls(tmp_path: Path, window: int, share: float, most: float) -> None:
    """The cost, in tokens at the price of input, and relative to summaries only. In a small window,
    summaries only are cheap too, because a summarised text is never larger than the window.
    """
    talk, managed = run(tmp_path / "managed", DEFAULT, window)
    unmanaged = replace(DEFAULT, clear_when="off", truncate_at=None, move_above=None)
    _, plain = run(tmp_path / "plain", unmanaged, window)
    assert managed.dollars <= share * plain.dollars
    assert managed.dollars <= most
    assert window < 200_000 or len(talk.of(Summary)) <= 3
