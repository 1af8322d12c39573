"""A session that continues after its prompt cache has expired: due results are cleared at the first
call, since the whole prompt is written again anyway.
"""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.engine import WHILE_AWAY
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.events import Accepted, Event
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Mask, Session, Summary
from ctxagent.tools.bash import BashTool

from ..support.sessions.conversation import Conversation
from ..support.sessions.history import words


@pytest.mark.slow
def test_due_results_are_cleared_when_a_session_continues(tmp_path: Path) -> None:
    """Six results of about 3,600 tokens: too little for a rewrite while the cache is warm."""
    command = "seq -f 'item %g of {}' 700"
    calls = [Step(tools=[("Bash", {"command": command.format(n)})]) for n in range(6)]
    first = Conversation(tmp_path / "p", [*calls, Step(text="Done.")], tools=[BashTool()])
    first.cwd.mkdir()
    assert first.agent.engine.host.cache_is_cold()
    assert first.say("go").status == "ok"
    assert not first.agent.engine.host.cache_is_cold()
    assert list(first.of(Mask)) == []
    asyncio.run(first.agent.close())

    soon = Conversation(tmp_path / "p", [Step(text="Yes.")], tools=[BashTool()])
    assert not soon.agent.engine.host.cache_is_cold()
    asyncio.run(soon.agent.close())

    log = first.agent.log.path
    log.write_text(re.sub(r'"at": "[^"]*"', '"at": "2026-01-01T00:00:00.000Z"', log.read_text()))
    second = Conversation(
        tmp_path / "p", [Step(text="Yes."), Step(text="Sure.")], tools=[BashTool()]
    )
    assert second.agent.engine.host.cache_is_cold()
    assert second.say("and?").status == "ok"
    (mask,) = second.of(Mask)
    assert mask.trigger == "the cache has ended"
    assert len(mask.targets) == 3
    assert second.say("sure?").status == "ok"
    assert len(list(second.of(Mask))) == 1


@pytest.mark.slow
def test_results_that_an_interrupt_left_unanswered_stay(tmp_path: Path) -> None:
    """Six results, an interrupt before the model answers them, and a message after the cache has
    expired: the results are in the next request. Once they are answered, they are cleared.
    """
    command = "seq -f 'item %g of {}' 700"
    calls = [("Bash", {"command": command.format(n)}) for n in range(6)]
    steps = [Step(tools=calls), Step(text="Slow."), Step(text="I see."), Step(text="Yes.")]
    talk = Conversation(tmp_path / "p", steps, tools=[BashTool()])
    talk.cwd.mkdir()

    def is_second(event: Event) -> bool:
        return isinstance(event, Accepted) and len(talk.seen(Accepted)) == 2

    assert talk.interrupted_at("count", is_second).status == "interrupted"
    talk.agent.model.last_calls["scripted"] = 1.0  # long ago
    assert talk.say("go on").text == "I see."
    assert talk.of(Mask) == []
    talk.agent.model.last_calls["scripted"] = 1.0
    assert talk.say("and?").text == "Yes."
    assert [len(mask.targets) for mask in talk.of(Mask)] == [3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("has_user", "policy", "count"),
    [
        (True, DEFAULT, 1),
        (False, DEFAULT, 0),
        (True, replace(DEFAULT, while_away=False), 0),
        (True, replace(DEFAULT, keep_tokens=40_000), 0),  # the whole context is its newest part
    ],
)
def test_a_summary_from_the_log_for_a_user_who_returns(
    tmp_path: Path, has_user: bool, policy: Policy, count: int
) -> None:
    """Texts of about 36,000 tokens. The first call after the pause replaces those before the newest
    20,000, without a request. After an undo, only the next pause has a summary.
    """
    steps = [*(Step(text=words(6_000)) for _ in range(6)), *(Step(text=f"{n}.") for n in range(4))]
    talk = Conversation(tmp_path / "p", steps, policy=policy)
    talk.cwd.mkdir()
    talk.agent.has_user = has_user
    for n in range(6):
        assert talk.say(f"go {n}").status == "ok"
    expected = talk.agent.engine.tokens_after_pause()
    assert talk.say("soon").text == "0."
    assert talk.of(Summary) == []
    talk.agent.model.last_calls["scripted"] = 1.0  # long ago
    assert talk.say("and?").text == "1."
    summaries = talk.of(Summary)
    assert len(summaries) == count
    if not count:
        assert (expected is None) is has_user
        return
    assert summaries[0].trigger == WHILE_AWAY
    assert summaries[0].tokens_after == pytest.approx(expected, rel=0.2)
    assert talk.say("sure?").text == "2."
    assert talk.of(Summary) == summaries
    talk.agent.engine.uncompact(talk.agent.log.entries())
    talk.agent.model.last_calls["scripted"] = 1.0
    assert talk.say("really?").text == "3."
    assert talk.of(Summary) == summaries


@pytest.mark.slow
def test_another_model_has_no_cache_of_this_conversation(tmp_path: Path) -> None:
    """Six results that do not pay for a rewrite. Another model must write the whole prompt, so they
    are cleared at its first call, also if a resume changes the model.
    """
    command = "seq -f 'item %g of {}' 300"
    calls = [Step(tools=[("Bash", {"command": command.format(n)})]) for n in range(6)]
    model = ScriptedModel([*calls, Step(text="Done."), Step(text="Yes.")])
    talk = Conversation(tmp_path / "p", model=model, tools=[BashTool()])
    talk.cwd.mkdir()
    host = talk.agent.engine.host
    assert talk.say("go").status == "ok"
    assert not host.cache_is_cold()
    model.id = "another"
    assert host.cache_is_cold()
    talk.agent.record(Session(id="s", cwd=str(talk.cwd), version="0", model="another"))
    assert talk.say("and?").text == "Yes."
    assert [mask.trigger for mask in talk.of(Mask)] == ["the cache has ended"]
    model.id = "scripted"
    assert not host.cache_is_cold(), "what it was told before is still there"
    asyncio.run(talk.agent.close())

    third = ScriptedModel([], id="a third")
    resumed = Conversation(tmp_path / "p", model=third, tools=[BashTool()])
    assert resumed.agent.engine.host.cache_is_cold()
    third.id = "another"
    assert not resumed.agent.engine.host.cache_is_cold()
    asyncio.run(resumed.agent.close())
