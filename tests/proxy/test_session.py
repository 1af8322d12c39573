"""A session of the proxy: what of a client's requests is edited, and what stays as it is."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.session.entries import Mask, Summary
from ctxagent.agent.session.log import Entries
from ctxagent.tests.support.proxy.checks import count_edits, prefix_of
from ctxagent.tests.support.proxy.clients import PATHS, Client, serialized, turns_by_chance
from ctxagent.tests.support.proxy.recorder import Answer, recorder
from ctxagent.tests.support.proxy.running import running_proxy
from ctxagent.tests.support.server.chat_rules import check_chat
from ctxagent.tests.support.server.responses import read_body
from ctxagent.tests.support.server.validator import validate

EVENTS = {"content-type": "text/event-stream"}
RULES: dict[str, Callable[[dict[str, Any]], object]] = {
    "messages": validate, "chat": check_chat, "responses": read_body,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("protocol", PATHS)
def test_only_edited_blocks_change(protocol: str, odd: bool, tmp_path: Path) -> None:
    answers: list[Answer] = []
    edits = 0
    with (
        recorder(lambda received: answers[-1]) as server,
        running_proxy(tmp_path, server.url, PRESETS["lean"], summaries=False) as proxy,
    ):

        @settings(max_examples=8, phases=[Phase.generate])
        @given(st.integers(0, 2**40))
        def plays(seed: int) -> None:
            nonlocal edits
            rng = random.Random(seed)
            client = Client(protocol, turns_by_chance(rng, 20, f"task {seed}", odd=odd), odd=odd)
            before, acts = None, 0
            for number, body in enumerate(client.bodies()):
                if not odd:
                    RULES[protocol](body)
                answers.append(Answer([client.answer(client.turns[number], number)], 200, EVENTS))
                data = serialized(rng, body)
                proxy.post(client.path, data)
                sent = json.loads(server.requests[-1].body)
                edits += count_edits(json.loads(data), sent)
                if not odd:
                    RULES[protocol](sent)
                entries = [*Entries(proxy.logs()[0])]
                decided = sum(isinstance(entry, Mask | Summary) for entry in entries)
                if before is not None and decided == acts:
                    assert prefix_of(before, sent)
                before, acts = sent, decided
            assert proxy.reports == []

        plays()
    assert edits > 20
