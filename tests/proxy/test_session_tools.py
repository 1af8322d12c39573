"""The tools for other agents: the session they use, what they quote and what they refuse."""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ctxagent.addons.proxy import session_tools as module
from ctxagent.addons.proxy.session_tools import ServedSessions, session_tools
from ctxagent.agent.errors import ToolError
from ctxagent.agent.session.entries import Entry, Session, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project
from ctxagent.tools.base import Context
from ctxagent.tools.search.request import TextMatch
from ctxagent.tools.search.ripgrep import Ripgrep


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "state", tmp_path)


def record(project: Project, name: str, *entries: Entry) -> Path:
    path = project.folder / "sessions" / name / "log.jsonl"
    log = Log(path)
    log.append(Session(id=Path(name).name, cwd=str(project.cwd), version="0", model="m"))
    for entry in entries:
        log.append(entry)
    log.close()
    return path


def ask(sessions: Project | ServedSessions, tool: str, **given: Any) -> str:
    served = sessions if isinstance(sessions, ServedSessions) else ServedSessions(sessions)
    found = session_tools(served)[tool]
    output = asyncio.run(found.run(found.Params.model_validate(given), Context(Path("/"))))
    assert not output.is_error
    return output.text


def test_a_subagent_is_a_session_of_its_own(project: Project) -> None:
    record(project, "one", User(content="of the parent"))
    record(project, "one/agents/a1", User(content="of the subagent"))
    assert "of the subagent" in ask(project, "recall", ref="one/agents/a1#2")
    assert "of the subagent" in ask(project, "recall", ref="#2", session="one/agents/a1")
    assert "of the subagent" in ask(project, "session_intent", session="one/agents/a1")
    assert "one/agents/a1#2" in ask(project, "search", query="subagent")


def test_a_passage_names_its_session_also_if_that_is_the_newest(project: Project) -> None:
    record(project, "one", User(content="hello"))
    for more in ({}, {"session": "one"}):
        assert '(whole: {"ref": "one#2"})' in ask(project, "search", query="hello", **more)


def test_a_ref_alone_is_refused_while_several_sessions_are_in_use(project: Project) -> None:
    first = record(project, "one", User(content="of the first"))
    assert "of the first" in ask(project, "recall", ref="#2")
    record(project, "two", User(content="of the second"))
    with pytest.raises(ToolError, match=r"2 sessions .* (two#2, one#2|one#2, two#2)"):
        ask(project, "recall", ref="#2")
    assert "of the first" in ask(project, "recall", ref="one#2")
    assert "of the first" in ask(project, "recall", ref="#2", session="one")
    assert "of the first" in ask(ServedSessions(project, first), "recall", ref="#2")
    os.utime(first, (0, 0))
    assert "of the second" in ask(project, "recall", ref="#2")


@pytest.mark.parametrize("name", ["..", "../x", "", ".", "one/..", "/etc", "a\0b", "x" * 5_000])
def test_no_id_leads_out_of_the_project(project: Project, name: str) -> None:
    record(project, "one", User(content="hello"))
    outside = project.folder / "log.jsonl"
    outside.write_bytes((project.folder / "sessions" / "one" / "log.jsonl").read_bytes())
    for tool, more in (("recall", {"ref": "#2"}), ("search", {"query": "hello"})):
        with pytest.raises(ToolError, match="has no session") as told:
            ask(project, tool, session=name, **more)
        assert len(str(told.value)) < 300


def test_a_file_that_a_ref_names_lies_in_the_project(project: Project) -> None:
    log = record(project, "one", User(content="hello"))
    (log.parent / "offloaded").mkdir()
    (log.parent / "offloaded" / "long.txt").write_text("the long text")
    (project.cwd / "secret").write_text("not of a session")
    assert ask(project, "recall", ref="offloaded/long.txt") == "[offloaded/long.txt]\nthe long text"
    path = str(log.parent / "offloaded" / "long.txt")
    assert ask(project, "recall", ref=path).endswith("the long text")
    for outside in (str(project.cwd / "secret"), "../../../../secret", "x" * 9_000):
        with pytest.raises(ToolError, match="There is no text") as told:
            ask(project, "recall", ref=outside)
        assert len(str(told.value)) < 300


def test_a_fixed_session_may_be_one_of_another_project(project: Project) -> None:
    there = Project(project.state, project.cwd / "there")
    log = record(there, "far", User(content="of another project"))
    record(there, "other", User(content="beside it"))
    record(project, "one", User(content="hello"))
    served = ServedSessions(project, log)
    assert "of another project" in ask(served, "recall", ref="#2")
    assert "beside it" in ask(served, "recall", ref="other#2")
    with pytest.raises(ToolError, match="has no session 'one'"):
        ask(served, "recall", ref="one#2")


def test_an_empty_log_has_nothing_to_say(project: Project) -> None:
    path = record(project, "one")
    assert ask(project, "session_intent") == "[session one]\nThe user has not said anything yet."
    path.write_bytes(b"")
    with pytest.raises(ToolError, match="are #1 to #0"):
        ask(project, "recall", ref="#2")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("recall", {"ref": "#2", "limit": 0}),
        ("recall", {"ref": "#2", "limit": 30_001}),
        ("recall", {"ref": "#2", "offset": -1}),
        ("recall", {"ref": "#2", "other": 1}),
        ("search", {}),
        ("session_intent", {"session": 7}),
    ],
)
def test_arguments_have_bounds(project: Project, tool: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ask(project, tool, **given)


def test_matches_that_one_line_shows_stand_there_once(project: Project) -> None:
    text = "ab ab ab\nab\n" + "." * 400 + "ab" + "." * 400 + "ab"
    record(project, "one", User(content=text))
    _, *lines = ask(project, "recall", ref="#2", pattern="ab").split("\n")
    assert [int(line.partition(": ")[0]) for line in lines] == [0, 9, 412, 814]
    assert lines[:2] == ["0: ab ab ab", "9: ab"]
    assert ask(project, "recall", ref="#2", pattern="ab ").split("\n")[1:] == ["0: ab ab ab"]


@pytest.mark.parametrize("extra", [0, 1])
def test_the_number_of_matches_is_bounded(project: Project, extra: int) -> None:
    lines = [f"line {number}" for number in range(module.MAX_MATCHES + extra)]
    record(project, "one", User(content="\n".join(lines)))
    _, *found = ask(project, "recall", ref="#2", pattern="line").split("\n")
    assert len(found) == module.MAX_MATCHES + extra
    assert found[-1].startswith("[more matches after offset ") == bool(extra)
    if extra:
        offset = int(found[-1].split()[4].rstrip(":"))
        rest = ask(project, "recall", ref="#2", offset=offset)
        assert rest == f"[one#2]\n\n{lines[-1]}"


def test_a_search_that_takes_too_long_is_ended(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(project, "one", User(content="hello"))
    ended = []

    async def never(*_: Any) -> AsyncGenerator[TextMatch, None]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        yield TextMatch(0, "", 0)

    monkeypatch.setattr(module, "search_text", never)
    monkeypatch.setattr(module, "SEARCH_TIMEOUT_S", 0.01)
    with pytest.raises(ToolError, match=r"The search for 'x' in one#2 took more than 0\.01 s"):
        ask(project, "recall", ref="#2", pattern="x")
    assert ended == [True]


def test_a_pattern_is_searched(project: Project) -> None:
    record(project, "one", User(content="first\nport 8080, part 81\n"))
    text = ask(project, "recall", ref="#2", pattern=r"(?<=port )\d+")
    assert text.endswith("11: port 8080, part 81")
    with pytest.raises(ToolError, match=r"ripgrep refuses the pattern 'x\('"):
        ask(project, "recall", ref="#2", pattern="x(")


def test_without_ripgrep_no_pattern_is_searched(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(project, "one", User(content="hello"))
    monkeypatch.setattr(module, "find_ripgrep", lambda path: None)
    with pytest.raises(ToolError, match=r"Install ripgrep .* Without it, use offset and limit"):
        ask(project, "recall", ref="#2", pattern="x")


def test_a_program_that_cannot_be_started_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(project, "one", User(content="hello"))
    monkeypatch.setattr(module, "find_ripgrep", lambda path: Ripgrep("/nowhere/rg"))
    with pytest.raises(ToolError, match="/nowhere/rg cannot be started: No such file"):
        ask(project, "recall", ref="#2", pattern="x")
