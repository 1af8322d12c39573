"""Messages of the user during a turn: in the log, in the requests, and in everything made from the
log.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import build_messages
from ctxagent.agent.context.view import fold
from ctxagent.agent.events import CallStarted, TurnFinished, UserSaid
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.pages.export import export
from ctxagent.agent.recordings.recording import RecordedMessage
from ctxagent.agent.session.conversation import CONVERSATION_NAME
from ctxagent.agent.session.entries import Summary, User

from ..support.sessions.conversation import Conversation

TWO = [("Bash", {"command": "echo one"}), ("Bash", {"command": "echo two"})]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def between(*calls: list[str]) -> Callable[[], str | None]:
    """Return the user's messages before the model's first call, before its second, and so on."""
    waiting: Iterator[str | None] = itertools.chain.from_iterable([*words, None] for words in calls)
    return lambda: next(waiting, None)


def steer(talk: Conversation, words: str, *calls: list[str]) -> TurnFinished:
    return asyncio.run(run_turn(talk.agent, words, between(*calls)))


def requests(talk: Conversation) -> list[list[dict[str, Any]]]:
    """Return the messages of each request, without cache marks."""

    def unmarked(node: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in node.items() if k != "cache_control"}

    return [
        json.loads(json.dumps(request.messages), object_hook=unmarked)
        for request in talk.model.requests  # type: ignore[attr-defined]
    ]


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def test_messages_follow_the_results_as_user_messages(project: Path) -> None:
    steps = [Step(tools=TWO), Step(tools=TWO), Step(text="Done.")]
    talk = Conversation(project, steps)
    assert steer(talk, "begin", [], ["use tabs", "and no semicolons"], []).text == "Done."
    assert talk.kinds() == [
        "session", "user", "assistant", "tool_result", "tool_result", "user", "user", "assistant",
        "tool_result", "tool_result", "assistant", "end",
    ]  # fmt: skip
    said = talk.of(User)
    assert [(each.content, each.source, each.mid_turn) for each in said] == [
        ("begin", "person", False), ("use tabs", "person", True), ("and no semicolons", "person",
                                                                   True),
    ]  # fmt: skip
    second = requests(talk)[1][-1]
    assert kinds(second) == ["tool_result", "tool_result", "text", "text"]
    assert [block["text"] for block in second["content"][2:]] == ["use tabs", "and no semicolons"]
    told = [type(e) for e in talk.events if isinstance(e, UserSaid | CallStarted)]
    assert told == [UserSaid, CallStarted, UserSaid, UserSaid, CallStarted, CallStarted]


def test_messages_during_a_turn_are_user_messages_but_not_turns(project: Path) -> None:
    talk = Conversation(project, [Step(tools=TWO), Step(text="Done."), Step(text="Again.")])
    steer(talk, "begin", [], ["never touch setup.py"])
    talk.say("more")
    assert [text for _, text in talk.agent.ledger.typed_messages] == [
        "begin",
        "never touch setup.py",
        "more",
    ]
    assert talk.agent.totals.turns == len(talk.agent.ledger.turns) == 2
    whole = (talk.agent.folder / CONVERSATION_NAME).read_text()
    assert whole.count("never touch setup.py") == 1
    assert whole.index("two") < whole.index("never touch setup.py") < whole.index("Done.")
    assert f"## User · #{talk.of(User)[1].seq}\n\nnever touch setup.py" in whole
    log = talk.agent.log.path
    for format in ("md", "html", "json"):
        assert "never touch setup.py" in export(log, format)  # type: ignore[arg-type]


def test_each_request_is_a_prefix_of_the_next_also_over_a_resume(project: Path) -> None:
    steps = [Step(thinking="hm", tools=TWO) for _ in range(3)]
    first = Conversation(project, [*steps, Step(text="done")])
    steer(first, "go", ["at once"], ["one"], [], ["two", "three"])
    live = build_messages(first.agent.view.items)
    first.agent.log.close()
    second = Conversation(project, [*steps, Step(text="done again")])
    assert build_messages(second.agent.view.items) == live
    assert build_messages(fold(second.entries()).items) == live
    steer(second, "go on", [], ["four"])
    sent = [*requests(first), *requests(second)]
    assert len(sent) == 8
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    assert [block["text"] for block in sent[0][0]["content"]] == ["go", "at once"]


def test_message_after_the_final_answer_begins_the_next_turn(project: Path) -> None:
    talk = Conversation(project, [Step(text="Done."), Step(text="Tabs.")])
    next_words = between([], ["use tabs"])
    assert asyncio.run(run_turn(talk.agent, "begin", next_words)).text == "Done."
    assert next_words() == "use tabs"


def test_limit_keeps_the_message_and_a_paused_reply_is_not_split(project: Path) -> None:
    talk = Conversation(project, [Step(tools=TWO)], bounds=Budget(calls=1))
    next_words = between([], ["use tabs"])
    assert asyncio.run(run_turn(talk.agent, "begin", next_words)).status == "limit"
    assert next_words() == "use tabs"
    paused = Step(text="I pause.", stop_reason="pause_turn")
    talk = Conversation(project, [paused, Step(tools=TWO), Step(text="Done.")], session="t")
    talk.model.check = None  # type: ignore[attr-defined]  # the last message is the assistant's
    assert steer(talk, "begin", [], ["use tabs"]).text == "Done."
    assert [message["role"] for message in requests(talk)[1]] == ["user", "assistant"]
    assert kinds(requests(talk)[2][-1]) == ["tool_result", "tool_result", "text"]


def test_cut_reply_continues_after_the_message(project: Path) -> None:
    cut = Step(text="Half of", stop_reason="max_tokens")
    talk = Conversation(project, [cut, Step(text=" it.")])
    steer(talk, "begin", [], ["shorter, please"])
    notice, words = requests(talk)[1][-1]["content"]
    assert "cut off" in notice["text"]
    assert words["text"] == "shorter, please"


def test_long_message_goes_to_a_file_and_survives_an_interrupt(project: Path) -> None:
    talk = Conversation(project, [Step(tools=TWO), Step(text="word " * 20_000)], window=20_000)
    paste = "a line of a paste\n" * 4_000
    next_words = between([], [paste])
    calls = 0

    async def run() -> TurnFinished:
        turn = asyncio.ensure_future(run_turn(talk.agent, "begin", next_words))

        def emit(event: object) -> None:
            nonlocal calls
            calls += isinstance(event, CallStarted)
            if calls == 2:
                asyncio.get_running_loop().call_soon(turn.cancel)

        talk.agent.emit = emit
        return await turn

    assert asyncio.run(run()).status == "interrupted"
    said = talk.of(User)[1]
    assert said.mid_turn
    assert len(said.content) < len(paste) / 4
    (kept,) = (talk.agent.folder / "offloaded").iterdir()
    assert paste.strip() in kept.read_text()
    assert said.content in requests(talk)[1][-1]["content"][-1]["text"]


def test_a_summary_in_the_turn_keeps_them_verbatim(project: Path) -> None:
    policy = replace(
        DEFAULT, summarizer="mechanical", summarize_at=20_000, prepare_at=None, move_above=None,
        clear_when="off", keep_tokens=0, keep_messages=1,
    )  # fmt: skip
    long = [("Bash", {"command": "seq 1 8000"})]
    steps = [Step(tools=long), Step(tools=TWO), Step(text="Done.")]
    talk = Conversation(project, steps, policy=policy)
    assert steer(talk, "Write the program.", [], ["Use tabs in every file."]).text == "Done."
    assert talk.of(Summary)
    texts = [block.get("text", "") for block in requests(talk)[-1][0]["content"]]
    assert texts[0].startswith("[Conversation compressed]")
    assert "Write the program." in texts
    assert "Use tabs in every file." in texts


def test_a_recording_of_it_is_played_as_one_turn(project: Path) -> None:
    talk = Conversation(project, [Step(tools=TWO), Step(text="Done.")])
    steer(talk, "begin", [], ["use tabs"])
    steps = load_recording(talk.agent.log.path).steps
    words = [step for step in steps if isinstance(step, RecordedMessage)]
    assert [(each.text, each.mid_turn) for each in words] == [("begin", False), ("use tabs", True)]
