"""The real command with features switched off: it does its task, and no trace of the features
remains.
"""

import json
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.border.entry_points import FEATURES, entry_points
from ctxagent.agent.config.settings import FEATURE_NAMES
from ctxagent.agent.features import MAKERS, plain_features

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal
from .test_mcp import configure, plain
from .test_skills import own, write

NAMES = (*FEATURE_NAMES, *entry_points(FEATURES))
SCHEMA = {"type": "object", "required": ["fixed"]}
ANSWER = '{"fixed": "calc.py"}'
# What the first request of the task has of each feature that acts in it.
SIGNS = {
    "environment": "Feed the walrus before you edit.",  # AGENTS.md
    "folder-instructions": "Feed it at noon.",  # a rule for calc.py
    "questions": '"name": "AskUser"',
    "attachments": "[The user attached the file calc.py",
    "plan": '"name": "Plan"',
    "subagents": '"name": "Task"',
    "skills": '"name": "Skill"',
    "memory": '"name": "Memory"',
    "web-search": '"name": "web_search"',
    "mcp": '"name": "Mcp"',
    "result-schema": "The final answer of this turn is read by a program.",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a project with a file for each feature."""
    place = Place(tmp_path)
    (place.project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (place.project / "AGENTS.md").write_text(f"{SIGNS['environment']}\n")
    rule = f"---\npaths: calc.py\n---\n{SIGNS['folder-instructions']}\n"
    (place.project / ".claude" / "rules").mkdir(parents=True)
    (place.project / ".claude" / "rules" / "calc.md").write_text(rule)
    write(own(place), "walrus", "Feed it.")
    configure(place, plain=plain(place))
    (place.project / ".run").mkdir()
    (place.project / ".run" / "plan.json").write_text('{"state": "RUNNING", "current": "a"}')
    return place


def arguments(*off: str) -> list[str]:
    return [
        "--permission-mode", "bypass", "-c", "web.search=on", "-c", "memory.offer=always",
        "--model", "claude-sonnet-5-5", "-c", "hooks.before_tool=['cat >> ../heard']",
        "-c", f"features.off={[*off]}",
    ]  # fmt: skip


def does_the_task(place: Place, *off: str) -> Body:
    """Run a task with tool calls to its end. Return the first request."""
    change = {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
    calls = [("Read", {"path": "calc.py"}), ("Edit", change), ("Bash", {"command": "cat calc.py"})]
    with Server([*(Say(tools=[call]) for call in calls), Say(ANSWER)]) as server:
        more = arguments(*off)
        if "result-schema" not in off:
            schema = place.root / "schema.json"
            schema.write_text(json.dumps(SCHEMA))
            more += ["--json-schema", str(schema)]
        done = place.run("-p", "fix @calc.py", *more, env=place.server(server.url))
    assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n"), done.stderr
    assert server.rejected == []
    assert len(server.requests) == 4
    assert "a + b" in (place.project / "calc.py").read_text()
    results = [entry for entry in place.entries() if entry["kind"] == "tool_result"]
    assert [result["is_error"] for result in results] == [False] * 3
    assert "a + b" in results[2]["content"]
    return server.requests[0]


def signs(place: Place, request: Body) -> set[str]:
    """Return the features that left a trace in the task."""
    sent = json.dumps(request)
    hooks = {"hooks"} if (place.root / "heard").exists() else set[str]()
    return {name for name, sign in SIGNS.items() if sign in sent} | hooks


def test_the_setting_names_the_features_that_there_are() -> None:
    assert {*FEATURE_NAMES} == {*MAKERS, *(kind.name for kind in plain_features())}


def test_without_any_feature(place: Place) -> None:
    request = does_the_task(place, *NAMES)
    assert signs(place, request) == set()
    assert [tool["name"] for tool in request["tools"]] == [
        "Bash", "Job", "Read", "Grep", "Glob", "Edit", "Write", "Todo", "Recall", "WebFetch",
    ]  # fmt: skip
    (message,) = request["messages"]
    assert [block["text"] for block in message["content"]] == ["fix @calc.py"]
    assert not (place.root / "notes").exists()  # no MCP server was started


@pytest.mark.variants
@pytest.mark.parametrize("name", NAMES)
def test_without_one_feature_the_others_act(place: Place, name: str) -> None:
    needs_a_file = {"folder-instructions"} if name == "attachments" else set[str]()
    assert signs(place, does_the_task(place, name)) == {*SIGNS, "hooks"} - {name} - needs_a_file


def refused(place: Place, *given: str, stdin: str | None = None) -> str:
    """Return the error of a run that makes no request."""
    with Server([]) as server:
        done: subprocess.CompletedProcess[str] = place.run(
            "-p", "go", *given, env=place.server(server.url), stdin=stdin
        )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert server.requests == []
    return done.stderr


def test_an_option_that_needs_a_feature_which_is_off_is_refused(place: Place) -> None:
    schema = place.root / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    told = refused(place, "--json-schema", str(schema), *arguments("result-schema"))
    assert "a schema needs the feature result-schema, which features.off switches off" in told
    told = refused(place, *arguments("attachments"), stdin="a log")
    assert "piped input needs the feature attachments, which features.off switches off" in told


def test_plan_says_that_plans_are_off(place: Place) -> None:
    with Server([]) as server:
        terminal = Terminal(*arguments("plan"), cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("/plan\r")
        terminal.see("plans are switched off")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
