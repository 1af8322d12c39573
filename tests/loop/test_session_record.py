"""The log of a conversation and the state computed from it."""

from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import Assistant, Mask, Revert, Session, ToolResult, User

CALL = {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "a"}}


def test_a_revert_counts_after_the_view_is_computed_again(handle: LiveSession) -> None:
    handle.record(Session(id="s", cwd="/", version="0", model="m"))
    handle.record(User(content="go"))
    handle.record(Assistant(content=[CALL], usage={}, stop_reason="tool_use", model="m"))
    result = handle.record(ToolResult(tool_use_id="c", content="long " * 100))
    stub = {"seq": result.seq, "tool_use_id": "c", "stub": "[cleared]"}
    mask = handle.record(
        Mask(layer="l", targets=[stub], tokens_before=9, tokens_after=1, trigger="t")
    )
    assert handle.view.results()[0].masked
    handle.record(Revert(target=mask.seq))
    assert handle.view.results()[0].masked
    handle.rebuild_view()
    assert not handle.view.results()[0].masked


def test_what_is_recorded_is_counted(handle: LiveSession) -> None:
    usage = {"input": 7, "cache_read": 0, "cache_creation": 0, "output": 1}
    handle.record(User(content="go"))
    handle.record(Assistant(content=[], usage=usage, stop_reason="end_turn", model="m"))
    assert (handle.totals.turns, handle.totals.all.usage.input) == (1, 7)
    assert handle.checkpoints.newest == 1
    assert handle.folder == handle.log.path.parent
