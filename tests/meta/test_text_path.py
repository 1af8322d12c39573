"""The number of functions that a text passes until it is sent, which may not grow unseen."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from ctxagent.agent.library.agent import Agent

from ..support.server.loopback import Body, Say, Server
from ..support.text_path import TextPath

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="the trace and its bounds are those of Python 3.11"
)
VIEW = "agent/context/view.py:View._append"
BODY = "agent/models/wire.py:encode"
ASK = "agent/loop/model_session.py:ModelSession.ask"

TEXT = "a marble compass"
RECORD = f"## Session Intent\nFind {TEXT}.\n\n" + "".join(
    f"## {title}\n{text}\n\n"
    for title, text in (
        ("Key Decisions", "1. One room after the other."),
        ("Current State", "Phase: searching\n- Done: the cellar"),
        ("Critical Facts", "1. The house has two floors."),
        ("Errors Encountered & Resolutions", "None."),
        ("Next Steps", "1. The attic."),
    )
)


def answer(body: Body) -> Say:
    """Read the file that the first message names, and write a summary when asked for one."""
    said = json.dumps(body["messages"][-1])
    if "is about to be compressed" in said:
        return Say(RECORD)
    if "read " in said and len(body["messages"]) == 1:
        return Say(tools=[("Read", {"path": "a.txt"})])
    return Say("Done.")


def passed(project: Path, first: str, last: str = "", *, compacted: bool = False) -> list[str]:
    """The functions that TEXT passes in the last of two turns, or in the first if there is one."""
    path = TextPath(TEXT)

    async def run(agent: Agent) -> None:
        if not compacted:
            with path:
                await agent.run(first)
            return
        for message in (first, "and again", "and again"):
            await agent.run(message)
        with path:
            await agent.state.engine.compact()
            await agent.run(last)

    async def session(url: str) -> None:
        environ = {"HOME": str(project.parent), "ANTHROPIC_BASE_URL": url}
        environ |= {"ANTHROPIC_API_KEY": "test-Abc123Def456", "PATH": "/usr/bin:/bin"}
        settings = {"permissions.mode": "bypass", "compact.summarizer": "model"}
        async with Agent(project, environ=environ, settings=settings) as agent:
            await run(agent)

    with Server(answer) as server:
        asyncio.run(session(server.url))
    assert server.rejected == []
    assert TEXT in json.dumps(server.requests[-1])
    kept, step = path.before(VIEW)
    if compacted:
        kept = kept[kept.index(ASK) :]
    sent, _ = path.before(BODY, step)
    return list(dict.fromkeys(kept + sent))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


# Lower a bound when the path gets shorter. See "One turn" in docs/internals/architecture.md.


def test_the_path_of_a_message(project: Path) -> None:
    functions = passed(project, f"Find {TEXT}.")
    assert len(functions) <= 34, functions


def test_the_path_of_a_result(project: Path) -> None:
    (project / "a.txt").write_text(f"{TEXT}\n")
    functions = passed(project, "read a.txt")
    assert len(functions) <= 32, functions


def test_the_path_of_a_summary(project: Path) -> None:
    (project / "a.txt").write_text("a line of a file that is long\n" * 1_000)
    functions = passed(project, "read a.txt", "go on", compacted=True)
    assert len(functions) <= 60, functions
