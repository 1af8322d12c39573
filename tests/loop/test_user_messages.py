"""Messages of the user: their images, their files, and what features make of them."""

import asyncio
from dataclasses import replace
from pathlib import Path

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import User

from ..support.sessions.conversation import Conversation


def test_a_message_that_went_to_a_file_is_recalled_whole_and_its_rules_count(
    tmp_path: Path,
) -> None:
    prose = "The module reads its input and writes a table. " * 900
    long = f"Port the parser.\n\n{prose}\n\nNever edit middle/.\n\n{prose}"
    record = (
        '## Session Intent\nPort it.\n\n## User Rules\n- "never edit middle/"\n\n'
        "## Key Decisions\nNone.\n\n## Current State\nPhase: on\n\n## Next Steps\nNone.\n"
    )
    steps = [Step(text="Read it. " * 900), Step(text="Done."), Step(text=record)]
    policy = replace(DEFAULT, keep_messages=1, keep_tokens=0)
    talk = Conversation(tmp_path, steps, window=24_000, policy=policy)
    talk.say(long)
    talk.say("Go on.")
    (first, _) = (entry for entry in talk.of(User) if entry.source == "person")
    assert first.offloaded
    assert "Never edit middle/." not in str(first.content)
    recalled = talk.agent.context.recall(first.seq)
    assert recalled is not None
    assert recalled.whole() == long
    summary = asyncio.run(talk.agent.engine.compact())
    assert summary.document["rules"] == [{"ref": first.seq, "text": "Never edit middle/."}]
    assert 'Never edit middle/."' in summary.text
