"""Replays of our own sessions: requests rebuilt from the log equal the sent ones byte for byte, and
differences are found.
"""

import asyncio
import base64
import hashlib
import json
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.request_check import (
    RequestCheck,
    RequestCounts,
    check_log,
    check_with_subagents,
)
from ctxagent.agent.app import change_model, open_agent
from ctxagent.agent.cli import demo
from ctxagent.agent.compaction.history import last_acts
from ctxagent.agent.config.settings import (
    ClearSettings,
    CompactSettings,
    ModelSettings,
    PermissionSettings,
    SandboxSettings,
    Settings,
    StateSettings,
)
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import SessionError
from ctxagent.agent.events import Accepted, Answer, Event, Question
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.messages.model import MessagesModel
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.models.scripted import ScriptedModel
from ctxagent.agent.models.scripted import Step as Scripted
from ctxagent.agent.models.wire import encode
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Revert,
    Session,
    Summary,
    ToolResult,
)
from ctxagent.agent.session.log import encode_line, read_log

from ..compaction.test_engine import RECORD
from ..e2e.test_engine_http import asks_for_a_record
from ..support.server.loopback import Body, Fail, Say, Server, Step
from ..support.server.validator import validate
from ..support.sessions.setup import long_text
from ..tools.test_read import png

MODEL, OTHER = "claude-sonnet-5-5", "claude-opus-5-5"
KEY, TOKEN = "sk-ant-api03-the-key-of-the-agent-0123456789", "tok-of-the-person-7Zq42"
WINDOW = 32_400
QUICK = RetryPolicy(attempts=3, first_wait=0.001, longest_wait=0.002)
BOUND = 60.0  # seconds; nothing here takes as long


def launch(folder: Path, url: str, *, window: int = WINDOW, redact: bool = False) -> LaunchOptions:
    (folder / "project").mkdir(exist_ok=True)
    environ = {"PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": KEY, "DEPLOY_TOKEN": TOKEN}
    model = MessagesModel(MODEL, base_url=url, context_window=window, environ=environ, retry=QUICK)
    return LaunchOptions(
        settings=Settings(
            model=ModelSettings(id=MODEL, base_url=url, context_window=window),
            compact=CompactSettings(at=0.62, prepare_at=0.4, keep_messages=2, keep_tokens=2_000),
            clear=ClearSettings(when="every-call"),
            permissions=PermissionSettings(mode="bypass"),
            sandbox=SandboxSettings(mode="off"),
            state=StateSettings(redact=redact),
        ),
        places=Places(
            cwd=folder / "project",
            state=folder / "state",
            config_home=folder / "config",
            environ={**environ, "HOME": str(folder)},
        ),
        model=model,
    )


def run(start: LaunchOptions, choice: SessionChoice, play: Callable[[AgentState], Any]) -> Path:
    """Run a session from its opening to its end; return its log."""

    async def whole() -> Path:
        loop = open_agent(start, choice, emit=lambda event: None, ask=None)
        try:
            await play(loop)
        finally:
            await loop.close()
        return loop.log.path

    return asyncio.run(whole())


async def said(loop: AgentState, words: str) -> None:
    finished = await run_turn(loop, words)
    assert finished.status == "ok", finished


def of(log: Path, kind: type[Any]) -> list[Any]:
    return [entry for entry in read_log(log).entries if isinstance(entry, kind)]


def digests(*logs: Path) -> list[str]:
    return [reply.request["sha256"] for log in logs for reply in of(log, Assistant)]


class Script:
    """Model that thinks and makes `calls` calls per turn: a picture, files, outputs, a subagent.
    `faults` replaces replies by number. The first summary is delayed until two more calls were
    made, because it is prepared in the background.
    """

    def __init__(self, calls: int, faults: dict[int, Step] | None = None) -> None:
        self.calls, self.faults = calls, faults or {}
        self.asked = self.done = self.records = 0
        self.passed: dict[int, threading.Event] = {}

    def __call__(self, body: Body) -> Step:
        if asks_for_a_record(body):
            self.records += 1
            return Say(RECORD, edit=self._held if self.records == 1 else None)
        if "You are a subagent" in json.dumps(body["system"]):
            task = len(body["messages"]) == 1 or Say("Counted: 400.", thinking="Few.")
            return task if isinstance(task, Say) else self._bash("seq 400")
        self.asked += 1
        for number, passed in self.passed.items():
            if self.asked >= number:
                passed.set()
        if self.asked in self.faults:
            return self.faults[self.asked]
        if self.done == self.calls:
            self.done = 0
            return Say("All done. Ünïcode — 終わり 🎉", thinking="That was the last.")
        self.done += 1
        return self._work(self.done)

    def _work(self, number: int) -> Step:
        thinking = f"Now comes number {number} of {self.calls}: «ü»."
        if number == 2:
            return Say(thinking=thinking, tools=[("Read", {"path": "shot.png"})])
        if number == 3:
            task = {"description": "count", "prompt": "count it", "type": "explore"}
            return Say(thinking=thinking, tools=[("Task", task)])
        if number % 3 == 1:
            text = "".join(f"row {number}.{n} = 'é'\n" for n in range(250))
            path = f"part_{self.asked}.py"
            return Say(thinking=thinking, tools=[("Write", {"path": path, "content": text})])
        return self._bash(f"seq -f 'item %g of {self.asked}' 300", thinking)

    def _bash(self, command: str, thinking: str = "Hm.") -> Say:
        return Say("Next. " + "word " * 500, thinking, tools=[("Bash", {"command": command})])

    def _held(self, events: list[Body]) -> list[Body | str]:
        passed = self.passed.setdefault(self.asked + 2, threading.Event())
        assert passed.wait(BOUND)
        return list(events)


@dataclass
class Long:
    """A long session, the requests that the server received, and its script."""

    log: Path
    server: Server
    script: Script
    found: RequestCheck


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Long]:
    """Run a session with many calls: resumed, summarized, reverted, and with a changed model."""
    folder = tmp_path_factory.mktemp("long")
    script = Script(18, {5: Fail(529, "overloaded"), 8: Say("No", fault="cut")})
    with Server(script, bound=True, window=WINDOW) as server:
        start = launch(folder, server.url)
        (start.places.cwd / "shot.png").write_bytes(png(48, 32))

        async def first(loop: AgentState) -> None:
            await said(loop, "Work — süß 🙂.")
            script.calls = 7

        async def second(loop: AgentState) -> None:
            await said(loop, "go on")
            await loop.engine.compact("Mind the número.")
            await said(loop, "more")
            while not isinstance(last_acts(loop.log.entries())[-1], Summary):
                loop.engine.uncompact(loop.log.entries())
            loop.engine.uncompact(loop.log.entries())
            await said(loop, "and more")
            change_model(loop, OTHER)
            loop.model.effort = "high"
            await said(loop, "the rest")

        log = run(start, SessionChoice(), first)
        assert run(replace(start, model=start.model), SessionChoice(newest=True), second) == log
        yield Long(log, server, script, check_with_subagents(log))


@pytest.mark.slow
def test_a_long_session_is_rebuilt_byte_for_byte(long: Long) -> None:
    logs = [long.log, *long.log.parent.glob("agents/*/log.jsonl")]
    assert long.server.rejected == []
    assert len(logs) > 1
    # All that this is about was there.
    layers = {mask.layer for mask in of(long.log, Mask)}
    assert {"microcompact", "truncate"} <= layers, layers
    triggers = {summary.trigger.split(":")[0] for summary in of(long.log, Summary)}
    assert triggers == {"manual", "HOOK-CTX-003"}
    acts = {entry.seq: type(entry) for entry in read_log(long.log).entries}
    assert {acts[revert.target] for revert in of(long.log, Revert)} == {Mask, Summary}
    bodies = json.dumps(long.server.requests)
    for part in ('"thinking": "Now', '"type": "image"', '"effort": "high"', "Mind the n"):
        assert part in bodies
    asked_ahead = [
        reply for reply in of(long.log, Assistant)
        if reply.purpose == "summary" and reply.seq > reply.request["upto"] + 2
    ]  # fmt: skip
    assert asked_ahead

    sent = Counter(long.server.digests)
    asked = dict(zip(long.server.digests, long.server.requests, strict=True))
    others = sent - Counter(digests(*logs))
    # One was refused with a 529, and sent again. A summary that was prepared and then not needed
    # may have been given up before its first word.
    given_up = [digest for digest in others if asks_for_a_record(asked[digest])]
    assert len(set(others) - set(given_up)) == 1
    assert len(given_up) <= 1
    sent -= others
    assert Counter(digests(*logs)) == sent
    assert long.found.holds, long.found.first
    count = sent.total()
    assert long.found.line() == f"{count} of {count} requests rebuilt byte for byte"
    assert long.found.counts["attempt"] == RequestCounts(equal=1)
    assert long.found.counts["summary"].equal == long.script.records - len(given_up)


def test_the_digests_are_in_the_order_of_the_calls(long: Long) -> None:
    turns = [r for r in of(long.log, Assistant) if r.purpose == "turn"]
    places = [long.server.digests.index(reply.request["sha256"]) for reply in turns]
    assert places == sorted(places)
    assert len(turns) > 40


def altered(log: Path, folder: Path, change: Callable[[Entry], Entry]) -> Path:
    """Write a copy of the log with changed entries."""
    copy = folder / "log.jsonl"
    copy.write_bytes(b"".join(encode_line(change(entry)) for entry in read_log(log).entries))
    return copy


@pytest.mark.slow
def test_one_character_of_a_result_is_found(long: Long, tmp_path: Path) -> None:
    results = [r for r in of(long.log, ToolResult) if isinstance(r.content, str)]
    touched = next(result for result in results[2:] if "item 7 of" in result.content)

    def change(entry: Entry) -> Entry:
        if not isinstance(entry, ToolResult) or entry.seq != touched.seq:
            return entry
        assert isinstance(entry.content, str)
        return replace(entry, content=entry.content.replace("item 7 of", "item 8 of"))

    found = check_log(altered(long.log, tmp_path, change))
    after = [r for r in of(long.log, Assistant) if r.request["upto"] >= touched.seq]
    assert found.first is not None
    assert not found.holds
    assert found.first.seq == min(after, key=lambda reply: reply.request["upto"]).seq
    (version,) = {session.version for session in of(long.log, Session)}
    assert str(found.first).endswith(
        f"the request for #{found.first.seq} (turn) differs from the one that version {version} "
        "sent; the log has only the digest, so the position is unknown"
    )
    # Once a stub stands for that result, what was sent is what it was.
    assert found.total.equal > found.total.different > 0


def test_a_log_without_digests_says_so(long: Long, tmp_path: Path) -> None:
    def older(entry: Entry) -> Entry:
        return replace(entry, request={}) if isinstance(entry, Assistant) else entry

    found = check_log(altered(long.log, tmp_path, older))
    assert not found.holds
    assert found.first is None
    count = len(of(long.log, Assistant))
    assert found.line() == f"0 of 0 requests rebuilt byte for byte · {count} without a digest"


NONSENSE: list[dict[str, Any]] = [
    {"upto": "3"},
    {"upto": -1},
    {"upto": 10**9},
    {"upto": True},
    {"settled": "x"},
    {"stable_before": ["x"]},
    {"asked": ["x"]},
    {"asked": "\ud800"},
    {"parameters": None},
    {"parameters": {"x": float("nan")}},
    {"sha256": 7},
    {"span": [0, 9]},
    {"span": 3, "keep_from": 4, "keep": []},
    {"span": [0, 9], "keep_from": [], "keep": 5},
]


@pytest.mark.parametrize("wrong", NONSENSE, ids=str)
def test_an_invalid_recipe_counts_as_different(long: Long, tmp_path: Path, wrong: Any) -> None:
    """A log can contain anything."""
    turns = [reply for reply in of(long.log, Assistant) if reply.purpose == "turn"]
    head = read_log(long.log).entries[: turns[1].seq]
    copy = tmp_path / "log.jsonl"
    head[-1] = replace(turns[1], request={**turns[1].request, **wrong})
    copy.write_text("".join(f"{encode_line(entry).decode()}" for entry in head))
    total = check_log(copy).total
    assert (total.equal, total.different + total.apart) == (1, 1)


@pytest.mark.slow
def test_breakpoints_of_older_logs_are_rebuilt(long: Long, tmp_path: Path) -> None:
    """The breakpoint is before the first item with the stored number or a larger one."""

    def older(entry: Entry) -> Entry:
        if not isinstance(entry, Assistant) or "stable_before" not in entry.request:
            return entry
        made = dict(entry.request)
        return replace(entry, request=made | {"settled": made.pop("stable_before")})

    def before_summaries(check: RequestCheck) -> bool:
        return check.first is None or check.first.seq > of(long.log, Summary)[0].seq

    assert before_summaries(check_log(altered(long.log, tmp_path, older)))


def test_a_request_of_an_older_log_that_kept_the_cache_warm(tmp_path: Path) -> None:
    """Such a request asked for no output, so it was not streamed."""
    with Server([Say("Yes.")]) as server:
        log = run(launch(tmp_path, server.url), SessionChoice(), lambda loop: said(loop, "go"))
    (sent,), (reply,) = server.requests, of(log, Assistant)
    plain = {**sent, "max_tokens": 0}
    del plain["stream"]
    raw = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    made = {**reply.request, "sha256": hashlib.sha256(raw).hexdigest()}
    made["parameters"] = {**made["parameters"], "max_tokens": 0}
    last = read_log(log).entries[-1].seq
    warm = replace(reply, seq=last + 1, content=[], purpose="warm", request=made)
    log.write_bytes(log.read_bytes() + encode_line(warm))
    found = check_log(log)
    assert found.counts["warm"] == found.counts["turn"] == RequestCounts(equal=1)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SessionError):
        check_log(tmp_path / "log.jsonl")


@pytest.mark.slow
def test_a_summary_in_parts_and_its_verification(tmp_path: Path) -> None:
    """Another model writes the parts. The verification request is not built from the context."""

    def answer(body: Body) -> Step:
        asked = str(body["messages"][-1]["content"])
        if "about to be compressed" in asked:
            return Say(RECORD)
        if "The record:" in asked:
            return Say("1: unknown")
        return Say("Half a pair: \ud83d. " + long_text(7_000))

    with Server(answer) as server:
        start = launch(tmp_path, server.url, window=36_000)
        compact = replace(start.settings.compact, model=OTHER, mode="remind")
        start = replace(start, settings=replace(start.settings, compact=compact))

        async def play(loop: AgentState) -> None:
            for words in ("one", "two", "three", "four"):
                await said(loop, words)
            await loop.engine.examine(await loop.engine.compact("Keep \udc80 too."))

        log = run(start, SessionChoice(), play)
    found = check_log(log)
    assert server.rejected == []
    assert found.holds, found.first
    count = len(server.requests)
    assert digests(log) == server.digests
    assert count == 7
    assert found.counts["summary"] == RequestCounts(equal=2)
    assert found.counts["verify"] == RequestCounts(apart=1)
    told = f"{count - 1} of {count - 1} requests rebuilt byte for byte"
    assert found.line() == f"{told} · 1 not built from the context"


@pytest.mark.slow
def test_a_redacted_session_is_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    """Requests are built from the log, so a redacted session is rebuilt byte for byte."""
    shape = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    steps = [
        Say(
            f"It may be {TOKEN}. " + long_text(2_000),
            tools=[("Bash", {"command": f"printf %s {shape}; echo"})],
        ),
        Say("Seen. " + long_text(2_000)),
        Say(RECORD),
        Say("Done."),
    ]
    with Server(steps) as server:

        async def play(loop: AgentState) -> None:
            await said(loop, f"look at {TOKEN}")
            await loop.engine.compact(f"never name {TOKEN}, nor {KEY}")
            await said(loop, "go on")

        log = run(launch(tmp_path, server.url, redact=True), SessionChoice(), play)
    assert server.rejected == []
    sent = json.dumps(server.requests)
    for secret in (KEY, TOKEN):
        assert secret not in sent
        assert secret not in log.read_text()
    (result,) = of(log, ToolResult)
    assert shape not in json.dumps(result.content)
    assert "never name [redacted: DEPLOY_TOKEN]" in sent
    assert digests(log) == server.digests
    assert check_log(log).total == RequestCounts(equal=4)


@pytest.mark.slow
def test_the_demo_is_rebuilt_byte_for_byte(tmp_path: Path) -> None:
    script = tomllib.loads(
        resources.files("ctxagent.agent.cli").joinpath("demo.toml").read_text("utf-8")
    )
    project = tmp_path / "cart"
    demo._write_project(project, script["files"])
    model = ScriptedModel(demo._model_steps(script), window=demo.CONTEXT_WINDOW, check=validate)

    async def ask(question: Question) -> Answer:
        return Answer(True)

    def emit(event: Event) -> None:
        if opened:
            shares.append(opened[0].model.current_window().share)

    opened: list[AgentState] = []
    shares: list[float] = []

    async def play() -> Path:
        loop = demo._open(project, model, emit, ask)
        opened.append(loop)
        for words in script["words"]:
            if not words.startswith("/"):
                await said(loop, words)
        await loop.close()
        return loop.log.path

    log = asyncio.run(play())
    found = check_log(log)
    assert of(log, Summary)
    assert found.holds, found.first
    assert (found.total.apart, found.total.untold) == (0, 0)
    assert Counter(digests(log)) <= Counter(
        hashlib.sha256(encode(body(request))).hexdigest() for request in model.requests
    )
    assert found.counts["turn"].equal == len(script["steps"])
    assert 0.93 <= max(shares) < 1  # what is shown is never more than the window


def ask(model: str = MODEL, **more: Any) -> Request:
    texts = ["Grüße, 終わり 🎉", 'a "quoted"\n\ttext\\ \x7f\u2028 </script>']
    words = [{"type": "text", "text": text} for text in texts]
    image = {"type": "base64", "media_type": "image/png", "data": _base64(png(2, 2))}
    given = {"zeta": 1, "alpha": [1.5, 1e22, -0.0, None, True], "é": {"b": {}, "a": []}}
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": given}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [*words[:1]]}
    tool = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}
    messages = [
        {"role": "user", "content": [*words, {"type": "image", "source": image}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "Be good.", **mark}]
    return replace(Request(model, system, [tool], messages, 1000), **more)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "request_",
    [ask(), ask(effort="low"), ask("claude-haiku-4-5"), ask("who-knows", system=[], tools=[]),
     ask("who-knows", effort="max"), ask(thinking=False)],
    ids=["known", "effort", "older", "unknown, bare", "unknown, effort", "no thinking"],
)  # fmt: skip
def test_the_bytes_are_those_that_the_sdk_sends(request_: Request) -> None:
    """Both models report the digest of the bytes on the wire, in both places."""

    async def play(model: Any) -> list[str]:
        deltas = [delta async for delta in model.stream(request_)]
        await model.close()
        return [d.sent["sha256"] for d in deltas if isinstance(d, Accepted | Reply)]

    with Server([Say("Yes.")]) as server:
        real = MessagesModel(
            request_.model, base_url=server.url, environ={"ANTHROPIC_API_KEY": KEY}
        )
        told = asyncio.run(play(real))
    assert server.rejected == []
    assert told == server.digests * 2
    assert json.loads(encode(body(request_))) == server.requests[0]
    assert asyncio.run(play(ScriptedModel([Scripted("Yes.")]))) == told
