"""A session that goes on after its prompt cache has ended: what is due goes with the first call,
since everything is written anew anyway."""

import asyncio
import re
from pathlib import Path

from ctxagent.agent.model.scripted import Step
from ctxagent.agent.record.entries import Mask
from ctxagent.tools.bash import Bash

from .support.conversation import Conversation


def test_what_is_due_goes_as_a_session_is_taken_up_again(tmp_path: Path) -> None:
    """Six results of about 1,500 tokens: too little to pay for a rewrite while the cache lives."""
    command = "seq -f 'item %g of {}' 300"
    calls = [Step(tools=[("Bash", {"command": command.format(n)})]) for n in range(6)]
    first = Conversation(tmp_path / "p", [*calls, Step(text="Done.")], tools=[Bash()])
    first.cwd.mkdir()
    assert first.loop.cold()
    assert first.say("go").status == "ok"
    assert not first.loop.cold()
    assert list(first.of(Mask)) == []
    asyncio.run(first.loop.close())

    soon = Conversation(tmp_path / "p", [Step(text="Yes.")], tools=[Bash()])
    assert not soon.loop.cold()
    asyncio.run(soon.loop.close())

    log = first.loop.log.path
    log.write_text(re.sub(r'"at": "[^"]*"', '"at": "2026-01-01T00:00:00.000Z"', log.read_text()))
    second = Conversation(tmp_path / "p", [Step(text="Yes."), Step(text="Sure.")], tools=[Bash()])
    assert second.loop.cold()
    assert second.say("and?").status == "ok"
    (mask,) = second.of(Mask)
    assert mask.trigger == "the cache has ended"
    assert len(mask.targets) == 3
    assert second.say("sure?").status == "ok"
    assert len(list(second.of(Mask))) == 1
