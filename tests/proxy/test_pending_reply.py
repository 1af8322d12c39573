"""The engine can ask a question before the client has sent the newest reply back."""

import pytest

from ctxagent.addons.proxy.host import EngineQuestion
from ctxagent.agent.session.store import Project

from ..support.server.loopback import Say, Server
from .test_routes import EAGER, Own, ask, history, project, results_of, run

__all__ = ["project"]  # the fixture


@pytest.mark.slow
def test_a_question_goes_behind_what_the_client_has_sent(project: Project) -> None:
    with Server([Say("One."), Say("An answer.")]) as server:
        own = Own(project, server.url, EAGER)

        async def go() -> None:
            await ask(own, history(6))
            (session,) = own.proxy.exchanges.conversations.open
            assert session.pending is not None
            assert session.host.ask is not None
            reply = await session.host.ask(EngineQuestion("What was done?", (), 100))
            assert reply.content[0]["text"] == "An answer."

        run(own, go)
        assert server.rejected == []
        first, question = server.requests
        assert results_of(question) == results_of(first)
        assert "One." not in str(question["messages"])
        assert "What was done?" in str(question["messages"][-1])
