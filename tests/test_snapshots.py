"""Everything the model reads, as it stands, so that each change of it is seen in review.

`CTXAGENT_SNAPSHOTS=write pytest tests/test_snapshots.py` writes them anew.
"""

import json
import os
from pathlib import Path

import pytest

from ctxagent.agent import prompt
from ctxagent.agent.compose import every_tool
from ctxagent.agent.context import tokens
from ctxagent.agent.model.body import body
from ctxagent.agent.model.scripted import Step

from .support.conversation import Conversation

FOLDER = Path(__file__).parent / "snapshots"


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("CTXAGENT_SNAPSHOTS") == "write":
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def test_the_system_prompt() -> None:
    text = prompt.system()
    check("system.md", text + "\n")
    assert tokens.estimate(text) < 900  # tight: it is sent with every call
    assert prompt.system("Speak French.") == f"{text}\n\nSpeak French."


def test_the_tools() -> None:
    schemas = [tool.schema() for tool in every_tool()]
    check("tools.json", json.dumps(schemas, indent=1, ensure_ascii=False) + "\n")
    assert sum(tokens.of_block(schema) for schema in schemas) < 3_500


def test_a_whole_request(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("alpha\n")
    talk = Conversation(
        tmp_path / "project",
        [
            Step(
                thinking="Both at once.",
                text="I look.",
                tools=[("Read", {"path": "a.txt"}), ("Bash", {"command": "echo x; exit 2"})],
            ),
            Step(text="Alpha."),
            Step(text="Done."),
        ],
        tools=[tool for tool in every_tool() if tool.name in ("Read", "Bash")],
    )
    talk.say("What does it say?")
    talk.say("Thanks.")
    request = body(talk.model.requests[-1])  # type: ignore[attr-defined]
    check("request.json", json.dumps(request, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
def test_instruction_files(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / name).write_text("outer")
    (inner / name).write_text("x" * (prompt.LARGEST + 5))
    (outer, first), (nearest, second) = prompt.instructions(inner, tmp_path / "none")
    assert (outer, first) == (tmp_path / name, "outer")
    assert nearest == inner / name
    assert second.endswith(f"[cut at 100,000 characters; Read {nearest} for the rest]")


def test_the_environment_outside_and_inside_a_repository(tmp_path: Path) -> None:
    import subprocess

    text = prompt.environment(tmp_path)
    assert f"Working directory: {tmp_path}" in text
    assert "Git: not a repository" in text
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-qb", "trunk"], check=True)
    (tmp_path / "new.txt").write_text("x")
    trap = tmp_path / "ran"
    subprocess.run([*git, "config", "core.fsmonitor", f"touch {trap}"], check=True)
    empty = prompt.environment(tmp_path)
    assert "trunk" in empty
    assert "?? new.txt" in empty
    subprocess.run([*git, "-c", "core.fsmonitor=false", "add", "."], check=True)
    subprocess.run([*git, "-c", "core.fsmonitor=false", "commit", "-qm", "First one"], check=True)
    text = prompt.environment(tmp_path)
    assert "Work tree: clean" in text
    assert "First one" in text
    assert not trap.exists()
