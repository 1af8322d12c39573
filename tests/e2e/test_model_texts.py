"""Snapshots of everything that the model reads, so that a review shows each change.
`CTXAGENT_SNAPSHOTS=write pytest tests/e2e/test_model_texts.py` writes them again.
"""

import asyncio
import json
import os
from pathlib import Path

import pytest

from ctxagent.addons.proxy.session_tools import ServedSessions, session_tools
from ctxagent.agent.assembly import base_tools
from ctxagent.agent.compaction.document import SummaryDocument, UserRule
from ctxagent.agent.compaction.summary.request import summary_question, summary_text
from ctxagent.agent.compaction.summary.user_messages import messages_section
from ctxagent.agent.context.tokens import count_word_classes
from ctxagent.agent.context.view import REPEATED
from ctxagent.agent.context.window import Window
from ctxagent.agent.features import environment
from ctxagent.agent.features.instruction_places import LINK_OUTSIDE, MAX_INSTRUCTION_CHARS
from ctxagent.agent.features.loops import CallMade, Repetition, notice
from ctxagent.agent.features.subagent_types import built_in_types
from ctxagent.agent.loop.turn import continuation_prompt, run_turn
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.prompts import prompt_text
from ctxagent.agent.session.entries import Usage
from ctxagent.agent.session.store import Project
from ctxagent.agent.session.user_messages import LoggedMessage
from ctxagent.tools.memory import MemoryTool

from ..support.instruction_files import instruction_files
from ..support.sessions.conversation import Conversation
from ..support.sessions.setup import every_tool

FOLDER = Path(__file__).parent / "snapshots"


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("CTXAGENT_SNAPSHOTS") == "write":
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def test_the_system_prompt() -> None:
    text = environment.system_prompt()
    check("system.md", text + "\n")
    assert environment.system_prompt("Speak French.") == f"{text}\n\nSpeak French."


def test_the_tools() -> None:
    schemas = [tool.schema() for tool in every_tool(built_in_types())]
    check("tools.json", json.dumps(schemas, indent=1, ensure_ascii=False) + "\n")


def test_the_tools_for_other_agents(tmp_path: Path) -> None:
    sessions = ServedSessions(Project(tmp_path, tmp_path))
    schemas = [tool.schema() for tool in session_tools(sessions).values()]
    check("session-tools.json", json.dumps(schemas, indent=1, ensure_ascii=False) + "\n")


def test_size_of_prompt_and_tools_is_limited(tmp_path: Path) -> None:
    """The estimate does not use a vocabulary, so it is the same on every machine."""
    texts = [json.dumps(tool.schema(), ensure_ascii=False) for tool in every_tool(built_in_types())]
    assert sum(map(count_word_classes, [environment.system_prompt(), *texts])) <= 2_000
    sessions = ServedSessions(Project(tmp_path, tmp_path))
    texts = [json.dumps(tool.schema()) for tool in session_tools(sessions).values()]
    assert sum(map(count_word_classes, texts)) <= 420


def test_texts_for_small_models() -> None:
    system, tools = environment.system_prompt(brief=True), base_tools(brief=True)
    schemas = [tool.schema() for tool in tools]
    check("system-brief.md", system + "\n")
    check("tools-brief.json", json.dumps(schemas, indent=1, ensure_ascii=False) + "\n")
    texts = [json.dumps(schema, ensure_ascii=False) for schema in schemas]
    assert sum(map(count_word_classes, [system, *texts])) <= 650


def test_texts_for_subagents() -> None:
    alone = environment.system_prompt()
    told = [
        environment.system_prompt(part=kind.prompt).removeprefix(alone) for kind in built_in_types()
    ]
    check("agents.md", "\n\n".join(map(str.strip, told)) + "\n")


def test_summary_request_and_summary() -> None:
    question = summary_question(Window(tokens=150_000, size=200_000), "Keep the schema.")
    document = SummaryDocument("Fix the parser.", rules=(UserRule(2, "Ask me first."),))
    messages = messages_section(
        [
            LoggedMessage(2, "Fix the parser. Ask me first.", state="answered"),
            LoggedMessage(5, "Why?\n```\n" + "line\n" * 3_000 + "```", state="interrupted"),
            LoggedMessage(9, "Go on."),
        ],
        250,
    )
    text = summary_text(document, Path("/s/20260101"), {7: "ticket 4711"}, messages=messages)
    check("summary.md", f"{question}\n\n---\n\n{text}\n")


def test_texts_for_a_model_that_repeats_itself() -> None:
    calls = [CallMade("Bash", f'{{"command": "cat {name}.txt"}}', "", False) for name in "ab"]
    reply = Reply([], REPEATED, Usage(), "m", repeats="Let me look again. ")
    told = [
        notice(Repetition((calls[0],), 3, has_notice=False, must_end=False)),
        notice(Repetition(tuple(calls), 3, has_notice=False, must_end=False)),
        str(continuation_prompt(reply)),
    ]
    check("loops.md", "\n\n---\n\n".join(told) + "\n")


def test_text_of_init() -> None:
    check("init.md", prompt_text("init") + "\n")


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


def test_words_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    calls = [("Bash", {"command": "echo one"}), ("Bash", {"command": "echo two"})]
    talk = Conversation(tmp_path / "project", [Step(tools=calls), Step(text="Done.")])
    said = iter([None, "Use tabs.", None])
    asyncio.run(run_turn(talk.agent, "Begin.", lambda: next(said)))
    messages = body(talk.model.requests[-1])["messages"]  # type: ignore[attr-defined]
    check("mid_turn.json", json.dumps(messages, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
def test_instruction_files(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / name).write_text("outer")
    (inner / name).write_text("x" * (MAX_INSTRUCTION_CHARS + 5))
    outer, nearest = instruction_files(inner, tmp_path / "none", tmp_path)
    assert (outer.path, outer.text) == (tmp_path / name, "outer")
    assert nearest.path == inner / name
    assert nearest.text.endswith(f"[cut at 100,000 characters; read {inner / name} for the rest]")


def test_the_environment_outside_and_inside_a_repository(tmp_path: Path) -> None:
    import subprocess

    text = environment.environment_text(tmp_path, os.environ)
    assert f"Working directory: {tmp_path}" in text
    assert "Git: not a repository" in text
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-qb", "trunk"], check=True)
    (tmp_path / "new.txt").write_text("x")
    trap = tmp_path / "ran"
    subprocess.run([*git, "config", "core.fsmonitor", f"touch {trap}"], check=True)
    empty = environment.environment_text(tmp_path, os.environ)
    assert "trunk" in empty
    assert "?? new.txt" in empty
    subprocess.run([*git, "-c", "core.fsmonitor=false", "add", "."], check=True)
    subprocess.run([*git, "-c", "core.fsmonitor=false", "commit", "-qm", "First one"], check=True)
    text = environment.environment_text(tmp_path, os.environ)
    assert "Work tree: clean" in text
    assert "First one" in text
    assert not trap.exists()


def test_no_program_that_a_repository_names_is_run(tmp_path: Path) -> None:
    """Neither the clean filter of a file that may have changed, nor a program that a nested
    repository configures.
    """
    import subprocess

    trap = tmp_path / "ran"
    project = tmp_path / "project"
    inside = project / "inside"
    for folder in (project, inside):
        folder.mkdir()
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-qb", "trunk"], check=True)
        (folder / "a.txt").write_text("one")
        subprocess.run([*git, "add", "a.txt"], check=True)
        subprocess.run([*git, "commit", "-qm", "First one"], check=True)
    subprocess.run([*git[:2], str(project), *git[3:], "add", "inside"], check=True)
    (project / ".gitattributes").write_text("*.txt filter=e=v.il\n")
    for folder, key in (
        (project, "filter.e=v.il.clean"),
        (project, "filter.e=v.il.process"),
        (inside, "core.fsmonitor"),
    ):
        run = f"sh -c 'touch {trap}; cat'"
        subprocess.run(["git", "-C", str(folder), "config", key, run], check=True)
    (project / "a.txt").write_text("two")
    text = environment.environment_text(project, os.environ)
    assert " M a.txt" in text
    assert not trap.exists()


def test_a_link_that_leaves_the_project_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    project = tmp_path / "project"
    inner = project / "inner"
    inner.mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "rules.md").write_text("be good")
    (project / "AGENTS.md").symlink_to("../secret")
    (inner / "AGENTS.md").symlink_to("../../secret")
    (inner / "CLAUDE.md").symlink_to("../rules.md")
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "mine").write_text("from me")
    (own / "AGENTS.md").symlink_to("../mine")  # the user's own may point anywhere
    found = [(f.path, f.text) for f in instruction_files(inner, own, own)]
    assert found[0] == (own / "AGENTS.md", "from me")
    assert found[-1] == (inner / "CLAUDE.md", "be good")
    assert all("s3cret" not in text for _, text in found)
    assert found[-2] == (inner / "AGENTS.md", LINK_OUTSIDE)


def test_the_memory() -> None:
    check("memory.json", json.dumps(MemoryTool().schema(), indent=1, ensure_ascii=False) + "\n")
