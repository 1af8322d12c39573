"""Sizes that nobody plans for: memory stays bounded, all is answered, and what is cut says so."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.features.instruction_places import MAX_INSTRUCTION_CHARS
from ctxagent.agent.loop.tool_calls import MAX_PARALLEL_CALLS
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Mask, ToolResult
from ctxagent.agent.ui.render import render
from ctxagent.tools.base import Context, Output, Params, Tool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.glob import GlobTool
from ctxagent.tools.grep import GrepTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.system.capture import SHOW_INTERVAL_S, SHOWN_BYTES

from ..support.limits import MB, Figures, measured, run_tool
from ..support.sessions.conversation import Conversation

SIZES = {
    "calls of a session": 200,
    "output of lines": 100,
    "output in one line": 100,
    "output redrawn": 20,
    "output of escapes": 20,
    "files for Glob": 5_000,
    "files for Grep": 5_000,
    "folders within folders": 200,
    "MB of one line": 5,
    "MB of an argument": 5,
    "MB of a streamed line": 2,
    "MB pasted": 5,
    "MB of instructions": 50,
    "MB of a log with a line torn in the middle": 10,
    "pins": 1_000,
    "words that wait": 10_000,
}


@pytest.fixture(scope="module")
def figures() -> dict[str, Figures]:
    """Of every case, each run in a process of its own."""
    return measured([f"{name}={size}" for name, size in SIZES.items()])


@pytest.mark.full
def test_a_session_of_many_calls(figures: dict[str, Figures]) -> None:
    row = figures["calls of a session"]
    assert row["answered"] == SIZES["calls of a session"]
    assert row["summaries"] >= 5
    assert row["peak_tokens"] < 16_000
    assert row["second_half_mb"] < 6  # a hundred requests of 60 kB would be as much


@pytest.mark.parametrize("name", [name for name in SIZES if name.startswith("output")])
def test_output_of_commands(figures: dict[str, Figures], name: str) -> None:
    row = figures[name]
    assert row["mb"] < 60
    assert row["cut"] == 0
    if name in ("output of lines", "output in one line"):
        assert row["file_mb"] == pytest.approx(SIZES[name], abs=1e-5)  # no last line break
        assert "bytes left out here; the file of this output has them" in row["notice"]
    else:  # next to nothing is left of it on a screen
        assert (row["file_mb"], row["notice"]) == (0, "")
    assert row["kept_mb"] < 1.01
    updates = row["seconds"] / SHOW_INTERVAL_S + 2  # the last one needs no interval
    assert row["shown_mb"] <= updates * SHOWN_BYTES / MB


def test_trees_of_files(figures: dict[str, Figures]) -> None:
    many = figures["files for Glob"]
    assert many["lines"] == 201
    assert "[4,800 more, all older; narrow the pattern or the path to see them: " in many["notice"]
    assert "most of 5,000 are in d" in many["notice"]
    grep = figures["files for Grep"]
    assert grep["lines"] == 251
    assert "there are more: go on with offset=250" in grep["notice"]
    assert max(many["mb"], grep["mb"]) < 40
    deep = figures["folders within folders"]
    assert all(said.endswith("end.py") for said in deep["said"])  # and no link was followed


def test_long_lines(figures: dict[str, Figures]) -> None:
    row = figures["MB of one line"]
    assert row["mb"] < 100
    assert row["bash_kb"] < 2_100  # kept from either end; what is too much for the model is moved
    for name in ("read", "grep", "edit", "diff"):
        assert row[f"{name}_kb"] < 8
    said = figures["MB of an argument"]
    assert (said["status"], said["written_mb"]) == ("ok", 5)
    assert said["tokens"] < 10_000
    assert said["shown_kb"] < 100
    streamed, pasted = figures["MB of a streamed line"], figures["MB pasted"]
    assert (streamed["live_kb"] < 20, streamed["mb"] < 40) == (True, True)
    assert (pasted["whole"], pasted["again"], len(pasted["mark"]) < 100) == (True, True, True)


def test_what_a_person_leaves(figures: dict[str, Figures]) -> None:
    row = figures["MB of instructions"]
    assert row["kb"] * 1024 < MAX_INSTRUCTION_CHARS + 200
    assert f"cut at {MAX_INSTRUCTION_CHARS:,} characters; read " in row["notice"]
    assert row["mb"] < 20
    waiting = figures["words that wait"]
    assert (waiting["lines"], waiting["in_order"]) == (render.MAX_SHOWN_WAITING + 1, True)
    assert figures["pins"]["status"] == "ok"
    assert figures["pins"]["tokens"] < 100_000


def test_doctor_reads_a_large_log_line_by_line(figures: dict[str, Figures]) -> None:
    row = figures["MB of a log with a line torn in the middle"]
    assert (row["broken"], row["whole"]) == (True, True)
    assert row["mb"] < 4 * SIZES["MB of a log with a line torn in the middle"]


class NumberParams(Params):
    n: int


class Counting(Tool[NumberParams]):
    """Notes how many of its calls are at work at once, and the order in which they began."""

    name, description, effect, Params = "Count", "Counts.", "read", NumberParams

    def __init__(self) -> None:
        self.now = self.most = 0
        self.began: list[int] = []

    async def run(self, params: NumberParams, context: Context) -> Output:
        self.now += 1
        self.most = max(self.most, self.now)
        self.began.append(params.n)
        await asyncio.sleep(0)
        self.now -= 1
        return Output(f"{params.n}")


def test_two_thousand_calls_in_one_message(tmp_path: Path) -> None:
    tool = Counting()
    tools = [("Count", {"n": n}) for n in range(2_000)]
    cwd = tmp_path / "project"
    cwd.mkdir()
    talk = Conversation(cwd, [Step(tools=tools), Step(text="All there.")], tools=[tool])
    assert talk.say("count").text == "All there."
    assert tool.most == MAX_PARALLEL_CALLS
    assert tool.began == [*range(2_000)]
    results = {r.tool_use_id: r.content for r in talk.of(ToolResult)}
    assert results == {f"call_1_{n + 1}": f"{n}" for n in range(2_000)}


def test_a_call_larger_than_the_window_does_not_wedge(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    big = Step(tools=[("Write", {"path": "big.txt", "content": "many words " * 20_000})])
    talk = Conversation(cwd, [big, Step(text="Written.")], window=16_000)
    finished = talk.say("write it")
    assert (finished.status, finished.text) == ("ok", "Written.")
    (mask,) = (m for m in talk.of(Mask) if m.layer == "truncate")
    assert "Read it there" in str(mask.targets)


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Path]:
    """A folder with all that is no file."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        (tmp_path / "a.txt").write_text("needle\n")
        yield tmp_path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fifo", "is a FIFO, not a file"),
        ("zero", "is a character device, not a file"),
        ("loop", "symbolic link"),
        ("socket", "is a socket, not a file"),
        ("up", "is a directory"),
    ],
)
def test_what_is_no_file(odd: Path, name: str, told: str) -> None:
    edit: dict[str, Any] = {"old_string": "a", "new_string": "b"}
    for tool, more in ((ReadTool(), {}), (EditTool(), edit), (GrepTool(), {"pattern": "x"})):
        if name == "up" and isinstance(tool, GrepTool):
            continue
        with pytest.raises(ToolError, match=told):
            run_tool(tool, odd, path=name, **more)


def test_trees_with_what_is_no_file(odd: Path) -> None:
    assert run_tool(GrepTool(), odd, pattern="needle").text == "a.txt"
    assert "a.txt" in run_tool(GlobTool(), odd, pattern="*").text


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/mem", "/proc/self/pagemap"])
def test_files_of_the_kernel_that_never_end(tmp_path: Path, path: str) -> None:
    try:
        text = run_tool(ReadTool(), tmp_path, path=path).text
    except ToolError as error:
        text = str(error)
    assert len(text) < 110_000
