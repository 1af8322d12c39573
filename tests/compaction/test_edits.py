"""Edits of the context by the user: what each changes, its price, and its undo."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.edits import ContextItem, EditPlan
from ctxagent.agent.compaction.history import last_acts, why_not_in_context
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context.request import Request, build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import CompactionFailed, UsageError
from ctxagent.agent.models.catalog import scripted_id
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Mask, Pin, Summary, ToolResult

from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation

RECORD = """## Session Intent
Count all the lines.
## Key Decisions
1. Read one file after another.
## Current State
Phase: counting
- Done: the first files
## Critical Facts
- The total so far is 4711.
## Next Steps
1. Read the next file.
"""


def work(request: Request) -> Step:
    """Answer a message with two parallel calls, and their results with a text."""
    last = request.messages[-1]["content"]
    if "about to be compressed" in str(last[-1].get("text", "")):
        return Step(text=RECORD)
    if any(block["type"] == "tool_result" for block in last):
        return Step(text="All counted.")
    calls: list[Any] = [("Bash", {"command": f"seq {start} {start + 800}"}) for start in (1, 5)]
    return Step(text="I count.", tools=calls)


def begun(folder: Path, *, policy: Policy = DEFAULT, turns: int = 3) -> Conversation:
    """Return a conversation with a priced model, after some turns of two parallel calls."""
    (folder / "project").mkdir()
    model = ScriptedModel(work, check=validate, id=scripted_id("claude-sonnet-5"))
    talk = Conversation(folder / "project", model=model, policy=policy)
    for number in range(turns):
        assert talk.say(f"Count file {number}. {'Please be careful. ' * 20}").status == "ok"
    return talk


def sent(talk: Conversation) -> list[dict[str, Any]]:
    """Return the messages of the next request, checked against the rules of the API."""
    request = build_request(talk.agent.view, model="m", max_tokens=1_000)
    again = build_request(fold(talk.entries()), model="m", max_tokens=1_000)
    assert request.messages == again.messages
    return request.messages


def of_kind(talk: Conversation, kind: str) -> list[ContextItem]:
    return [item for item in talk.agent.edits.items() if item.kind == kind]


def tokens_of(talk: Conversation) -> int:
    return talk.agent.model.current_window().tokens


def test_a_message_a_result_and_a_reply_are_dropped_and_undone(tmp_path: Path) -> None:
    talk = begun(tmp_path)
    edits, before, tokens = talk.agent.edits, sent(talk), tokens_of(talk)
    message, result = of_kind(talk, "message")[1], of_kind(talk, "result")[1]
    reply = next(item for item in of_kind(talk, "reply") if item.what.startswith("Bash"))
    for ref in (message.ref, result.ref, reply.ref):
        plan = edits.plan_drop([ref])
        assert sent(talk) == before  # a plan changes nothing
        assert asyncio.run(edits.drop([ref])) == plan
        assert (plan.tokens_before, plan.tokens_after) == (tokens, tokens_of(talk))
        assert f"dropped by the user · full text: #{ref}" in str(sent(talk))
        (mask,) = last_acts(talk.agent.log.entries())
        assert isinstance(mask, Mask)
        assert (mask.tokens_before, mask.tokens_after) == (tokens, plan.tokens_after)
        assert "dropped" in why_not_in_context(talk.agent.log.entries(), ref)
        asyncio.run(edits.undo())
        assert sent(talk) == before
        assert tokens_of(talk) == tokens
        assert talk.say("Go on.").status == "ok"
        before, tokens = sent(talk), tokens_of(talk)


def test_the_model_drops_only_what_has_no_words_of_the_user(tmp_path: Path) -> None:
    talk = begun(tmp_path)
    edits, record = talk.agent.edits, talk.agent.record
    first, *_, last = of_kind(talk, "result")
    pinned_reply = next(item for item in of_kind(talk, "reply") if item.what.startswith("Bash"))
    record(Pin(ref=first.ref, text="4711"))
    calls = [("q", "AskUser", {"question": "Which?"}), ("d", "Bash", {"command": "rm x"})]
    uses = [{"type": "tool_use", "id": id, "name": tool, "input": i} for id, tool, i in calls]
    asked = record(Assistant(content=uses, stop_reason="tool_use", model="m", usage={}))
    said = record(ToolResult(tool_use_id="q", content="The second one."))
    no = record(ToolResult(tool_use_id="d", content="No.", is_error=True, details={"denied": True}))
    refs = [item.ref for item in edits.items_of_model()]
    assert last.ref in refs
    (message, *_) = of_kind(talk, "message")
    for ref in (message.ref, first.ref, pinned_reply.ref, asked.seq, said.seq, no.seq):
        assert ref not in refs
        with pytest.raises(UsageError, match="only the user can drop it"):
            edits.plan_drop([ref], author="model")
    asyncio.run(edits.drop(refs[:1], author="model"))
    assert "dropped by the model · full text" in str(sent(talk))


def test_each_edit_is_undone_alone(tmp_path: Path) -> None:
    talk = begun(tmp_path)
    first, second = (item.ref for item in of_kind(talk, "message")[:2])
    asyncio.run(talk.agent.edits.drop([first]))
    after_one = sent(talk)
    asyncio.run(talk.agent.edits.drop([second]))
    asyncio.run(talk.agent.edits.undo())
    assert sent(talk) == after_one


def test_a_dropped_item_comes_back_whole(tmp_path: Path) -> None:
    talk = begun(tmp_path)
    edits, before = talk.agent.edits, sent(talk)
    reply = next(item for item in of_kind(talk, "reply") if item.what.startswith("Bash"))
    plan = asyncio.run(edits.drop([reply.ref]))
    assert len(plan.refs) == 3  # with both results
    assert {item.state for item in edits.items() if item.ref in plan.refs} == {"dropped"}
    dropped = sent(talk)
    back = asyncio.run(edits.restore([plan.refs[1]]))
    assert back.refs == plan.refs
    assert sent(talk) == before
    assert (back.tokens_after, plan.tokens_after) == (plan.tokens_before, back.tokens_before)
    asyncio.run(edits.undo())
    assert sent(talk) == dropped
    with pytest.raises(CompactionFailed, match="nothing to drop"):
        asyncio.run(edits.drop([reply.ref]))
    with pytest.raises(CompactionFailed, match="nothing to restore"):
        asyncio.run(edits.restore([of_kind(talk, "message")[0].ref]))
    with pytest.raises(UsageError, match="#9999 is not in the context"):
        asyncio.run(edits.drop([9999]))


def test_the_model_cannot_drop_what_the_user_wrote(tmp_path: Path) -> None:
    talk = begun(tmp_path, turns=1)
    (message,), result = of_kind(talk, "message"), of_kind(talk, "result")[0]
    with pytest.raises(UsageError, match="only the user can drop it"):
        asyncio.run(talk.agent.edits.drop([result.ref, message.ref], author="model"))
    asyncio.run(talk.agent.edits.drop([result.ref], author="model"))
    (mask,) = last_acts(talk.agent.log.entries())
    assert mask.trigger == "by the model"


def test_everything_before_an_item_is_summarised(tmp_path: Path) -> None:
    talk = begun(tmp_path, turns=4)
    edits, before = talk.agent.edits, sent(talk)
    last = of_kind(talk, "message")[-1]
    plan = edits.plan_compact(before=last.ref)
    asyncio.run(edits.compact(before=last.ref))
    (summary,) = last_acts(talk.agent.log.entries())
    assert isinstance(summary, Summary)
    assert summary.keep_from == last.ref
    assert plan.refs[-1] < last.ref
    assert tokens_of(talk) < plan.tokens_before
    asyncio.run(edits.undo())
    assert sent(talk) == before


def test_a_dropped_message_stays_away_from_a_later_summary(tmp_path: Path) -> None:
    talk = begun(tmp_path, turns=4)
    messages = of_kind(talk, "message")
    asyncio.run(talk.agent.edits.drop([messages[1].ref]))
    asyncio.run(talk.agent.edits.compact(before=messages[3].ref))
    text = str(sent(talk))
    assert "Count file 0." in text
    assert "Count file 1." not in text


def test_items_have_prices_and_ages(tmp_path: Path) -> None:
    talk = begun(tmp_path)
    items = talk.agent.edits.items()
    tokens = tokens_of(talk)
    first, last = of_kind(talk, "result")[0], of_kind(talk, "reply")[-1]
    assert first.age == 5
    assert last.age == 0
    assert first.call_usd == pytest.approx(first.tokens * 0.2 / 1e6, rel=0.01)
    assert first.spent_usd == pytest.approx((2.5 + 5 * 0.2) * first.tokens / 1e6, rel=0.01)
    assert sum(item.tokens for item in items) == pytest.approx(tokens, rel=0.5)
    assert {item.state for item in items} == {"whole"}


def test_a_plan_says_when_it_has_paid_for_itself() -> None:
    plan = EditPlan("drop", (4,), 100, 60, 20, 0.10, 0.06, 0.09)
    assert plan.pays_after == 3
    assert EditPlan("drop", (4,), 100, 60, 20).pays_after is None
    assert EditPlan("restore", (4,), 60, 100, 20, 0.06, 0.10, 0.09).pays_after is None
    assert plan.to_json()["refs"] == [4]


def test_an_edit_waits_for_the_end_of_a_model_call(tmp_path: Path) -> None:
    """A reply is bound to the context that was sent for it."""
    talk = begun(tmp_path)
    (ref,) = (item.ref for item in of_kind(talk, "message")[:1])
    edits, tasks = talk.agent.edits, list[asyncio.Task[EditPlan]]()

    def reply(request: Request) -> Step:
        tasks.append(asyncio.get_running_loop().create_task(edits.drop([ref])))
        return Step(text="Answered. " * 20)

    talk.use(ScriptedModel(reply, check=validate, id="later", pace=0.001))
    assert talk.say("And?").status == "ok"
    (drop,) = (mask for mask in talk.of(Mask) if mask.layer == "drop")
    assert drop.seq > talk.of(Assistant)[-1].seq
    assert tasks[0].done()
