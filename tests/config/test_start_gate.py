"""The gate for hooks and servers: the first use, changed files, and the user's answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.config.start_gate import (
    ClearedStart,
    ProgramRights,
    ProgramStart,
    StartGate,
    StartRefused,
)
from ctxagent.agent.config.trust import FileChange

from ..support.starts import start_gate


class Scene:
    """A project with the script fmt.sh, and a gate that asks a user."""

    def __init__(self, root: Path) -> None:
        self.root, self.project = root, root / "project"
        self.project.mkdir()
        self.script = self.project / "fmt.sh"
        self.script.write_text("echo one\n")
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.allows = False

    def gate(self, *, asks: bool = True) -> StartGate:
        gate = start_gate(self.root / "state", self.project)

        async def ask(start: ProgramStart, changes: Sequence[FileChange]) -> bool:
            self.asked.append("".join(each.diff() for each in changes))
            return self.allows

        gate.connect(ask if asks else None, lambda start, reason: self.refused.append(reason))
        return gate

    def program(self, *, of_project: bool = False) -> ProgramStart:
        return ProgramStart("the hook h", "sh fmt.sh", self.project, {}, of_project=of_project)

    def starts(self, gate: StartGate, *, of_project: bool = False) -> bool:
        try:
            asyncio.run(gate.clear(self.program(of_project=of_project)))
        except StartRefused:
            return False
        return True


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_first_use_of_an_own_program_records_its_files(scene: Scene) -> None:
    assert scene.starts(scene.gate())
    assert scene.starts(scene.gate())
    assert scene.asked == []
    assert scene.gate().pins.changes([str(scene.script)]) == []


def test_a_changed_file_is_asked_about_with_its_diff(scene: Scene) -> None:
    gate = scene.gate()
    assert scene.starts(gate)
    scene.script.write_text("echo two\n")
    assert not scene.starts(gate)
    assert "-echo one\n+echo two\n" in scene.asked[0]
    assert not scene.starts(gate)
    assert len(scene.asked) == 1, "the same content is asked about once"
    scene.allows = True
    scene.script.write_text("echo three\n")
    assert scene.starts(gate)
    assert scene.starts(scene.gate())
    assert len(scene.asked) == 2


def test_without_a_user_a_changed_program_does_not_start(scene: Scene) -> None:
    scene.gate().declare([scene.program()])
    scene.script.write_text("echo two\n")
    gate = scene.gate(asks=False)
    assert not scene.starts(gate)
    assert not scene.starts(gate)
    assert scene.refused == [
        "the hook h runs changed files (changed since you accepted it: fmt.sh)"
    ]


def test_a_new_file_of_a_known_program_is_a_change(scene: Scene) -> None:
    scene.script.unlink()
    gate = scene.gate()
    gate.declare([scene.program()])
    scene.script.write_text("echo new\n")
    assert not scene.starts(gate)
    assert "+echo new\n" in scene.asked[0]


def test_a_program_of_the_project_needs_trust_first(scene: Scene) -> None:
    gate = scene.gate(asks=False)
    gate.declare([scene.program(of_project=True)])
    assert not scene.starts(gate, of_project=True)
    assert "never accepted: fmt.sh" in scene.refused[0]
    assert gate.accept([scene.program(of_project=True)]) == [str(scene.script)]
    assert scene.starts(gate, of_project=True)


def test_refusals_before_a_session_are_reported_to_it(scene: Scene) -> None:
    gate = start_gate(scene.root / "state", scene.project)
    assert not scene.starts(gate, of_project=True)
    found: list[str] = []
    gate.connect(None, lambda start, reason: found.append(start.shown))
    assert found == ["sh fmt.sh"]


def test_declared_files_are_protected(scene: Scene) -> None:
    gate = scene.gate()
    gate.declare([scene.program(), scene.program()])
    assert gate.protected == [str(scene.script)]


def test_declared_rights() -> None:
    assert ProgramRights.of({}) == ProgramRights()
    given = {"network": True, "write": ["a"], "outside": True, "command": "x"}
    assert ProgramRights.of(given) == ProgramRights(True, ("a",), True)
    for wrong in ({"network": "yes"}, {"outside": 1}, {"write": "a"}, {"write": [1]}):
        with pytest.raises(ValueError, match=r"must be|is not"):
            ProgramRights.of(wrong)


def test_only_programs_of_the_project_are_confined(scene: Scene) -> None:
    gate = scene.gate()
    gate.confine = lambda start: ClearedStart(start.command, start.cwd, {"INSIDE": "1"})
    own, theirs = scene.program(), scene.program(of_project=True)
    gate.accept([own, theirs])
    declared = replace(theirs, rights=ProgramRights(outside=True))
    found = [asyncio.run(gate.clear(each)).env for each in (own, theirs, declared)]
    assert [*map(sorted, found)] == [["PYTHONPYCACHEPREFIX"], ["INSIDE"], ["PYTHONPYCACHEPREFIX"]]
