"""Waiting is announced, and so is its end; the terminal shows the seconds."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import Compacted, Waiting
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step

from ..compaction.test_engine import RECORD, Player
from ..support.command import Place
from ..support.server.loopback import Fail, Say, Server
from ..support.sessions.conversation import Conversation
from ..support.terminal.screen import Terminal

WRITING = "writing a summary"
BY_HAND = replace(DEFAULT, clear_when="off", truncate_at=None, prepare_at=None)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def compacted(tmp_path: Path, policy: Policy, *, window: int = 60_000) -> list[Waiting | Compacted]:
    """The notices during a manual compaction."""
    (tmp_path / "project").mkdir()

    def step(request: Request) -> Step:
        asked = "about to be compressed" in str(request.messages[-1]["content"])
        return Step(text=RECORD, delay=0.1) if asked else player(request)

    player = Player(10, 2_500)
    talk = Conversation(tmp_path / "project", step, policy=policy, window=window)

    async def run() -> None:
        await run_turn(talk.agent, "count")
        talk.events.clear()
        await talk.agent.engine.compact()
        await talk.agent.close()

    asyncio.run(run())
    return [event for event in talk.events if isinstance(event, Waiting | Compacted)]


def test_a_manual_summary_shows_its_steps(tmp_path: Path) -> None:
    *told, receipt = compacted(tmp_path, BY_HAND)
    assert [e.what for e in told if isinstance(e, Waiting)] == [
        WRITING, "", "checking the summary", "",
    ]  # fmt: skip
    assert isinstance(receipt, Compacted)
    assert receipt.seconds >= 0.1
    assert "ahead" not in receipt.detail


def test_a_summary_in_parts_says_how_many(tmp_path: Path) -> None:
    told = compacted(tmp_path, replace(BY_HAND, model="claude-haiku-4-5"), window=40_000)
    parts = [e.what for e in told if isinstance(e, Waiting) and "part" in e.what]
    count = len(parts)
    assert count > 1
    assert parts == [f"{WRITING}, part {n} of {count}" for n in range(1, count + 1)]


def test_a_summary_that_was_prepared_says_how_long_that_took(tmp_path: Path) -> None:
    *told, receipt = compacted(tmp_path, replace(BY_HAND, prepare_at=0.3))
    assert Waiting("the summary is being written") in told
    assert Waiting(WRITING) not in told
    assert isinstance(receipt, Compacted)
    assert re.search(r"summary written by the model · prepared in [\d.]+ s · ", receipt.detail)


def test_waits_of_headless_runs_are_told_to_those_who_ask(place: Place) -> None:
    with Server([Say("Hello."), Say("Hello.")], models={"own-model": (100_000, 8_000)}) as server:
        env = place.server(server.url)
        quiet = place.run("-p", "hi", "--model", "own-model", env=env)
        told = place.run("-p", "hi", "--model", "own-model", "--verbose", env=env)
    assert "waiting" not in quiet.stderr
    assert "waiting: checking the model's context window\n" in told.stderr
    assert told.stdout == "Hello.\n"


def test_a_retry_is_waited_for_with_seconds(place: Place) -> None:
    with Server([Fail(500, headers={"retry-after": "30"})]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        again = re.compile(r"again in \d+ s · Esc")
        terminal.see(lambda text: bool(again.search(text)))
        terminal.press("esc")
        terminal.see("interrupted")
        terminal.type("/quit\r")
        terminal.leave()


def test_silence_in_the_middle_of_a_reply_is_shown_with_seconds(place: Place) -> None:
    """Also when the reply came after a retry."""
    steps = [
        Fail(529, headers={"retry-after": "1"}),
        Say("Some words and then", fault="silence", after=4),
    ]
    with Server(steps) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("Some word")
        silent = re.compile(r"◌ the model is silent · ([3-9]|\d\d+) s · Esc")
        terminal.see(lambda text: bool(silent.search(text)))
        terminal.press("esc")
        terminal.see("interrupted; what was done is kept")
        assert "◌" not in "\n".join(terminal.screen.display)
        terminal.type("/quit\r")
        terminal.leave()


def test_the_first_byte_is_waited_for_with_seconds(place: Place) -> None:
    with Server([Say(fault="mute")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        waiting = re.compile(r"◌ waiting for the model · ([2-9]|\d\d+) s · Esc")
        terminal.see(lambda text: bool(waiting.search(text)))
        terminal.press("esc")
        terminal.see("interrupted")
        terminal.type("/quit\r")
        terminal.leave()


def test_what_was_folded_is_unfolded_while_the_agent_works_and_at_rest(place: Place) -> None:
    steps = [
        Say("One.", tools=[("Bash", {"command": "seq 501 530"})]),
        Say("Two.", tools=[("Bash", {"command": "seq 40000"})]),
        Say("Three.", tools=[("Bash", {"command": "echo on; sleep 300"})]),
        Say("Done."),
    ]
    with Server(steps) as server:
        env = place.server(server.url)
        terminal = Terminal("--permission-mode", "bypass", cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("go\r")
        shown = terminal.see("  on")
        assert "… +24 lines (Ctrl-O)" in shown
        assert "… +39,994 lines (Ctrl-O)" in shown
        terminal.type("\x0f")
        shown = terminal.see("▾ Bash  seq 40000")
        terminal.see("lines left out: /log #")
        terminal.type("\x0f")
        shown = terminal.see(lambda text: "▾ Bash  seq 501 530" in text and "\n  515\n" in text)
        assert shown.count("\n  39999\n") == 2, "folded, and in full"
        terminal.press("esc")
        terminal.see(" · 3 tool calls · ")  # the turn has ended
        terminal.rest()
        terminal.type("\x0f\x0f\x0f")
        shown = terminal.see(lambda text: text.count("▾ Bash  seq 501 530") == 2)
        assert "nothing else to show in full" in shown
        terminal.type("/quit\r")
        terminal.leave()


def test_lines_have_a_command_for_it(place: Place) -> None:
    steps = [Say("One.", tools=[("Bash", {"command": "seq 501 530"})]), Say("Done.")]
    with Server(steps) as server:
        env = place.server(server.url)
        terminal = Terminal("--permission-mode", "bypass", "-c", "ui.plain=true",
                            cwd=place.project, env=env)  # fmt: skip
        terminal.see("/help\n>")
        terminal.type("go\r")
        terminal.see("(/unfold)")
        terminal.see("Done.")
        terminal.type("/unfold\r")
        terminal.see("\n  515\n")
        terminal.type("/quit\r")
        terminal.leave()


def test_a_long_fence_is_seen_while_it_is_written(place: Place) -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(300))
    steps = [Say(f"Here:\n\n```python\n{code}\n```\n", fault="silence", deltas=60, after=58)]
    with Server(steps) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url), rows=24)
        terminal.see("❯")
        terminal.type("go\r")
        shown = terminal.see("line_240 = 240")
        assert "line_3 = 3\n" in shown
        terminal.press("esc")
        shown = terminal.see("interrupted")
        numbers = [int(n) for n in re.findall(r"^  line_(\d+) = \d+$", shown, re.MULTILINE)]
        assert numbers == list(range(len(numbers))), "each line once, in order"
        terminal.type("/quit\r")
        terminal.leave()
