"""No text for the model names a tool that the conversation does not offer.

Each conversation has other tools: those of a preset, of a type of subagent, or all but one. Its
model provokes the refusals, notices and hints of all tools, and the test collects what it gets.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.assembly import base_tools
from ctxagent.agent.compaction.document import FileRow, SummaryDocument, older_facts
from ctxagent.agent.compaction.layers import images, move, short_outline
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS
from ctxagent.agent.compaction.summary.request import summary_text
from ctxagent.agent.compaction.summary.user_messages import messages_section
from ctxagent.agent.features.environment import entry_after_summary, system_prompt
from ctxagent.agent.features.subagent_types import built_in_types
from ctxagent.agent.loop.permission_mode import MEANINGS, mode_notice
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.permissions.rules import TOOL_NAMES
from ctxagent.agent.session.user_messages import LoggedMessage
from ctxagent.tools.base import Tool

from ..support.sessions.conversation import Conversation
from ..support.sessions.setup import every_tool

# Headings and other words that are no advice to use a tool.
OTHER_WORDS = ("Files Read", "## Read", "Todo list: ")

DENYING_RULE = re.compile(r" is denied by the rule \w+")

READS = (
    {"path": "missing.py"}, {"path": "folder"}, {"path": "data.bin"}, {"path": "long.txt"},
    {"path": "latin.txt"}, {"path": "a.txt", "offset": 99}, {"path": "book.ipynb"},
    {"path": "fifo"}, {"path": "bad.pdf"}, {"path": "bad.png"}, {"path": "broken.txt"},
)  # fmt: skip
EDITS = (
    ("a.txt", "walrus walrus", "b"), ("a.txt", "1\tone", "b"), ("a.txt", "one", "one"),
    ("a.txt", "", "text"), ("seen.txt", "one", "b"), ("data.bin", "one", "b"),
    ("latin.txt", "caf", "\u4e16"), ("a.txt", "one", "[redacted: token]"), ("new.txt", "", "text"),
    ("folder", "a", "b"), ("a.txt", "o", "b"), ("a.txt", "one", "\ufffd"),
    ("broken.txt", "text", "new \ufffd\ufffd"),
)  # fmt: skip
CALLS: list[tuple[str, dict[str, Any]]] = [
    *(("Read", given) for given in READS),
    *(("Edit", {"path": p, "old_string": o, "new_string": n}) for p, o, n in EDITS),
    ("Write", {"path": "b.txt", "content": "text"}),
    ("Write", {"path": "seen.txt", "content": "text"}),
    ("Write", {"path": "folder", "content": "text"}),
    ("Write", {"path": "latin.txt", "content": "\u4e16"}),
    ("Glob", {"pattern": "*", "path": "a.txt"}),
    ("Glob", {"pattern": "*", "path": "missing"}),
    ("Glob", {"pattern": "walrus*"}),
    ("Glob", {"pattern": "*"}),
    ("Grep", {"pattern": "walrus", "path": "data.bin"}),
    ("Grep", {"pattern": "x", "path": "long.txt", "output_mode": "content"}),
    ("Grep", {"pattern": "x", "path": "missing"}),
    ("Grep", {"pattern": "walrus"}),
    ("Bash", {"command": "seq 40000"}),
    ("Bash", {"command": "sleep 5", "timeout": 1}),
    ("Bash", {"command": "sleep 30", "run_in_background": True}),
    ("Job", {"action": "list"}),
    ("Job", {"action": "read", "id": "job-9"}),
    ("Job", {"action": "end"}),
    ("Recall", {}),
    ("Recall", {"query": "unicorn"}),
    ("Recall", {"ref": "#999"}),
    ("Recall", {"ref": "#1", "query": "unicorn"}),
    ("Todo", {"todos": []}),
    ("Task", {"description": "Look for it", "prompt": "Look."}),
    ("Task", {"description": "Look for it", "prompt": "Look.", "type": "explore"}),
    ("AskUser", {"questions": []}),
    ("Plan", {"plan": "Do it.", "steps": ["It"]}),
    ("WebFetch", {"url": "http://127.0.0.1:1/"}),
]


def made_project(folder: Path) -> Path:
    """Return a folder with a file for each refusal."""
    (folder / "folder").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nfoo\n")
    (folder / "b.txt").write_text("not seen\n")
    (folder / "seen.txt").write_text("one\n")
    (folder / "data.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "long.txt").write_text("x" * 5_000 + "\n")
    (folder / "latin.txt").write_bytes("caf\xe9 na\xefve \xfcber\n".encode("latin-1"))
    (folder / "broken.txt").write_bytes(b"text \xff\xfe\x80 more text in it\n" * 3)
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4\nnothing\n")
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    os.mkfifo(folder / "fifo")
    output = {"output_type": "stream", "name": "stdout", "text": "y" * 50_000}
    cells = [{"cell_type": "code", "source": "1", "outputs": [output]}] * 2
    (folder / "book.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}))
    return folder


def sets_of_tools() -> Iterator[tuple[str, list[Tool[Any]], tuple[str, ...]]]:
    """Yield a name, the tools and the deny rules of each kind of conversation."""
    types = built_in_types()
    for preset, policy in PRESETS.items():
        yield preset, base_tools(brief=True) if policy.brief else every_tool(types), ()
    for type in types:
        yield f"subagent {type.name}", type.allowed_tools(every_tool(types)), ()
    for tool in every_tool(types):
        others = [each for each in every_tool(types) if each.name != tool.name]
        yield f"without {tool.name}", others, ()
        if tool.name in TOOL_NAMES:
            yield f"denied {tool.name}", every_tool(types), (tool.name,)
    for tool in base_tools():
        yield f"only {tool.name}", [tool], ()


SETS = [
    pytest.param(*each, id=each[0], marks=() if is_usual else pytest.mark.full)
    for each in sets_of_tools()
    for is_usual in [each[0].startswith(("default", "small", "subagent", "denied"))]
]


def rendered_texts(talk: Conversation) -> Iterator[str]:
    """Yield the texts that are made outside of tools, for the tools of this conversation."""
    offered = talk.agent.context.offered
    for brief in (False, True):
        yield offered.rendered(system_prompt(brief=brief))
    for type in built_in_types():
        if "subagent" in talk.cwd.name:
            yield offered.rendered(system_prompt(part=type.prompt))
    for mode in MEANINGS:
        yield mode_notice(mode, offered)
    after = entry_after_summary(
        talk.cwd, mode="plan", todos=[], jobs="", preserved="", changed=["a"], offered=offered
    )
    yield str(after.content)
    row = FileRow("src/", "modified", "2 files modified (Recall `files.md` names each)")
    document = SummaryDocument("Fix it.", facts=(older_facts(7),), modified=(row,))
    long = [LoggedMessage(n, "words " * 900, state="answered") for n in (2, 5, 9)]
    messages = messages_section(long, 60, offered)
    yield summary_text(document, talk.cwd, {7: "word " * 3_000}, messages=messages, offered=offered)
    moved = move.plan("line of text\n" * 9_000, path="/s/x.md", policy=DEFAULT, offered=offered)
    assert moved
    yield moved.reference
    yield short_outline.list_of_steps([], offered)
    yield from (offered.say(*text) for text in (images.OVER_BOUND, images.NOT_TAKEN))


def texts_of(talk: Conversation) -> Iterator[str]:
    """Yield every text that the model of a conversation got, and those that it could get."""
    schemas = talk.agent.tool_schemas()
    names = {tool.name for tool in talk.agent.tools if tool.name in talk.agent.context.offered}
    yield from (json.dumps(schema) for schema in schemas if schema["name"] in names)
    yield from rendered_texts(talk)
    for entry in talk.entries():
        if entry.kind in ("tool_result", "user"):
            content = getattr(entry, "content", "")
            yield content if isinstance(content, str) else json.dumps(content)


def strange_names(text: str, missing: set[str]) -> list[str]:
    """Return the lines of a text that name a missing tool."""
    text = DENYING_RULE.sub("", text)
    for words in OTHER_WORDS:
        text = text.replace(words, "")
    word = re.compile(rf"(?<![\w`/.#-])(?:{'|'.join(sorted(missing))})(?![\w-])")
    return [line[:300] for line in text.split("\n") if word.search(line)]


@pytest.mark.parametrize(("name", "tools", "deny"), SETS)
def test_only_offered_tools_are_named(
    tmp_path: Path, name: str, tools: list[Tool[Any]], deny: tuple[str, ...]
) -> None:
    project = made_project(tmp_path / name.replace(" ", "-"))
    talk = Conversation(project, tools=tools, deny=deny, window=40_000)
    offered = {tool.name for tool in tools if tool.name in talk.agent.context.offered}
    calls = [call for call in CALLS if call[0] in offered]
    steps = [
        Step(tools=calls),
        Step(text="Done."),
        Step(tools=_changing(offered)),
        Step(text="No."),
    ]
    talk.use(ScriptedModel(steps, window=40_000))
    talk.agent.context.seen.note(project / "seen.txt", b"other")
    asyncio.run(_played(talk))
    missing = {*TOOL_NAMES} - offered - {"Network", "Sampling"}
    found = [line for text in texts_of(talk) for line in strange_names(text, missing)]
    assert not found, "\n".join(found)


async def _played(talk: Conversation) -> None:
    """Run a turn, and another one in plan mode."""
    await run_turn(talk.agent, "Go.")
    talk.agent.approval.mode = "plan"
    await run_turn(talk.agent, "And now?")
    await talk.agent.close()


def _changing(offered: set[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return calls that plan mode refuses."""
    calls = [
        ("Bash", {"command": "touch x"}),
        ("Write", {"path": "x", "content": "y"}),
        ("Edit", {"path": "x", "old_string": "", "new_string": "y"}),
    ]
    return [call for call in calls if call[0] in offered]
