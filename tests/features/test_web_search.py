"""Web searches: whether a session has them, and what is removed if a server refuses.
`e2e/test_web_search.py` tests them with the real command.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import (
    ModelSettings,
    PermissionSettings,
    Settings,
    WebSettings,
)
from ctxagent.agent.context.request import build_messages
from ctxagent.agent.errors import PromptTooLong, RequestRejected
from ctxagent.agent.events import Event, Notice
from ctxagent.agent.features.web_search import WebSearchFeature, has_web_searches
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.factory import make_model
from ctxagent.agent.session.entries import Assistant, Mask, Session, User
from ctxagent.agent.session.searches import WIRE_NAME

TOOL = {"name": WIRE_NAME, "type": "web_search_20250305"}
CLAUDE = ModelSettings(id="claude-sonnet-5-5")


@pytest.mark.parametrize(
    ("settings", "environ", "expected"),
    [
        ({}, {}, True),
        ({"web": WebSettings(search="off")}, {}, False),
        ({}, {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}, False),
        ({"web": WebSettings(search="on")}, {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}, True),
        ({}, {"ANTHROPIC_BASE_URL": "https://api.anthropic.com/v1"}, True),
        ({"permissions": PermissionSettings(deny=("WebSearch",))}, {}, False),
        ({"permissions": PermissionSettings(ask=("WebSearch",))}, {}, False),
    ],
)
def test_a_new_session_has_searches_where_the_public_api_makes_them(
    tmp_path: Path, settings: Mapping[str, Any], environ: Mapping[str, str], expected: bool
) -> None:
    made = replace(replace(Settings(), model=CLAUDE), **settings)
    model = make_model(made, {"ANTHROPIC_API_KEY": "k", **environ}, tmp_path)
    assert has_web_searches(made, model.abilities.searches_web, []) is expected


def test_a_session_keeps_what_it_began_with() -> None:
    assert not has_web_searches(Settings(), True, [{"name": "Bash"}])
    assert has_web_searches(Settings(), True, [{"name": "Bash"}, TOOL])
    assert has_web_searches(Settings(), None, [TOOL])
    assert not has_web_searches(Settings(), False, [TOOL])  # such a model cannot be sent it


def searched(session: LiveSession, *, is_whole: bool = True) -> WebSearchFeature:
    """Return the feature in a session with one search, which has no result unless it `is_whole`."""
    feature = WebSearchFeature(session, None, has_tool=True)
    session.tools += feature.tools()
    session.record(Session(id="s", cwd="/", version="0", model="m", tools=[{"name": "Bash"}, TOOL]))
    session.record(User(content="What do walruses eat?"))
    search = {
        "type": "server_tool_use", "id": "srvtoolu_1", "name": WIRE_NAME,
        "input": {"query": "walrus food"},
    }  # fmt: skip
    page = {
        "type": "web_search_result", "title": "All of walruses", "url": "https://a.example",
        "encrypted_content": "x" * 9_000,
    }  # fmt: skip
    found = {
        "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page],
    }  # fmt: skip
    text = {"type": "text", "text": "Clams."}
    blocks = [search, *([found] if is_whole else []), text]
    session.record(Assistant(content=blocks, usage={}, stop_reason="end_turn", model="m"))
    return feature


def refused(feature: WebSearchFeature, message: str, status: int = 400) -> bool:
    return asyncio.run(feature.request_refused(RequestRejected(message, status=status)))


def sent(session: LiveSession) -> str:
    return str(build_messages(session.view.items))


def notices(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def test_the_tool_is_there_where_the_server_searches(session: LiveSession) -> None:
    assert [tool.name for tool in searched(session).tools()] == ["WebSearch"]
    assert WebSearchFeature(session, None, has_tool=False).tools() == []


@pytest.mark.parametrize("message", ["unknown tool type web_search_20250305", "tools.1: unknown"])
def test_a_server_without_the_tool_is_asked_without_it(
    session: LiveSession, events: list[Event], message: str
) -> None:
    feature = searched(session)
    assert refused(feature, message)
    assert "WebSearch" not in [tool.name for tool in session.tools]
    assert isinstance([*session.log.entries()][-1], Session)
    (notice,) = notices(events)
    assert notice.startswith("this server does not search the web (")
    assert notice.endswith("an MCP server with a search tool could, but none is configured")


def test_results_that_a_server_does_not_take_become_titles(
    session: LiveSession, events: list[Event]
) -> None:
    feature = searched(session)
    assert "xxxx" in sent(session)
    assert refused(feature, "messages.1: unexpected server_tool_use")
    (mask,) = (entry for entry in session.log.entries() if isinstance(entry, Mask))
    assert mask.layer == "web search"
    assert "xxxx" not in sent(session)
    assert "All of walruses" in sent(session)
    assert "their titles are sent" in notices(events)[0]
    assert refused(feature, "messages.1: unexpected server_tool_use")  # now without the tool
    assert "does not search the web" in notices(events)[1]


def test_a_refusal_without_a_reason_removes_the_tool_and_the_results(
    session: LiveSession, events: list[Event]
) -> None:
    feature = searched(session)
    assert refused(feature, "")
    assert "WebSearch" not in [tool.name for tool in session.tools]
    assert "xxxx" not in sent(session)
    assert len(notices(events)) == 2


def test_a_search_without_a_result_is_left_out(session: LiveSession, events: list[Event]) -> None:
    feature = searched(session, is_whole=False)
    message = "messages.1: server_tool_use srvtoolu_1 without a corresponding result"
    assert refused(feature, message)
    assert "srvtoolu_1" not in sent(session)
    assert notices(events) == []


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("the image is too large", 400),
        ("tools.0: unknown", 400),
        ("web_search is overloaded", 529),
    ],
)
def test_other_refusals_are_left_alone(session: LiveSession, message: str, status: int) -> None:
    feature = searched(session)
    before = session.log.last_seq
    assert not refused(feature, message, status)
    too_long = PromptTooLong("web_search made the prompt too long", status=400)
    assert not asyncio.run(feature.request_refused(too_long))
    assert session.log.last_seq == before
