"""A plan: proposed, approved, recorded, and inserted again after a summary. `e2e/test_plan.py`
tests it with the real command.
"""

import asyncio
from collections.abc import Sequence

import pytest

from ctxagent.agent.errors import ToolError, UsageError
from ctxagent.agent.events import Answer, Event, Notice, Question
from ctxagent.agent.features.plan import DONE, PLAN_FILE, PlanFeature
from ctxagent.agent.loop.interface import Turn
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import PLAN, ToolResult, User
from ctxagent.tools.base import Output
from ctxagent.tools.offered import EVERY
from ctxagent.tools.plan import plan_text

POOL = plan_text("# Give the walrus a pool\n\nIt lies in `pool.py`.", ["Dig", "Fill"])
LAKE = plan_text("# Give the walrus a lake", ["Dig more"])


def plan(session: LiveSession, answer: Answer | None = None) -> PlanFeature:
    """Return the feature with a user who gives this answer; None for no user."""

    async def ask(question: Question) -> Answer | None:
        assert question.plan
        return answer

    session.ask = ask if answer else None
    return PlanFeature(session)


def propose(feature: PlanFeature, text: str = POOL) -> Output:
    return asyncio.run(feature.propose(text))


def step(feature: PlanFeature) -> str | None:
    return asyncio.run(feature.step_finished())


def users(session: LiveSession, source: str = PLAN) -> list[User]:
    entries = session.log.entries()
    return [each for each in entries if isinstance(each, User) and each.source == source]


def texts(entries: Sequence[object]) -> list[str]:
    return [str(each.content) for each in entries if isinstance(each, User)]


def test_a_plan_that_the_user_agrees_to_is_recorded_after_the_results(
    session: LiveSession,
) -> None:
    session.approval.mode = "plan"
    feature = plan(session, Answer(allow=True, mode="accept-edits"))
    output = propose(feature)
    assert output.details["plan"] == {"text": POOL, "agreed": True}
    assert users(session) == []
    assert step(feature) is None
    (recorded,) = users(session)
    assert recorded.content == f"[The user agrees to this plan:]\n\n{POOL}"
    assert [todo["content"] for todo in session.context.todos] == ["Dig", "Fill"]
    assert (session.folder / PLAN_FILE).read_text() == f"{POOL}\n"
    (notice,) = users(session, "notice")
    assert str(notice.content).startswith("The permission mode is now accept-edits")
    assert session.approval.mode == "accept-edits"
    assert step(feature) is None
    assert len(users(session)) == 1


def test_a_plan_counts_as_the_user_edited_it(session: LiveSession) -> None:
    feature = plan(session, Answer(allow=True, plan=LAKE))
    assert propose(feature).text.startswith("The user has edited the plan")
    step(feature)
    assert LAKE in str(users(session)[0].content)


def test_a_plan_that_the_user_declines_is_not_kept(session: LiveSession) -> None:
    feature = plan(session, Answer(allow=False, reason="A lake is too large."))
    output = propose(feature, LAKE)
    assert output.details == {"declined": True}
    assert "They say: A lake is too large." in output.text
    assert session.queued_messages == [
        "[Of the proposed plan 'Give the walrus a lake':] A lake is too large."
    ]
    assert step(feature) is None
    assert users(session) == []


@pytest.mark.parametrize(("mode", "ends"), [("plan", True), ("ask", False)])
def test_without_a_user_a_run_that_only_plans_ends_with_the_plan(
    session: LiveSession, mode: str, ends: bool
) -> None:
    session.approval.mode = mode  # type: ignore[assignment]
    feature = plan(session)
    propose(feature)
    assert step(feature) == (POOL if ends else None)
    assert str(users(session)[0].content).startswith("[This plan was proposed.")
    assert step(feature) is None


def test_a_run_whose_answer_has_a_schema_does_not_end_with_the_plan(session: LiveSession) -> None:
    session.approval.mode = "plan"
    feature = plan(session)
    asyncio.run(feature.turn_started(Turn(schema={"type": "object"})))
    propose(feature)
    assert step(feature) is None


def test_a_plan_that_is_too_long_or_has_no_steps_is_refused(session: LiveSession) -> None:
    feature = plan(session, Answer(allow=True))
    with pytest.raises(ToolError, match="the plan has no steps"):
        propose(feature, "# Only words")
    long = plan_text("word " * 20_000, ["Dig"])
    with pytest.raises(UsageError, match="a plan may take 16,000 of this window"):
        feature.check(long)
    assert feature.check(POOL) == ""


def test_a_summary_that_drops_the_plan_gives_it_again(session: LiveSession) -> None:
    feature = plan(session)
    assert feature.reinserted([]) == []
    feature.keep(POOL)
    (recorded,) = users(session)
    assert feature.reinserted([recorded.seq]) == []
    (again,) = texts(feature.reinserted([]))
    assert again.startswith(f"[The user agrees to this plan, in #{recorded.seq}; it still holds:]")
    assert again.endswith(POOL)


def test_a_completed_plan_is_only_named(session: LiveSession) -> None:
    feature = plan(session)
    feature.keep(POOL)
    (recorded,) = users(session)
    for todo in session.ledger.todos:
        todo["status"] = "completed"
    title = "Give the walrus a pool"
    assert texts(feature.reinserted([])) == [EVERY.say(*DONE, ref=recorded.seq, title=title)]


def test_a_plan_that_was_dropped_is_not_given_again(session: LiveSession) -> None:
    feature = plan(session)
    feature.keep(POOL)
    feature.drop()
    assert session.ledger.plan is None
    assert feature.reinserted([]) == []


def test_a_plan_that_a_kill_left_unrecorded_is_recorded_with_the_next_message(
    session: LiveSession,
) -> None:
    output = propose(plan(session, Answer(allow=True)))
    session.record(ToolResult(tool_use_id="c1", content=output.text, details=output.details))
    feature = PlanFeature(session)  # of the process that resumes
    assert feature.first_entries() == []
    asyncio.run(feature.turn_started(Turn()))
    assert POOL in str(users(session)[0].content)


def test_the_model_is_told_to_plan_and_to_stop_planning(session: LiveSession) -> None:
    feature = plan(session)

    def notices_of_a_turn() -> list[str]:
        before = len(users(session, "notice"))
        asyncio.run(feature.turn_started(Turn()))
        return texts(users(session, "notice")[before:])

    assert notices_of_a_turn() == []
    session.approval.mode = "plan"
    assert notices_of_a_turn()[0].startswith("The permission mode is now plan: change nothing")
    assert notices_of_a_turn() == []
    session.approval.mode = "ask"
    assert notices_of_a_turn()[0].startswith("The permission mode is now ask")
    session.tools[:] = [tool for tool in session.tools if tool.name != "Plan"]
    session.approval.mode = "plan"
    assert notices_of_a_turn() == []  # a subagent, which has no tool for it


def test_a_copy_that_cannot_be_written_is_a_warning(
    session: LiveSession, events: list[Event]
) -> None:
    (session.folder / PLAN_FILE).mkdir(parents=True)
    plan(session).keep(POOL)
    assert len(users(session)) == 1
    (notice,) = events
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert PLAN_FILE in notice.text
