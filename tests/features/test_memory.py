"""The memory: its index, changes of the index, and the tool. `e2e/test_memory.py` tests it with the
real command.
"""

import asyncio
import os
from pathlib import Path

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.extensions.memory import MemoryFolder
from ctxagent.agent.features.memory import MemoryFeature
from ctxagent.agent.loop.interface import Turn
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import MEMORY, User
from ctxagent.tools.base import Output
from ctxagent.tools.memory import MemoryParams


@pytest.fixture
def folder(tmp_path: Path) -> MemoryFolder:
    return MemoryFolder(tmp_path / "facts", trust_dir=tmp_path)


def keep(folder: MemoryFolder, name: str, text: str) -> None:
    folder.write(folder.add(name, "", text, {}))


def begun(session: LiveSession, folder: MemoryFolder, *, may_change: bool = True) -> MemoryFeature:
    """Return the feature in a session that has recorded its first entries."""
    feature = MemoryFeature(session, folder, is_offered=False, may_change=may_change)
    session.tools += feature.tools()
    for entry in feature.first_entries():
        session.record(entry)
    return feature


def told(session: LiveSession) -> list[str]:
    entries = session.log.entries()
    return [str(e.content) for e in entries if isinstance(e, User) and e.source == MEMORY]


def turn(feature: MemoryFeature) -> None:
    asyncio.run(feature.turn_started(Turn()))


def call(feature: MemoryFeature, **arguments: str) -> Output:
    """Run a call of the tool as if it were allowed."""
    (tool,) = feature.tools()
    resolved, params = tool.resolve(MemoryParams.model_validate(arguments))
    output: Output = asyncio.run(resolved.run(params, feature.session.context))
    return output


def test_without_a_fact_there_is_nothing(session: LiveSession, folder: MemoryFolder) -> None:
    feature = begun(session, folder)
    keep(folder, "a", "From another session")
    turn(feature)
    assert "Memory" not in [tool.name for tool in session.tools]
    assert (told(session), feature.reinserted(())) == ([], [])


def test_the_index_is_given_once_and_again_after_a_summary(
    session: LiveSession, folder: MemoryFolder
) -> None:
    keep(folder, "b", "Fact b")
    keep(folder, "a", "Fact a")
    feature = begun(session, folder)
    turn(feature)
    (index,) = told(session)
    assert index.endswith("]\n- a: Fact a\n- b: Fact b")
    (seq,) = [item.seq for item in session.view.items if item.source == MEMORY]
    assert feature.reinserted({seq}) == []
    (again,) = feature.reinserted(())
    assert isinstance(again, User)
    assert again.content == index


def test_changes_by_others_are_reported_once(session: LiveSession, folder: MemoryFolder) -> None:
    for name in "abc":
        keep(folder, name, f"Fact {name}")
    feature = begun(session, folder)
    keep(folder, "d", "Fact d")
    folder.write(folder.edit("a", "Fact", "Other"))
    folder.write(folder.forget("b"))
    os.utime(folder.folder / "d.md", (1, 1))
    turn(feature)
    turn(feature)
    assert told(session)[1:] == [
        "[The memory of this project has changed.]\n- a: Other a\n- d: Fact d\nForgotten: b."
    ]
    folder.write(folder.forget("d"))
    turn(feature)
    assert told(session)[2:] == ["[The memory of this project has changed.]\nForgotten: d."]


def test_the_index_is_bounded_by_lines_and_by_the_window(
    session: LiveSession, folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(250):
        keep(folder, f"fact-{number:03}", f"Number {number}")
        os.utime(folder.folder / f"fact-{number:03}.md", (number, number))
    monkeypatch.setattr("ctxagent.agent.features.memory.INDEX_SHARE", 0.5)
    feature = begun(session, folder)
    (index,) = told(session)
    assert index.count("\n- fact-") == 200
    assert "- fact-249: Number 249\n" in index
    assert "- fact-049:" not in index
    assert index.endswith(
        "and 50 more facts, changed longest ago: Memory without a name lists all."
    )
    assert call(feature).text.count("- fact-") == 250
    monkeypatch.setattr("ctxagent.agent.features.memory.INDEX_SHARE", 0.005)
    (small,) = feature.reinserted(())
    assert isinstance(small, User)
    assert 5 < str(small.content).count("\n- fact-") < 150
    turn(feature)
    assert len(told(session)) == 1


def test_errors_say_what_to_do(session: LiveSession, folder: MemoryFolder) -> None:
    keep(folder, "build", "make")
    feature = begun(session, folder)
    for arguments, error in (
        ({"name": "biuld"}, "There is no fact 'biuld'. Did you mean build?"),
        ({"action": "write", "name": "build", "text": "x"},
         "There is a fact build already. Edit it, or choose a name."),
        ({"action": "edit", "name": "build", "old": "cmake", "text": "x"},
         "The text to replace occurs nowhere in build. Read it again."),
        ({"action": "forget", "name": "../old"},
         "There is no fact '../old'. There are: build."),
        ({"action": "write", "text": "x"}, "'' is not a valid name of a fact. A name has letters, "
         "digits and -, such as build-command."),
    ):  # fmt: skip
        with pytest.raises(ToolError) as raised:
            call(feature, **arguments)
        assert str(raised.value) == error
    assert call(feature, action="edit", name="build", old="make", text="ninja").text == (
        "Kept: build."
    )
    assert call(feature, name="build").text.endswith("\n\nninja\n")


def test_what_was_shown_is_what_is_made(session: LiveSession, folder: MemoryFolder) -> None:
    keep(folder, "build", "make")
    feature = begun(session, folder)
    (tool,) = feature.tools()
    change = MemoryParams.model_validate({"action": "forget", "name": "build"})
    resolved, params = tool.resolve(change)
    shown = asyncio.run(resolved.preview(params, session.context))
    assert "-make\n" in shown["diff"]
    folder.write(folder.edit("build", "make", "make, by another session"))
    with pytest.raises(ToolError, match="The fact build has changed meanwhile"):
        asyncio.run(resolved.run(params, session.context))
    assert folder.is_used


def test_a_subagent_reads_and_changes_nothing(session: LiveSession, folder: MemoryFolder) -> None:
    keep(folder, "a", "Fact a")
    feature = begun(session, folder, may_change=False)
    assert "Fact a" in call(feature, name="a").text
    for action in ("write", "edit", "forget"):
        with pytest.raises(ToolError, match="A subagent changes no memory"):
            call(feature, action=action, name="a", text="x")
