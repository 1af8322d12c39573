"""A summary of a part of the context, in the place of that part."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.history import last_acts
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.errors import CompactionFailed, UsageError
from ctxagent.agent.events import Notice
from ctxagent.agent.session.entries import Mask, User

from .test_edits import begun, of_kind, sent, tokens_of


@pytest.mark.parametrize("summarizer", ["model", "mechanical"])
def test_a_part_is_summarised_in_its_place(tmp_path: Path, summarizer: Any) -> None:
    policy = replace(DEFAULT, summarizer=summarizer)
    talk = begun(tmp_path, policy=policy, turns=4)
    edits, before, tokens = talk.agent.edits, sent(talk), tokens_of(talk)
    messages = of_kind(talk, "message")
    plan = edits.plan_compact(messages[1].ref, before=messages[3].ref)
    done = asyncio.run(edits.compact(messages[1].ref, None, "keep totals", before=messages[3].ref))
    assert done.refs == plan.refs
    assert done.tokens_after == tokens_of(talk) < tokens
    (mask,) = last_acts(talk.agent.log.entries())
    assert isinstance(mask, Mask)
    assert (mask.layer, mask.tokens_after) == ("span", tokens_of(talk))
    assert messages[1].ref in [target["seq"] for target in mask.targets]
    text = mask.targets[0]["text"]
    assert "Count file 1." in text  # the user's words are kept
    assert "Count file 3." not in text
    asked = [request for request in talk.model.requests if not request.system]
    if summarizer == "model":
        (question,) = (str(request.messages) for request in asked)
        assert "keep totals" in question
        assert "Count file 1." in question
        assert "Count file 0." not in question
        assert "The total so far is 4711" in text
    states = [item.state for item in edits.items() if item.ref in plan.refs]
    assert states == ["summarised"] * len(plan.refs)
    assert sent(talk)[:1] == before[:1]  # what is before the part stays
    shown = sent(talk)
    asyncio.run(edits.restore([plan.refs[2]]))
    assert sent(talk) == before
    asyncio.run(edits.undo())
    assert sent(talk) == shown
    asyncio.run(edits.undo(mask.seq))
    assert sent(talk) == before
    assert tokens_of(talk) == tokens
    assert talk.say("Go on.").status == "ok"


def test_a_part_does_not_have_an_open_message_or_no_end(tmp_path: Path) -> None:
    talk = begun(tmp_path, turns=2)
    talk.agent.record(User(content="And now?"))
    refs = [item.ref for item in of_kind(talk, "message")]
    with pytest.raises(CompactionFailed, match="not answered yet"):
        talk.agent.edits.plan_compact(refs[1], refs[2])
    with pytest.raises(UsageError, match="its end is before"):
        talk.agent.edits.plan_compact(refs[1], refs[0])
    with pytest.raises(UsageError, match="needs its last item"):
        talk.agent.edits.plan_compact(refs[1])


def test_a_small_part_is_not_summarised(tmp_path: Path) -> None:
    talk = begun(tmp_path, turns=3)
    reply = of_kind(talk, "reply")[1]
    with pytest.raises(CompactionFailed, match="would not make the part smaller"):
        talk.agent.edits.plan_compact(reply.ref, reply.ref)


@pytest.mark.parametrize("summarizer", ["model", "mechanical"])
def test_what_standing_instructions_quote_is_in_the_summary(
    tmp_path: Path, summarizer: Any
) -> None:
    rules = ("Keep the line with `All counted`.", "Never keep `4711`.")
    policy = replace(DEFAULT, summarizer=summarizer, instructions=rules)
    talk = begun(tmp_path, policy=policy, turns=4)
    messages, replies = of_kind(talk, "message"), of_kind(talk, "reply")
    asyncio.run(talk.agent.edits.compact(messages[1].ref, before=messages[3].ref))
    (mask,) = last_acts(talk.agent.log.entries())
    assert isinstance(mask, Mask)
    text, last = mask.targets[0]["text"], replies[5]  # the answers of the part are 3 and 5
    assert last.what == "All counted."
    assert f" All counted. [#{last.ref}]" in text
    notices = [event.text for event in talk.seen(Notice)]
    assert any(
        text.startswith("the summary of the part: ") and "added back" in text for text in notices
    )
