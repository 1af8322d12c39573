"""Files are sent without line numbers, and nothing of them is lost."""

import asyncio
import json
from pathlib import Path

import pytest

from ctxagent.agent.library.agent import Agent
from ctxagent.agent.session.entries import Note, Summary, ToolResult

from ..support.server.loopback import Body, Say, Server

LINES = [f"value_{n} = {n * n}" for n in range(1, 200)]
NUMBERED = "\n".join(f"{n}\t{line}" for n, line in enumerate(LINES, 1))
SUMMARY = "## Session Intent\nRead the values.\n\n## Next Steps\n1. Go on.\n"


def answer(body: Body) -> Say:
    said = json.dumps(body["messages"][-1])
    if "is about to be compressed" in said:
        return Say(SUMMARY)
    if "read it" in said:
        return Say(tools=[("Read", {"path": "a.py"}), ("Read", {"path": "a.py", "offset": 100})])
    if "recall" in said:
        return Say(tools=[("Recall", {"ref": said.rpartition("#")[2].partition('"')[0]})])
    return Say("Done.")


@pytest.mark.parametrize("line_numbers", [False, True])
def test_only_the_requests_lack_them(tmp_path: Path, line_numbers: bool) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("\n".join(LINES) + "\n")

    async def play(url: str) -> tuple[list[ToolResult], Summary, list[Note]]:
        environ = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": url, "PATH": "/usr/bin:/bin"}
        environ["ANTHROPIC_API_KEY"] = "test-Abc123Def456"
        settings = {"permissions.mode": "bypass", "compact.keep_tokens": 0}
        settings |= {"compact.keep_messages": 1, "move.line_numbers": line_numbers}
        async with Agent(project, environ=environ, settings=settings) as agent:
            await agent.run("read it")
            log = agent.state.log
            read = [entry for entry in log.entries() if isinstance(entry, ToolResult)]
            for message in ("one", "two", "three"):
                await agent.run(message)
            await agent.state.engine.compact()
            await agent.run(f"recall #{read[0].seq}")
            entries = [*log.entries()]
            (summary,) = (entry for entry in entries if isinstance(entry, Summary))
            notes = [entry for entry in entries if isinstance(entry, Note)]
            return read, summary, notes

    with Server(answer) as server:
        read, summary, notes = asyncio.run(play(server.url))
    assert server.rejected == []
    assert read[0].content == NUMBERED
    assert summary.probes["recovery"] == {"asked": 2, "ok": 2}
    assert [note for note in notes if note.topic == "warning"] == []
    first = server.requests[1]["messages"][-1]["content"]
    sent = [block["content"] for block in first if block["type"] == "tool_result"]
    if line_numbers:
        assert sent == [entry.content for entry in read]
    else:
        assert sent == ["\n".join(LINES), "\n".join(["[from line 100]", *LINES[99:]])]
    assert NUMBERED.splitlines()[5] in json.dumps(server.requests[-1]).replace("\\t", "\t")
