"""The log of a conversation and the state computed from it."""

from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import Assistant, Mask, Revert, Session, ToolResult, User

CALL = {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "a"}}


def test_a_revert_counts_after_the_view_is_computed_again(session: LiveSession) -> None:
    session.record(Session(id="s", cwd="/", version="0", model="m"))
    session.record(User(content="go"))
    session.record(Assistant(content=[CALL], usage={}, stop_reason="tool_use", model="m"))
    result = session.record(ToolResult(tool_use_id="c", content="long " * 100))
    stub = {"seq": result.seq, "tool_use_id": "c", "stub": "[cleared]"}
    mask = session.record(
        Mask(layer="l", targets=[stub], tokens_before=9, tokens_after=1, trigger="t")
    )
    assert session.view.results()[0].masked
    session.record(Revert(target=mask.seq))
    assert session.view.results()[0].masked
    session.rebuild_view()
    assert not session.view.results()[0].masked


def test_what_is_recorded_is_counted(session: LiveSession) -> None:
    usage = {"input": 7, "cache_read": 0, "cache_creation": 0, "output": 1}
    session.record(User(content="go"))
    session.record(Assistant(content=[], usage=usage, stop_reason="end_turn", model="m"))
    assert (session.totals.turns, session.totals.all.usage.input) == (1, 7)
    assert session.checkpoints.newest == 1
    assert session.folder == session.log.path.parent
