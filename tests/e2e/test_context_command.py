"""/context, /cost and the status line, as shown on the screen."""

import asyncio
import os
import re
import threading
from collections.abc import AsyncGenerator, Iterator, Reversible, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request, build_messages
from ctxagent.agent.errors import CompactionFailed
from ctxagent.agent.events import Delta
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.catalog import scripted_id
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Revert,
    Session,
    SubagentRun,
    Usage,
)
from ctxagent.agent.session.log import Log
from ctxagent.agent.ui import status
from ctxagent.agent.ui.render import bar, render

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import Desk, Glass, Seat, drive

LONG = "the quick brown fox jumps over the lazy dog\n" * 400


def work(cwd: Path) -> list[Step]:
    """A turn with calls of several tools."""
    (cwd / "big.txt").write_text(LONG)
    (cwd / "small.py").write_text("def add(a, b):\n    return a + b\n" * 40)
    return [
        Step(thinking="hm " * 200, tools=[("Read", {"path": "big.txt"})]),
        Step(tools=[("Read", {"path": "small.py"}), ("Grep", {"pattern": "add"})]),
        Step(tools=[("Bash", {"command": "seq 900"})]),
        Step(text="It is full of foxes. " * 100),
    ]


def letters(text: str) -> dict[str, int]:
    """Return the rows of the legend for used tokens: name and tokens."""
    rows = re.findall(r"^  [a-z] +(\S.*?)  +(?:[\d,]+ +)??([\d,]+) +<?\d+%", text, re.MULTILINE)
    narrow = r"^  [a-z]\n +(\S[^·]*?)\s·\s(?:items\s[\d,]+\s·\s)?tokens\s+([\d,]+)\s"
    rows += re.findall(narrow, text, re.MULTILINE)
    return {name: int(size.replace(",", "")) for name, size in rows}


def drawn(text: str) -> str:
    """Return the bar: used, free and reserved tokens."""
    (line,) = re.findall(r"^  ([a-z━]+\.+/+)$", text, re.MULTILINE)
    return str(line)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 24), (120, 40), (59, 20)])
def test_context_shows_what_fills_the_window_at_any_width(
    tmp_path: Path, columns: int, rows: int
) -> None:
    desk = Desk(tmp_path, mode="bypass")
    desk.model = ScriptedModel(work(desk.cwd), window=120_000)

    async def act(seat: Seat) -> None:
        seat.say("what is there?")
        await seat.until("full of foxes.")
        await seat.idle()
        seat.say("/context report")
        await seat.until("it comes at 111,600")

    _, glass = drive(desk, act, glass=Glass(columns, rows))
    shown = glass.all()
    window = desk.loops[0].model.current_window()
    assert f"{window.tokens:,} of 120,000 tokens" in shown
    found = letters(shown)
    assert sum(found.values()) == window.tokens
    assert {"system prompt", "tools", "your messages", "answers", "thinking", "tool calls"} <= {
        *found
    }
    assert {"results: Read", "results: Grep", "results: Bash"} <= {*found}
    line = drawn(shown)
    assert len(line) == columns - 4
    used = len(line.rstrip("./"))
    assert used == pytest.approx(window.share * len(line), abs=2)
    assert re.sub(r"[━./]", "", line).isalpha(), "every part begins with its letter"
    largest = re.findall(r"(#\d+)\s+(?:tokens )?[\d,]+\s+(?:· )?(result: Read)?", shown)
    assert any(what for _, what in largest)
    asked = next(e.seq for e in desk.loops[0].log.entries() if e.kind == "tool_result")
    assert largest[0][0] == f"#{asked}"
    assert "next compaction: " in shown
    assert all(len(text) <= columns for text in shown.split("\n"))


@pytest.mark.parametrize("depth", ["plain", "mono", "color"])
def test_the_bar_needs_no_colour(depth: render.Depth) -> None:
    parts = [
        bar.Segment("one", 30, "context.tools"),
        bar.Segment("none", 0, "context.tools"),
        bar.Segment("two", 20, "context.agent", count=3, saved=9),
        bar.Segment("rest", 50, "dim", fill="."),
    ]
    text = render.render_text([bar.Bar(parts), bar.legend(parts)], width=104, depth=depth)
    bare = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert bare.split("\n")[0] == f"  a{'━' * 29}c{'━' * 19}{'.' * 50}"
    assert re.search(r"^  c  two +3 +20 +20% +9$", bare, re.MULTILINE)
    assert re.search(r"^  \.  rest +50 +50%$", bare, re.MULTILINE)
    assert ("\x1b[33m" in text) is (depth == "color")
    assert ("\x1b" in text) is (depth != "plain")


def test_small_share_is_not_shown_as_zero() -> None:
    assert [bar.percentage(n, 1_000) for n in (0, 1, 5, 994, 1_000)] == [
        "0%",
        "<1%",
        "<1%",
        "99%",
        "100%",
    ]
    assert bar.percentage(0, 0) == "0%"


def test_manual_actions_have_their_own_rows(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="I see."))

    async def act(seat: Seat) -> None:
        seat.say("!seq 1 40000")
        await seat.idle()
        seat.say("# tabs, not blanks")
        await seat.idle()
        seat.say("what is there?")
        await seat.until("I see.")
        seat.say("/context report")
        await seat.until("next compaction")

    _, glass = drive(desk, act, glass=Glass(100, 40))
    found = letters(glass.all())
    assert found["your commands"] > 10 * found["your messages"]
    assert "notes" in found
    assert "your command: seq 1 40000" in glass.all()
    assert "your note: tabs, not blanks" in glass.all()
    assert re.search(r"moved to files +[\d,]{6,} +1", glass.all())


def test_masks_are_shown_with_their_savings(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    policy = replace(DEFAULT, clear_when="every-call", clear_keep=1, clear_above=500)
    talk = Conversation(cwd, work(cwd), policy=policy)
    talk.say("what is there?")
    shown = CommandDesk(talk).run("/context")
    found = re.search(r"cleared results +(\d) +([\d,]+) +<?\d+% +([\d,]+)$", shown, re.MULTILINE)
    assert found is not None
    masked = [result for result in talk.agent.view.results() if result.masked]
    assert int(found[1]) == len(masked) > 0
    assert int(found[2].replace(",", "")) == sum(result.size for result in masked)
    whole = sum(tokens.estimate_block(result.block) - result.size for result in masked)
    assert int(found[3].replace(",", "")) == pytest.approx(whole, rel=0.1)
    assert whole > 3_000


def opening(tmp_path: Path, policy: Policy) -> str:
    talk = Conversation(tmp_path, [Step(text="Yes.")], policy=policy)
    talk.say("go")
    return CommandDesk(talk).run("/context")


def test_when_the_next_compaction_comes(tmp_path: Path) -> None:
    def said(name: str, **changes: object) -> str:
        (tmp_path / name).mkdir()
        shown = opening(tmp_path / name, replace(DEFAULT, **changes))  # type: ignore[arg-type]
        return " ".join(shown[shown.index("next compaction") :].split())

    default = said("a")
    left = re.search(r"it comes at 186,000 tokens \(93%\), ([\d,]+) from here; the", default)
    assert left is not None
    assert int(left[1].replace(",", "")) > 180_000
    assert "is prepared from 140,000 (70%) on" in default
    assert "is prepared" not in said("b", summarizer="mechanical")
    assert "at 150,000 tokens (75%)" in said("c", summarize_at=150_000, prepare_at=None)
    assert "you will be reminded at 186,000" in said("d", mode="remind")
    assert "only when you run /compact" in said("e", mode="off")
    assert "only when you run /compact" in said("f", summarize_at=None)
    assert "at 100 tokens (0%), already reached" in said("g", summarize_at=100)


def clearable(cwd: Path, policy: Policy) -> Conversation:
    """Return a conversation with old results and inputs. Clearing them replaces a summary."""
    calls = [
        Step(tools=[("Bash", {"command": f"seq {n} 1900"}), ("Write", given)])
        for n in range(6)
        for given in [{"path": f"{n}.txt", "content": f"line {n}\n" * 600}]
    ]
    last = [Step(text="word " * 8_000), Step(text="On."), Step(text="And on.")]
    whole = replace(policy, move_above=None)
    talk = Conversation(cwd, [*calls, *last], policy=whole, window=80_000)
    talk.say("write them all")
    return talk


def test_no_summary_is_predicted_if_clearing_replaces_it(tmp_path: Path) -> None:
    talk = clearable(tmp_path, replace(DEFAULT, prepare_at=0.55, summarize_at=0.6, clear_keep=1))
    desk, before = CommandDesk(talk), talk.agent.model.current_window().tokens
    assert before > 0.6 * 80_000
    shown = " ".join(desk.run("/context").split())
    told = rf"{before:,} → about ([\d,]+) tokens · old results and inputs cleared, no summary"
    found = re.search(f"next compaction: {told} it comes at 48,000 tokens", shown)
    assert found is not None
    assert "already reached, or earlier when it pays" in shown
    assert "is prepared" not in shown
    assert re.search(rf"/compact: {before:,} → about [\d,]+ tokens · \d+ kept", shown)
    assert found[0] in " ".join(desk.run("/compact --dry-run").split())

    kept = build_messages(talk.agent.view.items)[:-1]  # without what stands for the next words
    talk.say("go on")
    results, inputs = talk.of(Mask)
    assert results.trigger == "instead of a summary"
    assert inputs.trigger == "HOOK-CTX-002: instead of a summary"
    assert not any(call.purpose == "summary" for call in talk.of(Assistant))
    freed = before - int(found[1].replace(",", ""))
    assert results.tokens_before - inputs.tokens_after == pytest.approx(freed, rel=0.01)

    said = desk.run("/uncompact")
    assert f"{len(results.targets)} old results cleared (" in said
    assert f"{len(inputs.targets)} old inputs truncated (" in said
    assert {revert.target for revert in talk.of(Revert)} == {results.seq, inputs.seq}
    assert build_messages(talk.agent.view.items)[: len(kept)] == kept
    with pytest.raises(CompactionFailed, match="no compaction"):
        desk.run("/uncompact")


@pytest.mark.parametrize("changes", [{"clear_keep": 5}, {"mode": "remind"}, {"clear_when": "off"}])
def test_summary_is_predicted_if_clearing_does_not_replace_it(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    policy = replace(DEFAULT, prepare_at=0.65, summarize_at=0.99, **changes)
    desk = CommandDesk(clearable(tmp_path, policy))
    shown = desk.run("/context") + desk.run("/compact --dry-run")
    assert re.search(r"next compaction: [\d,]+ → about [\d,]+ tokens · \d+ kept", shown)
    assert "cleared, no summary" not in " ".join(shown.split())


def test_how_much_the_cache_gave(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    desk = CommandDesk(talk)
    assert "cache:" not in desk.run("/context")
    for read, written in ((0, 1_000), (1_000, 1_000)):
        usage = Usage(cache_read=read, cache_creation=written, output=5)
        talk.agent.record(
            Assistant(content=[], usage=usage.to_json(), stop_reason="end_turn", model="m")
        )
    shown = desk.run("/context")
    assert "prompt cache: 33% of all prompts came from it, 50% of the last one" in shown


class Watched(Log):
    """A log that notes which threads read it."""

    readers: set[int]

    def entries(self) -> Reversible[Entry]:
        return Noted(super().entries(), self.readers)


class Noted(Reversible[Entry]):
    def __init__(self, entries: Reversible[Entry], readers: set[int]) -> None:
        self.entries, self.readers = entries, readers

    def __iter__(self) -> Iterator[Entry]:
        self.readers.add(threading.get_ident())
        return iter(self.entries)

    def __reversed__(self) -> Iterator[Entry]:
        self.readers.add(threading.get_ident())
        return reversed(self.entries)


@pytest.mark.parametrize("words", ["/context", "/context --levels", "/cost", "/log", "/log stats"])
def test_log_is_read_in_another_thread(tmp_path: Path, words: str) -> None:
    talk = Conversation(tmp_path, [Step(text="Yes.")])
    talk.say("go")
    talk.agent.log.close()
    log = Watched.open(talk.agent.log.path)
    assert isinstance(log, Watched)
    log.readers = set()
    talk.agent.log = log
    assert CommandDesk(talk).run(words)
    assert log.readers
    assert threading.get_ident() not in log.readers


PRICED = "claude-sonnet-5-5"


def test_costs_by_purpose_and_subagent_add_up(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [], model=ScriptedModel([], id=PRICED))
    record, desk = talk.agent.record, CommandDesk(talk)
    usage = Usage(input=1_000, cache_read=40_000, output=500)

    def call(purpose: str) -> Assistant:
        return Assistant(
            content=[], usage=usage.to_json(), stop_reason="end_turn", model=PRICED,
            purpose=purpose, cost_usd=0.011,
        )  # fmt: skip

    opened = Session(id="s", cwd="/", version="0", model=PRICED)
    for entry in (opened, call("turn"), call("turn"), call("summary"), call("verify")):
        record(entry)
    for n in range(12):
        own = Log(talk.agent.folder / "agents" / f"{n}" / "log.jsonl")
        own.append(opened)
        own.append(call("turn"))
        own.close()
        what = "look into the\nparser of the old format, all of it"
        record(
            SubagentRun(
                id=f"a{n}", type="explore", prompt="?", log=f"agents/{n}/log.jsonl", calls=1,
                status="done", description=what, usage=usage.to_json(), cost_usd=0.011,
            )
        )  # fmt: skip
    shown = desk.run("/cost")
    table = shown[shown.index("of these") :]
    rows = [line.split() for line in table.split("\n") if re.search(r" {2}\$[\d.]+$", line)]
    by_name = {row[0]: row[-5:] for row in rows}
    assert by_name["conversation"] == ["2", "82,000", "98%", "1,000", "$0.0220"]
    assert by_name["verification"] == ["1", "41,000", "98%", "500", "$0.0110"]
    assert sum(row[0] == "explore:" for row in rows) == 10
    assert ["2", "more", "subagents", "2"] in [row[:4] for row in rows]
    assert by_name["all"] == ["16", f"{16 * 41_000:,}", "98%", "8,000", "$0.18"]
    assert sum(int(row[-5]) for row in rows[:-1]) == 16
    saved = 16 * 40_000 * (2 - 0.10) / 1_000_000
    assert f"the cache saved about ${saved:.2f}" in shown


@pytest.mark.parametrize("columns", [40, 80])
def test_unknown_price_is_shown_as_unknown(tmp_path: Path, columns: int) -> None:
    talk = Conversation(tmp_path, [Step(text="Yes."), Step(text="word " * 400)])
    talk.say("go")
    usage = Usage(cache_read=1_000, output=5)
    talk.agent.record(
        Assistant(
            content=[], usage=usage.to_json(), stop_reason="end_turn", model="m", purpose="summary"
        )
    )
    desk = CommandDesk(talk)
    desk.screen.width = columns
    shown = desk.run("/cost")
    assert "price is not known" in " ".join(shown.split())
    assert "not known" in shown[shown.index("conversation") :]
    assert "$" not in shown
    assert "the cache" not in shown
    assert all(len(line) <= columns for line in shown.split("\n"))


# The status line.


def text_of(now: status.StatusLine, width: int) -> str:
    return "".join(part for _, part in status.fit_line(now, width))


FULL = status.StatusLine(
    "claude-sonnet-5-5", "bypass", "feature/支払い", 0.51, "51% full", "a summary is being written",
    cost_usd=1.5, agents=2, jobs=1, effort="high",
)  # fmt: skip


def test_the_whole_status_line() -> None:
    assert text_of(FULL, 200) == (
        "sonnet-5-5 high · bypass: asks nothing · feature/支払い · ▰▰▰▰▱▱▱▱ · 51% full · "
        "a summary is being written · $1.50 · 2 agents · 1 job"
    )


def test_scripted_model_has_no_cost() -> None:
    played = status.StatusLine(scripted_id("claude-sonnet-5-5"), "ask", cost_usd=0.4)
    assert text_of(played, 80) == "scripted model · ask · would cost $0.40"


def test_status_line_drops_parts_one_by_one_but_never_bypass() -> None:
    marks = ("支払い", "▰", "high", "summary", "$1.50", "agents", "job", "51%", "sonnet", "bypass")
    left = len(marks)
    for width in range(140, 5, -1):
        text = text_of(FULL, width)
        assert sum(1 + (c in "支払") + (c == "い") for c in text) <= width
        there = [mark in text for mark in marks]
        assert there == sorted(there), "what goes first is what matters least"
        assert sum(there) >= left - 1
        left = sum(there)
    assert text == "bypass"


def test_a_wide_or_long_branch_is_cut_by_cells() -> None:
    turned = status.fit_line(status.StatusLine("m", "ask", "a\u202eb\x1b[1m"), 80)
    assert "a\\u202eb�[1m" in "".join(text for _, text in turned)
    now = status.StatusLine("m", "ask", "支" * 40)
    assert text_of(now, 80) == f"m · ask · {'支' * 15}…"
    assert text_of(now, 40) == "m · ask"


@pytest.mark.parametrize("width", [1, 5, 10])
def test_a_long_model_is_cut(width: int) -> None:
    assert len(text_of(status.StatusLine("a-very-long-model-name"), width)) == width


def test_effort_follows_the_model(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def act(seat: Seat) -> None:
        await seat.until("scripted model · ask")
        seat.say("/effort high")
        await seat.until("scripted model high · ask")

    drive(desk, act)


class Gated(ScriptedModel):
    """A model whose summaries wait until the test releases them."""

    def __init__(self, steps: Sequence[Step], *, window: int) -> None:
        super().__init__(steps, window=window)
        self.gate = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if any(is_summary_question(b.get("text", "")) for b in request.messages[-1]["content"]):
            await self.gate.wait()
        async for event in super().stream(request):
            yield event


def test_summary_in_preparation_is_shown(tmp_path: Path) -> None:
    desk = Desk(tmp_path, mode="bypass")
    long, last = Step(text=("word," * 50 + " ") * 50), Step(text="All said.")
    model = desk.model = Gated([long, last, Step(text="no summary")], window=8_600)

    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("▰▰▰▰▰▰▱▱")
        await seat.idle()
        seat.say("on")
        await seat.until("All said.")
        await seat.until("a summary is being written")
        await seat.idle()
        seat.say("/context report")
        await seat.until("the summary is being prepared")
        model.gate.set()
        await seat.until("a summary is being written", gone=True)

    drive(desk, act, glass=Glass(columns=120, rows=60))


def test_a_job_that_ends_at_an_idle_prompt_leaves_the_status_line(tmp_path: Path) -> None:
    command = {"command": "cat fifo", "run_in_background": True}
    desk = Desk(tmp_path, Step(tools=[("Bash", command)]), Step(text="It runs."), mode="bypass")
    os.mkfifo(desk.cwd / "fifo")

    async def act(seat: Seat) -> None:
        seat.say("start it")
        await seat.until("It runs.")
        await seat.until("· 1 job")
        await seat.idle()
        (desk.cwd / "fifo").write_text("end\n")
        await seat.until("· 1 job", gone=True)

    drive(desk, act)


# The real command.


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.variants
@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}])
def test_context_and_cost_of_the_real_command(place: Place, more: dict[str, str]) -> None:
    (place.project / "AGENTS.md").write_text("Be brief.\n" * 50)
    (place.project / "big.txt").write_text(LONG)
    steps = [
        Say("I look.", tools=[("Read", {"path": "big.txt"})]),
        Say("And count.", tools=[("Bash", {"command": "seq 500"})]),
        Say("All is seen."),
    ]
    with Server(steps) as server:
        env = {**place.server(server.url), **more}
        terminal = Terminal("--permission-mode", "bypass", cwd=place.project, env=env, columns=80)
        terminal.see("❯")
        terminal.type("what is there?\r")
        terminal.see("All is seen.")
        terminal.type("/context report\r")
        shown = terminal.see("it comes at")
        terminal.type("/cost\r")
        cost = terminal.see("the cache ")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert server.rejected == []
    found = letters(shown)
    used = re.search(r"([\d,]+) of 1,000,000 tokens", shown)
    assert used is not None
    assert sum(found.values()) == int(used[1].replace(",", ""))
    assert {"instructions", "environment", "results: Read", "results: Bash"} <= {*found}
    result = next(e["seq"] for e in place.entries() if e["kind"] == "tool_result")
    assert re.search(rf"#{result} +[\d,]+  result: Read big.txt", shown)
    calls = [e for e in place.entries() if e["kind"] == "assistant"]
    dollars = sum(e["cost_usd"] for e in calls)
    assert re.search(rf"cost +\${re.escape(f'{dollars:.4f}')}", cost)
    assert "calls       3 to the model, 2 to tools" in cost
    coloured = re.search(rb"\x1b\[[\d;]*3[1-6][\d;]*m", terminal.raw) is not None
    assert coloured is not bool(more)
