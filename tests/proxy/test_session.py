"""A session of the proxy: which parts of a client's requests are edited, and which are not."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.session.entries import Mask, Summary, ToolResult
from ctxagent.agent.session.log import Entries
from ctxagent.tests.support.proxy.checks import count_edits, messages_of, prefix_of
from ctxagent.tests.support.proxy.clients import (
    PATHS,
    REMINDER,
    Called,
    Client,
    Turn,
    serialized,
    turns_by_chance,
)
from ctxagent.tests.support.proxy.recorder import Answer, Received, recorder
from ctxagent.tests.support.proxy.running import running_proxy
from ctxagent.tests.support.server.chat_rules import check_chat
from ctxagent.tests.support.server.gemini import check_gemini
from ctxagent.tests.support.server.responses import read_body
from ctxagent.tests.support.server.validator import validate

ALWAYS = replace(PRESETS["lean"], clear_when="every-call")  # clears old results at each request

EVENTS = {"content-type": "text/event-stream"}
RULES: dict[str, Callable[[dict[str, Any]], object]] = {
    "messages": validate, "chat": check_chat, "responses": read_body, "gemini": check_gemini,
}  # fmt: skip


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("odd", [True, False])
@pytest.mark.parametrize("protocol", PATHS)
def test_only_edited_blocks_change(protocol: str, odd: bool, tmp_path: Path) -> None:
    answers: list[Answer] = []
    edits = 0
    with (
        recorder(lambda received: answers[-1]) as server,
        running_proxy(tmp_path, server.url, ALWAYS, summaries=False) as proxy,
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
    assert edits >= 5


SUMMARY = "## Session Intent\nThe user wants the task done.\n"
IS_QUESTION = b"context of this session is about to be compressed"


def working_turns() -> list[Turn]:
    """Turns with a large result each. A user text follows some results."""
    return [
        Turn((f"Whale {n}.",) if n % 5 == 0 else (), text=f"Step {n}.", calls=(call_of(n),))
        for n in range(1, 24)
    ]


def talking_turns() -> list[Turn]:
    """Turns with texts only."""
    return [Turn((f"Whale {n}.",), text=call_of(n).result) for n in range(1, 24)]


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("make", [working_turns, talking_turns])
@pytest.mark.parametrize("protocol", PATHS)
def test_a_summary_keeps_the_instructions_and_the_words_of_the_user(
    protocol: str, make: Callable[[], list[Turn]], tmp_path: Path
) -> None:
    first, *others = make()
    turns = [replace(first, words=(REMINDER, "Count the whales.")), *others]
    client = Client(protocol, turns, odd=False)
    written = Turn(text=SUMMARY)
    answers: list[Answer] = []

    def answer(received: Received) -> Answer:
        if IS_QUESTION in received.body:
            return Answer([client.answer(written, 99)], 200, EVENTS)
        return answers[-1]

    with (
        recorder(answer) as server,
        running_proxy(tmp_path, server.url, PRESETS["default"], window=30_000) as proxy,
    ):
        said: list[str] = []
        for number, body in enumerate(client.bodies()):
            RULES[protocol](body)
            said += [text.splitlines()[-1] for text in turns[number].words[-1:]]
            answers.append(Answer([client.answer(turns[number], number)], 200, EVENTS))
            proxy.post(client.path, json.dumps(body).encode())
            sent = json.loads(server.requests[-1].body)
            texts = json.dumps(sent)
            assert "never push" in texts
            assert [text for text in said if text not in texts] == []
        for received in server.requests:  # also the engine's questions
            sent = json.loads(received.body)
            if "tools" in sent:
                RULES[protocol](sent)
        assert proxy.reports == []
        summaries = [entry for entry in proxy.entries() if isinstance(entry, Summary)]
        assert summaries
        assert len(messages_of(sent)) < len(messages_of(body)) / 2


def call_of(number: int) -> Called:
    text = "".join(f"{number}.{line}: a line of the output\n" for line in range(300))
    return Called(f"call_{number}", "Bash", {"command": f"look {number}"}, text)


@pytest.mark.parametrize("line_numbers", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
def test_files_have_no_line_numbers(protocol: str, line_numbers: bool, tmp_path: Path) -> None:
    lines = [f"value_{n} = {n * n}" for n in range(1, 90)]
    numbered = "\n".join(f"{n:6}→{line}" for n, line in enumerate(lines, 1))
    calls = (
        Called("call_1", "Read", {"file_path": "a.py"}, numbered),
        Called("call_2", "Bash", {"command": "cat -n a.py"}, numbered),
    )
    turns = [Turn(("Go.",), text="I look.", calls=calls), Turn(text="Done."), Turn(("And?",))]
    client = Client(protocol, turns, odd=False)
    answers: list[Answer] = []
    policy = replace(PRESETS["default"], line_numbers=line_numbers)
    with (
        recorder(lambda received: answers[-1]) as server,
        running_proxy(tmp_path, server.url, policy, summaries=False) as proxy,
    ):
        sent = []
        for number, body in enumerate(client.bodies()):
            answers.append(Answer([client.answer(turns[number], number)], 200, EVENTS))
            proxy.post(client.path, json.dumps(body).encode())
            sent.append(json.loads(server.requests[-1].body))
            RULES[protocol](sent[-1])
        results = [entry for entry in proxy.entries() if isinstance(entry, ToolResult)]
    shown = json.dumps(sent[-1], ensure_ascii=False)
    plain = json.dumps("\n".join(lines))
    assert plain in shown or line_numbers
    assert shown.count("     5→value_5") == 1 + line_numbers
    assert all(prefix_of(before, after) for before, after in pairwise(sent[1:]))
    assert [result.content for result in results] == [numbered, numbered]
