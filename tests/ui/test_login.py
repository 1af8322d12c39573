"""`/login` and `/logout` without a terminal to ask for a key."""

from pathlib import Path

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.models.scripted import Step

from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk


@pytest.fixture
def desk(tmp_path: Path) -> CommandDesk:
    talk = Conversation(tmp_path, [Step(text="Hello.")])
    talk.say("hi")
    return CommandDesk(talk)


def test_the_providers_are_listed_where_no_key_can_be_typed(desk: CommandDesk) -> None:
    shown = desk.run("/login")
    assert "runs here, 1 model" in shown
    assert "export NAME" in shown
    assert desk.screen.asked == []


def test_only_a_kept_key_can_be_forgotten(desk: CommandDesk) -> None:
    assert "no saved key for openai" in desk.run("/logout openai")
    assert "no saved key for moonshot" in desk.run("/logout Kimi")
    with pytest.raises(UsageError, match="'walrus' is not a provider"):
        desk.run("/logout walrus")
