"""One pass over a log folds the same view as the two passes that a revert needs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.view import Folding, fold, start_folding
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    ToolResult,
    User,
)

_KINDS = st.sampled_from(["user", "environment", "reply", "call", "mask", "summary", "revert"])
_STEPS = st.lists(st.tuples(_KINDS, st.integers(1, 30)), max_size=30)


def _entry(kind: str, seq: int, number: int) -> list[Entry]:
    earlier = 1 + number % seq
    usage = {"input": 40 * number, "output": number}
    if kind in ("user", "environment"):
        return [
            User(seq=seq, content="go on " * number, source="person" if kind == "user" else kind)
        ]
    if kind == "mask":
        target = {"seq": earlier, "tool_use_id": f"c{earlier - 1}", "stub": "[stub]"}
        rest = {"tokens_before": 2, "tokens_after": 1, "trigger": "auto"}
        return [Mask(seq=seq, layer="demote", targets=[target], **rest)]
    if kind == "summary":
        return [
            Summary(
                seq=seq, document={}, text="so far", covers=[1, earlier], keep_from=earlier + 1,
                keep=[number], replaces_earlier=number % 2 == 0,
            )
        ]  # fmt: skip
    if kind == "revert":
        return [Revert(seq=seq, target=earlier)]
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "all " * number}]
    if kind == "call":
        content += [{"type": "tool_use", "id": f"c{seq}", "name": "Bash", "input": {}}]
    reply = Assistant(seq=seq, content=content, usage=usage, stop_reason="end_turn", model="m")
    answer = ToolResult(seq=seq + 1, tool_use_id=f"c{seq}", content="line " * number)
    return [reply, answer] if kind == "call" else [reply]


@pytest.mark.slow
@settings(max_examples=300)
@given(_STEPS)
def test_a_fold_is_the_same_in_one_pass_and_in_two(steps: list[tuple[str, int]]) -> None:
    entries: list[Entry] = [Session(seq=1, id="s", cwd="/", version="1", model="m", system="Be.")]
    for kind, number in steps:
        entries += _entry(kind, len(entries) + 1, number)
    assert fold(entries) == start_folding(entries).view
    live = Folding()
    for place, entry in enumerate(entries, 1):
        if not live.add(entry):
            live = start_folding(entries[:place])
    assert live.view == fold(entries)
