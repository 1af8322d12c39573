"""What counts as text from outside, and which files are marked afterwards."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ctxagent.agent.config.trust import outside_mark
from ctxagent.agent.features.instruction_places import InstructionPlaces
from ctxagent.agent.features.provenance import WRITTEN_AFTER, ProvenanceFeature
from ctxagent.agent.loop.interface import ToolCall
from ctxagent.tools.base import OUTSIDE, Output


class Jobs:
    """A change tracker whose jobs changed a file."""

    async def last(self) -> dict[str, Any]:
        rows = [("job.txt", "created"), ("gone.txt", "deleted")]
        return {"changes": [{"path": path, "action": action} for path, action in rows]}


class Place:
    """A project with an added directory, next to another repository."""

    def __init__(self, root: Path) -> None:
        self.project, self.other, self.state = root / "project", root / "other", root / "state"
        self.added = root / "added"
        for folder in (self.project, self.other, self.added):
            (folder / ".git").mkdir(parents=True)
            (folder / "README").touch()
        ledger = SimpleNamespace(outside="", absolute_path=lambda path: str(self.project / path))
        self.session = SimpleNamespace(
            ledger=ledger,
            context=SimpleNamespace(cwd=self.project),
            approval=SimpleNamespace(folders=SimpleNamespace(names=[str(self.added)])),
        )
        places = InstructionPlaces(self.project, root / "config", root / "home", self.state)
        self.feature = ProvenanceFeature(cast(Any, self.session), places, cast(Any, Jobs()))

    def after(self, tool: str, details: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        call = ToolCall("1", tool, "", arguments, self.project)
        output = Output("", details)
        return dict((asyncio.run(self.feature.after_tool(call, output, 0)) or output).details)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("tool", "arguments", "is_outside"),
    [
        ("Read", {"path": "../other/README"}, True),
        ("Read", {"path": "../added/README"}, False),
        ("Read", {"path": "README"}, False),
        ("Grep", {"path": "../other", "pattern": "x"}, True),
        ("Bash", {"command": "cd ../other && cat README"}, True),
        ("Bash", {"command": "cat README ../added/README ../other/missing"}, False),
    ],
)
def test_a_call_that_reads_another_repository(
    place: Place, tool: str, arguments: dict[str, Any], is_outside: bool
) -> None:
    details = place.after(tool, {}, **arguments)
    assert details.get(OUTSIDE) == (f"a file of {place.other}" if is_outside else None)


def test_files_that_are_written_afterwards(place: Place) -> None:
    rows = {"changes": [{"path": "a.txt", "action": "modified"}]}
    assert WRITTEN_AFTER not in place.after("Bash", rows, command="x")
    place.session.ledger.outside = "a page"
    assert place.after("Bash", rows, command="x")[WRITTEN_AFTER] == "a page"
    place.after("Write", {"path": str(place.project / "b.txt")})
    marked = [bool(outside_mark(place.project / n, place.state)) for n in ("a.txt", "b.txt", "c")]
    assert marked == [True, True, False]


@pytest.mark.parametrize("source", ["", "a page"])
def test_files_that_jobs_wrote_until_the_end(place: Place, source: str) -> None:
    place.session.ledger.outside = source
    asyncio.run(place.feature.close())
    assert bool(outside_mark(place.project / "job.txt", place.state)) == bool(source)
    assert outside_mark(place.project / "gone.txt", place.state) == ""
