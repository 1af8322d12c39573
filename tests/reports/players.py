"""Play the situation of a report. Each player has the name of a kind, takes a row of that kind, and
asserts what the row expects.

Fields of all kinds: `source` (repository and thread), `situation`, and one of the fields below that
names the expected outcome. A text that must not occur begins with `!`.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from prompt_toolkit.utils import get_cwidth

from ctxagent.agent.models.base import text_of
from ctxagent.agent.models.chat.draft import ChatDraft
from ctxagent.agent.models.factory import full_model_id
from ctxagent.agent.models.messages.draft import ReplyDraft
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.models.transport import parse_events
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.session.entries import Assistant, ToolResult, User
from ctxagent.agent.ui.cells import cut_to_cells
from ctxagent.tools.system.unicode import clean

from ..permissions.test_approval import judge
from ..support.command import Place
from ..support.sessions.conversation import Conversation

Row = dict[str, Any]


def tool(row: Row, folder: Path) -> None:
    """Run `calls` of a model, in a project with `files` in the `encoding`. Expect `says` in the
    last result, `error` (whether it failed), at most `max_chars`, and the files `after`.
    """
    project = _project(row, folder)
    steps = [Step(tools=[(name, given)]) for name, given in row["calls"]]
    talk = Conversation(project, [*steps, Step(text="done")])
    assert talk.say("go").status == "ok"
    last = talk.of(ToolResult)[-1]
    _check(row.get("says", ()), str(last.content))
    assert last.is_error is row.get("error", False), last.content
    assert len(last.content) <= row.get("max_chars", len(last.content))
    for name, text in row.get("after", {}).items():
        assert (project / name).read_bytes() == text.encode(row.get("encoding", "utf-8"))


def permission(row: Row, folder: Path) -> None:
    """Judge a `call` by the rules `allow`, `ask` and `deny`. Expect the `verdict`."""
    project = _project(row, folder)
    for name, target in row.get("links", {}).items():
        (project / name).symlink_to(target)
    rules = {kind: row.get(kind, ()) for kind in ("allow", "ask", "deny")}
    approval = Approval(mode=row.get("mode", "ask"), cwd=project, **rules)
    found = judge(approval, *row["call"])
    assert found.action == row["verdict"], found


def stream(row: Row, folder: Path) -> None:
    """Read the `events` of a reply over a `protocol`. Expect `text`, `calls` and the `stop` reason,
    or that the reply is not `complete`.
    """
    draft = ChatDraft("m") if row["protocol"] == "chat" else ReplyDraft("m")
    data = "".join(f"data: {each}\n\n" for each in row["events"])

    async def chunks() -> AsyncIterator[bytes]:
        yield data.encode()

    async def read() -> None:
        async for event in parse_events(chunks()):
            list(draft.take(event))

    asyncio.run(read())
    assert bool(draft.complete) is row.get("complete", True)
    if not draft.complete:
        return
    reply = draft.reply()
    calls = [[b["name"], b["input"]] for b in reply.content if b["type"] == "tool_use"]
    assert calls == row.get("calls", [])
    assert text_of(reply.content) == row.get("text", "")
    assert reply.stop_reason == row["stop"]


def reply(row: Row, folder: Path) -> None:
    """Give the `text` of a reply. Expect that it `is` calls that run, text that the model is asked
    about, or an answer.
    """
    project = _project(row, folder)
    talk = Conversation(project, [Step(text=row["text"]), Step(text="Done.")])
    status = talk.say("go").status
    calls = [b for b in talk.of(Assistant)[0].content if b["type"] == "tool_use"]
    asked = [entry for entry in talk.of(User) if entry.source == "notice"] if not calls else []
    found = "calls" if calls else "asked" if asked else "answer"
    assert (found, status) == (row["is"], "error" if found == "asked" else "ok")
    assert [block["name"] for block in calls] == row.get("names", [])


def command(row: Row, folder: Path) -> None:
    """Run the command with `arguments` and `stdin`. Expect the exit `code`, what it `prints` and
    `says` on stderr, and the `task` that the model gets.
    """
    place = Place(folder)
    script = folder / "script.json"
    steps = [*row.get("steps", ()), {"text": "Yes."}]
    script.write_text(json.dumps({"steps": steps}))
    model = () if "--model" in row["arguments"] else ("-c", f"model.id=scripted:{script}")
    done = place.run(*model, *row["arguments"], stdin=row.get("stdin"))
    assert done.returncode == row.get("code", 0), done.stderr
    _check(row.get("prints", ()), done.stdout)
    _check(row.get("says", ()), done.stderr)
    if "task" in row:
        messages = [e["content"] for e in place.entries() if e["kind"] == "user"]
        assert row["task"] in messages


def mcp(row: Row, folder: Path) -> None:
    """Call `tool` of a server with `answers` and `errors`. Expect `says` in the result, and `error`
    (whether it failed).
    """
    place = Place(folder)
    answers = {**row["answers"], "errors": row.get("errors", {})}
    (folder / "answers.json").write_text(json.dumps(answers))
    program = [str(Path(__file__).with_name("mcp_server.py")), str(folder / "answers.json")]
    servers = {"reported": {"command": sys.executable, "args": ["-I", *program]}}
    own = folder / "home" / ".config" / "ctxagent" / "mcp.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"mcpServers": servers}))
    call = {"tool": f"mcp__reported__{row['tool']}", "arguments": row.get("arguments", {})}
    script = folder / "script.json"
    steps = [{"tools": [{"name": "Mcp", "input": call}]}, {"text": "done"}]
    script.write_text(json.dumps({"steps": steps}))
    options = ("-c", f"model.id=scripted:{script}", "--allow", "mcp__reported__*")
    done = place.run("-p", "go", *options)
    assert done.returncode == 0, done.stderr
    (result,) = (entry for entry in place.entries() if entry["kind"] == "tool_result")
    _check(row["says"], json.dumps(result["content"], ensure_ascii=False))
    assert result.get("is_error", False) is row.get("error", False)
    assert result["is_error"] is row.get("error", False)


def screen(row: Row, folder: Path) -> None:
    """Show a `text` on a terminal. Expect what it `shows` in `cells`."""
    shown = clean(row["text"])
    if "cells" in row:
        shown = cut_to_cells(shown, row["cells"])
        assert get_cwidth(shown) <= row["cells"]
    assert shown == row["shows"]


def model(row: Row, folder: Path) -> None:
    """Choose a model by its `name`. Expect its `id`."""
    assert full_model_id(row["name"], None, {}) == row["id"]


PLAYERS = {
    each.__name__: each for each in (tool, permission, stream, reply, command, mcp, screen, model)
}


def _project(row: Row, folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    for name, text in row.get("files", {}).items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        repeated = text * row.get("repeat", 1)
        path.write_bytes(repeated.encode(row.get("encoding", "utf-8")))
        if "mode" in row and row["kind"] == "tool":
            os.chmod(path, int(row["mode"], 8))  # noqa: PTH101
    return project


def _check(wanted: Sequence[str], found: str) -> None:
    for text in wanted:
        assert (text.removeprefix("!") in found) is not text.startswith("!"), (text, found)
