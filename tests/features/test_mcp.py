"""The MCP servers of a conversation. `e2e/test_mcp.py` tests them with the real command."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxagent.agent.config.settings import Settings
from ctxagent.agent.events import Answer, Event, Notice, Question
from ctxagent.agent.extensions.mcp.config import ServerConfig
from ctxagent.agent.extensions.mcp.servers import McpServers
from ctxagent.agent.features.mcp import McpFeature, report_problems, servers_of_session
from ctxagent.agent.launch import LaunchOptions, Places
from ctxagent.agent.loop.live_session import LiveSession

from ..support.starts import start_gate

PLAIN = Path(__file__).parents[1] / "support" / "mcp" / "plain.py"

Start = Callable[..., McpServers]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server "plain" that behaves as its first argument says."""
    started: list[McpServers] = []

    def servers(behaviour: str = "ok", **more: object) -> McpServers:
        command = (sys.executable, "-I", "-S", str(PLAIN), behaviour, str(tmp_path / "notes"))
        config = ServerConfig("plain", tmp_path, command=command)
        found = McpServers([config], env={}, cwd=tmp_path, starts=start_gate(tmp_path), **more)  # type: ignore[arg-type]
        found.start()
        started.append(found)
        return found

    yield servers
    for each in started:
        each.close()


async def ask(question: Question) -> Answer | None:
    return None


def names(session: LiveSession) -> list[str]:
    return [tool.name for tool in session.tools if tool.name.lower().startswith("mcp")]


def test_a_session_keeps_the_tool_that_it_began_with(tmp_path: Path) -> None:
    launch = LaunchOptions(
        Settings(), Places(cwd=tmp_path, state=tmp_path, config_home=tmp_path, environ={})
    )
    assert servers_of_session(launch, [{"name": "Bash"}]) is None
    kept = servers_of_session(launch, [{"name": "Mcp"}])
    assert kept is not None
    assert kept.names == []
    servers = McpServers((), env={}, cwd=tmp_path, starts=start_gate(tmp_path))
    configured = launch.with_servers(servers)
    assert servers_of_session(configured, []) is servers


def test_the_tools_of_servers_come_by_way_of_one_tool(session: LiveSession) -> None:
    feature = McpFeature(
        session, McpServers((), env={}, cwd=session.context.cwd, starts=start_gate(session.folder))
    )
    session.tools += feature.tools()
    asyncio.run(feature.prepare())
    assert names(session) == ["Mcp"]


@pytest.mark.slow
def test_tools_that_load_at_start_are_in_the_list_once(session: LiveSession, start: Start) -> None:
    feature = McpFeature(session, start(load_at_start=["plain"]))
    session.tools += feature.tools()
    for _ in range(2):
        asyncio.run(feature.prepare())
    found = names(session)
    assert found[0] == "Mcp"
    assert len(found) == len(set(found)) > 1
    assert all(name.startswith("mcp__plain__") for name in found[1:])


@pytest.mark.slow
@pytest.mark.parametrize("is_watched", [True, False])
def test_only_a_run_without_a_user_waits_for_the_servers_it_needs(
    session: LiveSession, start: Start, is_watched: bool
) -> None:
    servers = start("hang" if is_watched else "die", needed=["plain"])
    session.ask = ask if is_watched else None
    asyncio.run(McpFeature(session, servers).prepare())
    (status,) = servers.status()
    assert (status.state == "failed") is not is_watched


@pytest.mark.slow
def test_a_server_that_fails_is_a_warning(start: Start) -> None:
    events: list[Event] = []
    servers = start("die", needed=["plain"])

    async def run() -> None:
        shown = asyncio.Event()

        def emit(event: Event) -> None:
            events.append(event)
            shown.set()

        report_problems(servers, emit)
        await shown.wait()

    asyncio.run(run())
    (notice,) = events
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert "plain" in notice.text
    assert "no such database" in notice.text


def test_without_servers_nothing_is_reported(session: LiveSession) -> None:
    report_problems(None, session.emit)
