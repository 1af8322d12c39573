"""Ten wishes of users of other agents about the context, in own words, through each front end.

Each edit is previewed, applied, followed by a turn, and undone to the byte. The preview and the
size that is shown then are within MAX_ERROR of what the server counts.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from ctxagent import Agent
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.models.catalog import cost
from ctxagent.agent.session.entries import Assistant, End, Entry, Usage
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal
from .test_context_edits import RECORD, items, three_turns
from .test_stream_input import Driver, talk

MAX_ERROR = 0.03  # of what the server counts
SHOWN_USD = 0.00005  # error of a price with four decimals
HOME, DOWN = "\x1b[H", "\x1b[B"
KEYS = {"drop": "d", "restore": "r", "compact": "c", "undo": "u"}
DONE = {
    "drop": r"dropped (#|\d)", "restore": r"restored (#|\d)", "compact": r"compacted (#|\d)",
    "undo": "undone: ",
}  # fmt: skip
PLAN = re.compile(
    r"(?P<tokens_before>[\d,]+) → (?:about )?(?P<tokens_after>[\d,]+) tokens"
    r"(?: each call reads \$(?P<before_usd>[\d.]+) → (?:about )?\$(?P<after_usd>[\d.]+) "
    r"once: (?P<rewritten>[\d,]+) tokens are written to the cache again, "
    r"\$(?P<rewrite_usd>[\d.]+))?"
)
ROW = re.compile(r"^[❯ ][ *] +#(\d+) +([\d,]+) +\$([\d.]+) +\$([\d.]+) ", re.MULTILINE)
Given = dict[str, Any]
Item = tuple[str, str]  # its kind, and a part of what it says
BIG, SMALL = ("result", "big.txt"), ("result", "small.txt")
HOW_MANY, THANKS, LONG = ("message", "how many"), ("message", "thank"), ("reply", "word 0")
READS, FIRST_ANSWER = ("reply", "Read"), ("reply", "Words.")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks for: an edit, after another one if `first` is given."""

    words: str
    action: str
    refs: Sequence[Item] = ()
    part: tuple[tuple[str, Item], ...] = ()  # "from", "to" and "before"
    instructions: str = ""
    first: Sequence[Item] = ()  # items to drop before


WISHES = (
    Wish("show me what fills the window, and what each item costs", "items"),
    Wish("take out a large result that I do not need", "drop", [BIG]),
    Wish("take out something that I wrote", "drop", [HOW_MANY]),
    Wish("take out a reply together with its results", "drop", [READS]),
    Wish("put back what I took out", "restore", [BIG], first=[BIG, SMALL]),
    Wish("compact only the first half", "compact", part=(("to", FIRST_ANSWER),)),
    Wish("compact from here to here", "compact", part=(("from", HOW_MANY), ("to", LONG))),
    Wish("compact everything before this", "compact", part=(("before", THANKS),)),
    Wish(
        "tell the summary what it must keep",
        "compact",
        part=(("from", HOW_MANY), ("to", LONG)),
        instructions="keep the count",
    ),
    Wish("let it be as it was", "undo", first=[BIG]),
)


class FrontEnd(Protocol):
    """A way to edit the context of the newest session in a place."""

    async def ask(self, action: str, given: Given) -> Given:
        """Return the items, a plan with `dry_run`, or what an edit has done."""

    async def say(self) -> None:
        """Run a turn."""


def reply(request: Body) -> Say:
    last = request["messages"][-1]["content"][-1]
    return Say(RECORD if is_summary_question(last.get("text", "")) else "Going on.")


def entries(place: Place) -> Sequence[Entry]:
    """Return the entries of the session that was written last."""
    return read_log(max(place.logs(), key=lambda log: log.stat().st_mtime_ns)).entries


def messages(place: Place) -> list[Any]:
    """Return the messages of the session, without the marks of the cache, which move."""
    *made, _ = build_request(fold(entries(place)), model="m", max_tokens=1_000).messages
    for message in made:
        for block in message["content"]:
            block.pop("cache_control", None)
    return made


def is_near(shown: float, counted: float, whole: float) -> bool:
    return abs(shown - counted) <= MAX_ERROR * whole


def check_price(plan: Given, done: Given, reply: Assistant, *, is_estimate: bool) -> None:
    """Check what was shown of an edit against what the server counted at the next call."""
    usage = Usage.from_json(reply.usage)
    counted = usage.prompt
    assert is_near(done["tokens_after"], counted, counted)
    for when in ("before", "after"):
        price = cost(reply.model, Usage(cache_read=plan[f"tokens_{when}"]))
        assert price is not None
        assert abs(plan[f"{when}_usd"] - price) <= SHOWN_USD
    if is_estimate:
        assert plan["tokens_after"] >= (1 - MAX_ERROR) * counted
    else:
        assert is_near(plan["tokens_after"], counted, counted)
        assert is_near(plan["rewritten"], usage.cache_creation, counted)


async def play(place: Place, server: Server, front: FrontEnd) -> None:
    listed = items(place)

    def ref(item: Item) -> int:
        kind, what = item
        return next(int(i["ref"]) for i in listed if i["kind"] == kind and what in i["what"])

    for wish in WISHES:
        original = messages(place)
        if wish.first:
            await front.ask("drop", {"refs": [*map(ref, wish.first)]})
            assert messages(place) != original
        given: Given = {"refs": [*map(ref, wish.refs)]} if wish.refs else {}
        given |= {name: ref(item) for name, item in wish.part}
        if wish.action == "items":
            found = {item["ref"]: item for item in (await front.ask("items", {}))["items"]}
            assert all(found[item["ref"]]["tokens"] == item["tokens"] for item in listed)
            assert all(each["spent_usd"] >= each["call_usd"] for each in found.values())
            continue
        await front.say()  # the server's cache has the context as it is now
        before, asked = messages(place), len(server.requests)
        if wish.instructions:
            given["instructions"] = wish.instructions
        plan = await front.ask(wish.action, {**given, "dry_run": True})
        assert messages(place) == before
        done = await front.ask(wish.action, given)
        assert messages(place) != before
        await front.say()
        assert server.rejected == []
        questions = [str(request["messages"][-1]) for request in server.requests[asked:-1]]
        assert len(questions) == (wish.action == "compact")
        assert all(wish.instructions in text for text in questions)
        replies = (e for e in entries(place) if isinstance(e, Assistant) and e.purpose == "turn")
        *_, last = replies
        if plan:
            check_price(plan, done, last, is_estimate=wish.action == "compact")
        if wish.action != "undo":
            await front.ask("undo", {})
            assert messages(place)[: len(before)] == before
        if wish.first and wish.action != "undo":
            await front.ask("undo", {})
        assert messages(place)[: len(original)] == original


@dataclass
class CommandLine:
    """`ctxagent context`, and a new process for each turn."""

    place: Place
    env: dict[str, str]

    async def ask(self, action: str, given: Given) -> Given:
        if action == "undo":  # without a preview
            if not given.get("dry_run"):
                self._run("compact", "--undo")
            return {}
        arguments = [] if action == "items" else [action, *map(str, given.get("refs", []))]
        names = ("from", "to", "before", *(() if given.get("dry_run") else ("instructions",)))
        for name in names:
            arguments += [f"--{name}", str(given[name])] if name in given else []
        arguments += ["--dry-run"] if given.get("dry_run") else []
        return dict(json.loads(self._run("context", *arguments, "--json")))

    async def say(self) -> None:
        self._run("--continue", "-p", "go on")

    def _run(self, *arguments: str) -> str:
        done = self.place.run(*arguments, env=self.env)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@asynccontextmanager
async def on_the_command_line(place: Place, server: Server) -> AsyncIterator[FrontEnd]:
    yield CommandLine(place, place.server(server.url))


@dataclass
class Program:
    """Lines of `stream-json`."""

    driver: Driver

    async def ask(self, action: str, given: Given) -> Given:
        self.driver.send({"type": "context", "action": action, **given})
        found = dict(self.driver.next("context"))
        return {"tokens_after": found["context"]["tokens"], **found}

    async def say(self) -> None:
        self.driver.say("go on")
        assert self.driver.next("result")["status"] == "ok"


@asynccontextmanager
async def by_a_program(place: Place, server: Server) -> AsyncIterator[FrontEnd]:
    with talk(place, server.url, "--continue") as driver:
        yield Program(driver)
        assert driver.end() == 0


@dataclass
class Library:
    """`Agent.context` in this process."""

    agent: Agent

    async def ask(self, action: str, given: Given) -> Given:
        context, refs = self.agent.context, given.get("refs", [])
        part, before = (given.get("from"), given.get("to")), given.get("before")
        if action == "items":
            return {"items": [item.to_json() for item in context.items()]}
        if action == "undo":
            if given.get("dry_run"):
                return (await context.plan_undo()).to_json()
            await context.undo()
            return {"tokens_after": self.agent.state.model.current_window().tokens}
        if action == "compact":
            if given.get("dry_run"):
                return context.plan_compact(*part, before=before).to_json()
            text = given.get("instructions", "")
            return (await context.compact(*part, text, before=before)).to_json()
        if given.get("dry_run"):
            plan = context.plan_drop if action == "drop" else context.plan_restore
            return plan(refs).to_json()
        edit = context.drop if action == "drop" else context.restore
        return (await edit(refs)).to_json()

    async def say(self) -> None:
        assert (await self.agent.run("go on")).status == "ok"


@asynccontextmanager
async def in_the_library(place: Place, server: Server) -> AsyncIterator[FrontEnd]:
    async with Agent(place.project, resume=True, environ=place.server(server.url)) as agent:
        yield Library(agent)


class InTerminal:
    """The screen of `/context`. A preview leaves it open, and the edit is then applied."""

    def __init__(self, place: Place, terminal: Terminal) -> None:
        self._place, self._terminal = place, terminal
        self._refs: list[int] = []
        self._is_planned = False

    async def ask(self, action: str, given: Given) -> Given:
        with_text = "instructions" in given
        if not self._is_planned:
            if with_text:  # the screen has no place for them
                words = " ".join(str(given[name]) for name in ("from", "to", "instructions"))
                self._terminal.type(f"/context compact {words}\r")
            else:
                self._open()
                if action == "items":
                    return self._items()
                self._press_for(action, given)
            self._see("[y]es, apply it" if with_text else "Enter: apply")
        self._is_planned = bool(given.get("dry_run"))
        if self._is_planned:
            return self._plan()
        # A single key answers only a moment later; before that, Enter does. Later it does nothing.
        self._terminal.type("y\r" if with_text else "\r")
        told = self._see(lambda told: bool(re.search(DONE[action], told)))
        *_, done = re.finditer(DONE[action], told)
        found = re.search(r"([\d,]+)\s+tokens", told[done.start() :])
        assert found
        if not with_text:
            self._close()
        return {"tokens_after": number(found[1])}

    async def say(self) -> None:
        ends = self._ends()
        self._terminal.type("go on\r")
        self._terminal.see(lambda _: self._ends() > ends)

    def _ends(self) -> int:
        return sum(isinstance(entry, End) for entry in entries(self._place))

    def _open(self) -> None:
        self._terminal.type("/context\r")
        self._see(lambda told: "Esc close" in told and bool(ROW.search(told)))
        self._refs = [int(row[1]) for row in ROW.finditer(self._shown())]

    def _close(self) -> None:
        self._terminal.press("ctrl-c")
        self._see(lambda told: "Esc close" not in told)

    def _items(self) -> Given:
        rows = [ROW.match(line) for line in self._shown().split("\n")]
        names = "ref", "tokens", "call_usd", "spent_usd"
        found = [dict(zip(names, map(number, row.groups()), strict=True)) for row in rows if row]
        self._close()
        return {"items": found}

    def _press_for(self, action: str, given: Given) -> None:
        """Go to the items of an edit, mark them, and press its key."""
        if action != "undo":
            refs = given.get("refs") or [given.get("from", self._refs[0]), given.get("to")]
            last = given.get("before", refs[-1])
            if len(refs) > 1 and "before" not in given:
                self._go_to(refs[0])
                self._terminal.type("m")
            self._go_to(last)
        self._terminal.type("b" if "before" in given else KEYS[action])

    def _go_to(self, ref: int) -> None:
        self._terminal.type(HOME + DOWN * self._refs.index(ref))
        self._see(lambda told: bool(re.search(rf"^❯[ *] +#{ref} ", told, re.MULTILINE)))

    def _plan(self) -> Given:
        plans = [*PLAN.finditer(" ".join(self._shown().split()))]
        return {name: number(text or "0") for name, text in plans[-1].groupdict().items()}

    def _see(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until the visible rows show something."""
        seen = wanted if callable(wanted) else lambda told: wanted in told
        self._terminal.see(lambda _: seen(self._shown()))
        return self._shown()

    def _shown(self) -> str:
        return "\n".join(line.rstrip() for line in self._terminal.screen.display)


def number(text: str) -> float:
    found = float(text.replace(",", ""))
    return int(found) if "." not in text else found


@asynccontextmanager
async def in_the_terminal(place: Place, server: Server) -> AsyncIterator[FrontEnd]:
    env = place.server(server.url)
    terminal = Terminal("--continue", cwd=place.project, env=env, columns=100, rows=80)
    terminal.see("% full")
    yield InTerminal(place, terminal)
    terminal.press("ctrl-d")
    assert terminal.leave() == 0


FRONT_ENDS: tuple[Callable[[Place, Server], AbstractAsyncContextManager[FrontEnd]], ...] = (
    by_a_program,
    in_the_library,
    on_the_command_line,
    in_the_terminal,
)


@pytest.mark.variants
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_ten_wishes_come_true(tmp_path: Path, front_end: Any) -> None:
    place = three_turns(tmp_path)

    async def act(server: Server) -> None:
        async with front_end(place, server) as front:
            await play(place, server, front)

    with Server(reply) as server:
        asyncio.run(act(server))
        assert server.rejected == []
