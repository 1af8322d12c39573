"""The items of the context by their refs: listed, and edited after a question."""

import re
from pathlib import Path

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.models.scripted import Step

from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk


@pytest.fixture
def desk(tmp_path: Path) -> CommandDesk:
    (tmp_path / "big.txt").write_text("word " * 3_000)
    steps = [Step(tools=[("Read", {"path": "big.txt"})]), Step(text="It is full of words.")]
    talk = Conversation(tmp_path, steps)
    talk.say("what is in big.txt?")
    return CommandDesk(talk)


def test_items_are_listed_and_edited_by_their_refs(desk: CommandDesk) -> None:
    rows = desk.run("/context list").splitlines()
    assert any(re.match(r" *#4 +result +[\d,]+ .* whole +Read big.txt", row) for row in rows), rows
    assert "no item matches" in desk.run("/context list zebra")
    before = desk.agent.model.current_window().tokens
    desk.line.screen.answers = ["n", "y", "y"]
    assert "nothing has changed" in desk.run("/context drop #4")
    shown = desk.run("/context drop 4")
    assert f"drop #4: {before:,} → " in shown
    assert "dropped #4: " in shown
    assert "dropped" in desk.run("/context list big.txt")
    assert f"the context has {before:,} tokens" in desk.run("/context undo")
    assert desk.line.screen.asked == ["[y]es, apply it · [n]o"] * 3
    for wrong in ("drop", "drop it", "compact 4", "undo 4", "all"):
        with pytest.raises(UsageError):
            desk.run(f"/context {wrong}")
    with pytest.raises(UsageError, match="#99 is not in the context"):
        desk.run("/context drop 99")
