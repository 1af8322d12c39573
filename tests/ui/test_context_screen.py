"""The screen of `/context`: moving, searching, reading and editing, at several sizes."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.events import Delta
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.catalog import scripted_id
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Mask, Pin, Revert, Summary, Unpin

from ..support.terminal.seat import CTRL_C, ENTER, ESC, UP, Desk, Glass, Seat, drive

DOWN, PAGE_UP, PAGE_DOWN = "\x1b[B", "\x1b[5~", "\x1b[6~"
HOME, END = "\x1b[H", "\x1b[F"
WHEEL_UP, WHEEL_DOWN = "\x1b[<64;5;5M", "\x1b[<65;5;5M"
RECORD = """## Session Intent
Count the foxes.
## Key Decisions
1. Read the file.
## Current State
Phase: done
## Critical Facts
- None.
## Next Steps
1. Answer.
"""
SIZES = [(80, 24), (40, 12), (120, 40)]


class Gated(ScriptedModel):
    """A model whose replies wait while its gate is shut."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.asked += 1
        await self.gate.wait()
        async for event in super().stream(request):
            yield event


def desk_of(folder: Path, *steps: Step) -> Desk:
    """A desk with a priced model, and a file that fills the context."""
    desk = Desk(folder, mode="bypass")
    (desk.cwd / "big.txt").write_text("the quick brown fox\n" * 900)
    (desk.cwd / "small.py").write_text("def add(a, b):\n    return a + b\n" * 40)
    first = [
        Step(tools=[("Read", {"path": "big.txt"})]),
        Step(tools=[("Read", {"path": "small.py"}), ("Grep", {"pattern": "add"})]),
        Step(tools=[("Bash", {"command": "seq 900"})]),
        Step(text="It is full of foxes."),
    ]
    id = scripted_id("claude-sonnet-5")
    desk.model = Gated([*first, *steps], window=120_000, id=id)
    return desk


async def opened(seat: Seat) -> None:
    """Play a turn, then open the screen."""
    seat.say("count the foxes")
    await seat.until("It is full of foxes.")
    await seat.idle()
    seat.say("/context")
    await seat.until("Esc close")
    await seat.until(chosen(seat, "reply: It"))


def row(seat: Seat) -> str:
    """The row of the selected item."""
    return next((line for line in seat.glass.lines() if re.match(r"❯[ *] ", line)), "")


def chosen(seat: Seat, *words: str) -> Callable[[], bool]:
    return lambda: all(word in row(seat) for word in words)


async def closed(seat: Seat) -> None:
    seat.press(CTRL_C)
    await seat.until("Esc close", gone=True)


def acts(desk: Desk) -> list[Any]:
    kinds = (Mask, Summary, Revert, Pin, Unpin)
    return [entry for entry in desk.loops[-1].log.entries() if isinstance(entry, kinds)]


@pytest.mark.variants
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_keys_move_search_and_sort(tmp_path: Path, columns: int, rows: int) -> None:
    desk, glass = desk_of(tmp_path), Glass(columns, rows)

    async def act(seat: Seat) -> None:
        await opened(seat)
        window = desk.loops[0].model.current_window()
        assert glass.lines()[0].startswith(f"{window.tokens:,} of 120,000 tokens"[: columns - 5])
        for keys, words in (
            (UP, "result: Bash"), (DOWN, "reply: It"), (HOME, "message: count"), (END, "reply: It"),
            (PAGE_UP + PAGE_UP, "message: count"), ("j", "reply: Read"), ("k", "message: count"),
            (PAGE_DOWN + PAGE_DOWN, "reply: It"), (WHEEL_UP, "result: Grep"),
            (WHEEL_DOWN, "reply: It"), ("s" + HOME, "result: Read big"), ("s" + END, "reply: It"),
        ):  # fmt: skip
            seat.press(keys)
            await seat.until(chosen(seat, words))
            assert all(len(line) <= columns for line in glass.lines())
        seat.press("/BASH result")
        await seat.until("search: BASH result")
        await seat.until(chosen(seat, "result: Bash"))
        assert sum(": Bash" in line for line in glass.lines()) <= 2  # the row, and its facts
        seat.press(ENTER + UP)
        await seat.until("d drop")
        assert chosen(seat, "result: Bash")()
        seat.press(ESC)
        await seat.until("search:", gone=True)
        seat.press("/nothing has this")
        await seat.until("no item matches")
        seat.press(ESC + ESC)
        await seat.until("Esc close", gone=True)

    drive(desk, act, glass=glass)
    assert acts(desk) == []
    assert desk.said() == ["count the foxes"]
    for never in ("\x1b[2J", "\x1b[3J", "\x1b[?1049h", "\x1b[?1003h"):
        assert never not in glass.raw
    assert glass.raw.rindex("\x1b[?1000l") > glass.raw.rindex("\x1b[?1000h")


@pytest.mark.variants
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_an_edit_shows_its_price_first_and_is_undone(
    tmp_path: Path, columns: int, rows: int
) -> None:
    desk, glass = desk_of(tmp_path), Glass(columns, rows)

    def told() -> str:
        return " ".join(" ".join(glass.lines()).split())

    async def act(seat: Seat) -> None:
        await opened(seat)
        before = desk.loops[0].model.current_window().tokens
        seat.press("/big.txt" + ENTER + END)
        await seat.until(chosen(seat, "result: Read big"))
        seat.press("d")
        await seat.until("Enter: apply")
        assert f"{before:,} → " in told()
        assert re.search(r"each call reads \$0\.\d{4} → \$0\.\d{4}", told())
        assert re.search(r"once: [\d,]+ tokens are written to the cache again, \$0\.\d{4}", told())
        assert re.search(r"it has paid for itself after \d+ calls?|it pays at once", told())
        seat.press(ESC)
        await seat.until("d drop")
        assert acts(desk) == []
        seat.press("d")
        await seat.until("Enter: apply")
        seat.press(ENTER)
        await seat.until(lambda: bool(re.search(r"dropped #\d+: ", told())))
        await seat.until(chosen(seat, "d" if columns < 60 else "dropped"))
        assert desk.loops[0].model.current_window().tokens < before - 4_000
        seat.press("u")
        await seat.until("Enter: apply")
        seat.press(ENTER)
        await seat.until(lambda: f"the context has {before:,} tokens" in told())
        seat.press("d")
        await seat.until("Enter: apply")
        seat.press(ENTER)
        await seat.until(lambda: bool(re.search(r"dropped #\d+: ", told())))
        seat.press("r")
        await seat.until("Enter: apply")
        seat.press(ENTER)
        await seat.until(lambda: bool(re.search(r"restored #\d+: ", told())))
        assert desk.loops[0].model.current_window().tokens == before
        await closed(seat)

    drive(desk, act, glass=glass)
    assert [entry.kind for entry in acts(desk)] == ["mask", "revert", "mask", "mask"]


def test_marked_rows_are_compacted_and_one_is_pinned(tmp_path: Path) -> None:
    desk, glass = desk_of(tmp_path, Step(text=RECORD), Step(text=RECORD)), Glass()

    async def act(seat: Seat) -> None:
        await opened(seat)
        seat.press("p")
        await seat.until("every summary keeps the text")
        seat.press(ENTER)
        await seat.until("pinned: #")
        await seat.until(chosen(seat, "pinned"))
        seat.press("p")
        await seat.until("stop keeping #")
        seat.press(ENTER)
        await seat.until("no longer pinned: #")
        seat.press(HOME + DOWN + "m" + DOWN + DOWN)
        await seat.until("3 items marked")
        assert sum(line[1:2] == "*" for line in glass.lines()) == 3
        seat.press("c")
        await seat.until("it has paid for itself")
        seat.press(ENTER)
        await seat.until("compacted #")
        seat.press(END + "b")
        await seat.until("compact #2, #3, ")
        seat.press(ENTER)
        await seat.until("context compacted (manual)")
        await seat.until("2 of 2 items")
        seat.press(HOME)
        await seat.until(chosen(seat, "summary"))
        await closed(seat)

    drive(desk, act, glass=glass)
    assert [entry.kind for entry in acts(desk)] == ["pin", "unpin", "mask", "summary"]


def test_the_text_of_an_item_the_report_and_the_keys(tmp_path: Path) -> None:
    desk, glass = desk_of(tmp_path), Glass(60, 20)

    async def act(seat: Seat) -> None:
        await opened(seat)
        seat.press("/big.txt" + ENTER + END + ENTER)
        await seat.until("lines 1 to 18 of 9")
        seat.press(END)
        await seat.until(
            lambda: bool(re.search(r"^ *900\s+the quick", "\n".join(glass.lines()), re.M))
        )
        seat.press(ESC)
        await seat.until(chosen(seat, "result: Read big"))
        seat.press("i")
        await seat.until("report · lines 1 to 18")
        seat.press(END)
        await seat.until("next compaction: ")
        seat.press(ESC + "?")
        await seat.until("keys · lines 1 to 18")
        seat.press("q")
        await seat.until("Esc close")
        lines = glass.lines()
        at = lines.index(row(seat)) + 1
        seat.press(f"\x1b[<0;9;{at}M")  # a click on the selected row
        await seat.until("lines 1 to 18 of 9")
        seat.press("q")
        await seat.until("Esc close")
        await closed(seat)

    drive(desk, act, glass=glass)


def test_during_a_turn_the_items_follow_and_an_edit_waits(tmp_path: Path) -> None:
    """The user leaves while the edit still waits for the model; it is applied all the same."""
    last = Step(text="All said.", tools=[("Bash", {"command": "echo last"})])
    desk, glass = desk_of(tmp_path, last, Step(text="The end.")), Glass()

    async def act(seat: Seat) -> None:
        model = desk.model
        assert isinstance(model, Gated)
        await opened(seat)
        await closed(seat)
        model.gate.clear()
        seat.say("go on")
        await seat.until(lambda: model.asked == 5)
        seat.say("/context")
        await seat.until(chosen(seat, "message: go on"))
        seat.press("/big.txt" + ENTER + END + "d")
        await seat.until("Enter: apply")
        seat.press(ENTER)
        await seat.until("the edit waits until the model has answered")
        assert acts(desk) == []
        seat.press(ESC + ESC)
        await seat.until("Esc close", gone=True)
        seat.say("/context")
        await seat.until(chosen(seat, "message: go on"))
        model.gate.set()
        await seat.until(chosen(seat, "reply: The end."))
        await seat.until("dropped #4: ")
        seat.press(HOME + DOWN + DOWN)
        await seat.until(chosen(seat, "dropped", "result: Read big"))
        await closed(seat)

    drive(desk, act, glass=glass)
    assert [entry.kind for entry in acts(desk)] == ["mask"]
    entries = [*desk.loops[-1].log.entries()]
    kinds = [entry.kind for entry in entries]
    assert entries[kinds.index("mask") - 1].kind == "assistant"


def test_a_question_takes_the_place_of_the_screen(tmp_path: Path) -> None:
    call = Step(tools=[("Bash", {"command": "touch made"})])
    desk = desk_of(tmp_path, call, Step(text="Done."))

    async def act(seat: Seat) -> None:
        model = desk.model
        assert isinstance(model, Gated)
        await opened(seat)
        await closed(seat)
        desk.loops[0].approval.mode = "ask"
        model.gate.clear()
        seat.say("go on")
        await seat.until(lambda: model.asked == 5)
        seat.say("/context")
        await seat.until("Esc close")
        model.gate.set()
        await seat.keys()
        assert "Esc close" not in "\n".join(seat.glass.lines())
        seat.press("y")
        await seat.until("Done.")

    drive(desk, act)
    assert (desk.cwd / "made").exists()
