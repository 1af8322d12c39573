"""The number of functions that a text passes until it is sent, which may not grow unseen."""

import asyncio
import json
import re
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


# Functions that change the form of a text, and functions of the library before the turn.
FORMS = {
    "agent/border/values.py:clean_text",
    "agent/compaction/document.py:SummaryDocument.to_json",
    "agent/compaction/document.py:render",
    "agent/compaction/summary/user_messages.py:without_messages_section",
    "agent/context/items.py:shown_blocks",
    "agent/library/launch_parts.py:expand_task",
    "agent/models/base.py:text_of",
    "agent/models/wire.py:encode",
    "agent/session/entries.py:decode",
    "agent/session/entries.py:encode",
    "agent/session/log.py:encode_line",
}
# The steps from one summary document to the next, in SummaryApplier._with_facts.
CORRECTIONS = {
    "agent/compaction/own_marks.py:without_marks_in",
    "agent/compaction/summary/merge.py:with_ledger_facts",
    "agent/compaction/summary/merge.py:with_statuses",
    "agent/compaction/summary/open_failures.py:with_open_failures",
    "agent/compaction/summary/shorten.py:shortened_to",
    "agent/compaction/verify/probes.py:add_missed_facts",
}
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "architecture.md"


def listed(title: str) -> set[str]:
    """The functions that the page names for a text, without their classes."""
    page = PAGE.read_text().partition("### Functions between a text and the request")[2]
    own = re.search(rf"^\| {title}\b[^|]*\|([^|]*)\| (\d+) \|$", page, re.M)
    shared = re.search(r"^The (\d+) shared functions are (.*?)\.\n", page, re.M | re.S)
    assert own
    assert shared
    found = [set(re.findall(r"`(agent/[^`]*:\w+)`", part)) for part in (own[1], shared[2])]
    assert len(found[1]) == int(shared[1])
    assert len(found[0] | found[1]) == int(own[2])
    return found[0] | found[1]


def check_page(title: str, functions: list[str], path: TextPath) -> None:
    """Compare the page with the functions that pass the text from module to module. The first one
    gets it from a front end, a tool or a model.
    """
    handed = (path.handed_over(functions) | {functions[0]}) - FORMS - CORRECTIONS
    assert listed(title) == {re.sub(r":\w+\.", ":", name) for name in handed}


def passed(
    project: Path, first: str, last: str = "", *, compacted: bool = False
) -> tuple[list[str], TextPath]:
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
    return list(dict.fromkeys(kept + sent)), path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


# Lower a bound when the path gets shorter. See "One turn" in docs/internals/architecture.md.


def test_the_path_of_a_message(project: Path) -> None:
    functions, path = passed(project, f"Find {TEXT}.")
    assert len(functions) <= 33, functions
    check_page("message of the user", functions, path)


def test_the_path_of_a_result(project: Path) -> None:
    (project / "a.txt").write_text(f"{TEXT}\n")
    functions, path = passed(project, "read a.txt")
    assert len(functions) <= 31, functions
    check_page("result of a tool", functions, path)


def test_the_path_of_a_summary(project: Path) -> None:
    (project / "a.txt").write_text("a line of a file that is long\n" * 1_000)
    functions, path = passed(project, "read a.txt", "go on", compacted=True)
    assert len(functions) <= 60, functions
    check_page("summary", functions, path)
