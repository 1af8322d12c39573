"""Measure the seconds of 30-call sessions on a slow local server, by the rule of compaction.

    .venv/bin/python benchmarks/real/seconds.py [FILE...] [--size full] [--verify URL]

Recordings are cut to their first 30 replies; without files, a generated session is played. The
server keeps one prefix: what a request shares with the previous request costs nothing, the rest of
the prompt is read and the reply is written at measured speeds, with the time for attention. A
result that was needed again counts as one more call. `--verify` sends the requests of the first
session to a real llama.cpp server with one slot, and compares its counts and seconds.
"""

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import measure

from ctxagent.addons.replay.cache_prices import CacheBill, RequestBody
from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.player import Player, ReplayHost, Terms, play_folder, scratch_folder
from ctxagent.addons.replay.results import ReplayRun
from ctxagent.agent.assembly import base_tools
from ctxagent.agent.compaction.engine import CompactionEngine
from ctxagent.agent.compaction.in_time import policy_in_time
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.window import Window
from ctxagent.agent.features.environment import system_prompt
from ctxagent.agent.models.chat.wire import WIRE
from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)
from ctxagent.agent.session.server_speed import TokenSeconds
from ctxagent.tools.ask_user import AskUserTool
from ctxagent.tools.plan import PlanTool

CALLS = 30
MODEL = "llamacpp/qwen2.5-coder"
NEEDED_AGAIN_TOKENS = 60  # of the call that restores a result
# Qwen2.5-Coder-1.5B on two idle cores: 55 tokens/s read and 11 written in an empty context.
SPEED = TokenSeconds(0.018, 1.5e-6, 0.09, 3e-6, 700, 150)
NEAR_LIMIT = replace(DEFAULT, clear_when="off", truncate_at=None, outline=False, prepare_at=None)
RULES: Mapping[str, tuple[Policy, TokenSeconds | None]] = {
    "before": (DEFAULT, None),  # prices in dollars, with reads at 0.05
    "near the limit": (NEAR_LIMIT, None),
    "in time": (DEFAULT, SPEED),
}
WINDOWS = (8_192, 16_384, 32_768)


@lru_cache(maxsize=20_000)
def _size(text: str) -> int:
    return tokens.estimate(text)


@dataclass
class PrefixCache:
    """The cache of a server with one slot: the previous prompt. See `PromptCache`."""

    previous: list[str] = field(default_factory=list)  # its blocks

    def is_cold(self, at: float | None) -> bool:
        return not self.previous

    def charge(self, body: RequestBody, at: float | None = None) -> CacheBill:
        texts = [json.dumps(each, ensure_ascii=False) for each in _blocks(body)]
        same = 0
        for text, before in zip(texts, self.previous, strict=False):
            if text != before:
                break
            same += 1
        read = sum(map(_size, texts[:same]))
        rest = texts[same:]
        if rest and same < len(self.previous):
            pairs = zip(rest[0], self.previous[same], strict=False)
            common = next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
            read, rest[0] = read + _size(rest[0][:common]), rest[0][common:]
        self.previous = texts
        return CacheBill(written=sum(map(_size, rest)), read=read)


def _blocks(body: RequestBody) -> Iterator[dict[str, Any]]:
    yield from body["tools"]
    yield from map(_without_mark, body["system"])
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield from ({"role": message["role"], **_without_mark(block)} for block in blocks)


def _without_mark(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


class LocalHost(ReplayHost):
    """A conversation on a server with one slot."""

    speed: TokenSeconds | None = None

    def has_one_slot(self) -> bool:
        return True

    def token_seconds(self) -> TokenSeconds | None:
        return self.speed


@dataclass
class LocalPlayer(Player):
    """Player of one recording on a local server."""

    speed: TokenSeconds | None = None
    sent: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.host.log.close()
        self.host.log.path.unlink(missing_ok=True)
        self.host = LocalHost(self.host.log.path, self.terms.model, self.terms.window)
        self.host.speed = self.speed
        self.host.cache = PrefixCache()  # type: ignore[assignment]
        self.engine = CompactionEngine(self.host, self.terms.policy)
        policy = policy_in_time(self.terms.policy, self.speed, Window(0, self.terms.window))
        self._entry_storage = replace(self._entry_storage, policy=policy)

    def request(self) -> Request:
        self.sent.append(super().request())
        return self.sent[-1]


def play(recording: Recording, rule: str, window: int) -> tuple[ReplayRun, list[Request]]:
    """Play a recording by a rule; return the run and its requests."""
    policy, speed = RULES[rule]
    tools = (*base_tools(), AskUserTool(), PlanTool())
    schemas = tuple(tool.schema() for tool in tools)
    terms = Terms(rule, policy, MODEL, window, system_prompt(), schemas, fills=0)
    with scratch_folder() as folder:
        player = LocalPlayer(recording, terms, play_folder(folder, 0), speed=speed)
        return asyncio.run(player.run()), player.sent


def figures(run: ReplayRun) -> dict[str, float]:
    """Return the seconds of a run and what they are spent on."""
    turns = [call for call in run.priced if call.purpose == "turn"]
    others = [call for call in run.priced if call.purpose != "turn"]

    def seconds(calls: Sequence[Any]) -> float:
        return sum(SPEED.seconds(call.read, call.written, call.output) for call in calls)

    needed = 0.0
    for need in run.needs:
        call = turns[min(need.number, len(turns)) - 1]
        prompt = call.read + call.written
        needed += SPEED.seconds(prompt, need.tokens, NEEDED_AGAIN_TOKENS)
    return {
        "seconds": seconds(run.priced) + needed,
        "summaries_s": seconds(others),
        "needed_s": needed,
        "read_tokens": sum(call.written for call in run.priced),
        "summaries": sum(act.layer == "summary" for act in run.acts),
        "needed": len(run.needs),
        "finished": not run.stopped,
    }


def cut(recording: Recording, calls: int) -> Recording:
    """Return the first replies of a recording."""
    steps, replies = list[RecordedStep](), 0
    for step in recording.steps:
        replies += isinstance(step, RecordedReply)
        if replies > calls:
            break
        steps.append(step)
    return replace(recording, steps=tuple(steps), system="")


def generated() -> Recording:
    """Return a session of 30 calls: commands with outputs of 10 to 400 lines."""
    steps: list[RecordedStep] = [RecordedMessage(text="Find out why the numbers differ.")]
    for number in range(CALLS - 1):
        lines = (10, 40, 25, 400, 15, 120)[number % 6]
        text = "".join(f"row {n} of table {number}: {n * number % 97}\n" for n in range(lines))
        call = RecordedCall(f"c{number}", "Bash", {"command": f"show {number}"}, text=text)
        steps.append(RecordedReply(text=f"Table {number} comes next.", calls=(call,)))
    return Recording("generated", "ctxagent", (*steps, RecordedReply(text="They do not.")))


def _one(job: tuple[str, str, int, int]) -> dict[str, float]:
    path, rule, window, calls = job
    recording = cut(load_recording(Path(path)), calls) if path else generated()
    return figures(play(recording, rule, window)[0])


def main(files: Sequence[str], windows: Sequence[int], calls: int) -> Iterator[measure.Table]:
    """Yield a table for each window, over the sessions that every rule plays to their end."""
    paths = [*files] or [""]
    jobs = [(p, rule, window, calls) for window in windows for rule in RULES for p in paths]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = dict(zip(jobs, pool.map(_one, jobs), strict=True))
    for window in windows:
        whole = [p for p in paths if all(found[p, r, window, calls]["finished"] for r in RULES)]
        rows: dict[str, dict[str, float]] = {}
        for rule in RULES:
            mine = [found[p, rule, window, calls] for p in paths]
            same = [found[p, rule, window, calls] for p in whole]
            means = {k: sum(f[k] for f in same) / max(1, len(same)) for k in mine[0]}
            means["finished"] = sum(each["finished"] for each in mine)
            first = rows.get("before", means)["seconds"]
            rows[rule] = {"sessions": len(whole), "relative": means["seconds"] / (first or 1)}
            rows[rule] |= means
        yield measure.Table(f"seconds of {calls} calls, window {window:,}", rows)


def verify(path: str, url: str, calls: int) -> Iterator[measure.Table]:
    """Send the requests of a session to a server, and compare its counts and seconds with ours."""
    recording = cut(load_recording(Path(path)) if path else generated(), calls)
    run, sent = play(recording, "in time", WINDOWS[1])
    rows = {}
    turns = [call for call in run.priced if call.purpose == "turn"]
    for call, request in zip(turns, sent, strict=False):
        request = replace(request, model=MODEL.partition("/")[2], max_tokens=1)
        body = WIRE.fitted_body(request, ("cache", "stream", "stream_options"))
        asked = urllib.request.Request(
            f"{url}/chat/completions", json.dumps(body).encode(),
            {"content-type": "application/json"},
        )  # fmt: skip
        started = time.perf_counter()
        with urllib.request.urlopen(asked, timeout=900) as answer:
            timings = json.load(answer)["timings"]
        rows[f"call {call.number}"] = {
            "read": call.written, "prompt_n": timings["prompt_n"],
            "cached": call.read, "cache_n": timings.get("cache_n", 0),
            "read_s": SPEED.seconds(call.read, call.written, 0),
            "prompt_s": timings["prompt_ms"] / 1_000,
            "wall_s": time.perf_counter() - started,
        }  # fmt: skip
    yield measure.Table("predicted and measured prompts", rows)


SIZES: dict[str, dict[str, Any]] = {
    "full": {"windows": WINDOWS, "calls": CALLS},
    "quick": {"windows": WINDOWS[1:2], "calls": CALLS},
    "tiny": {"windows": WINDOWS[1:2], "calls": 4},
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--size", choices=measure.LEVELS, default="full")
    parser.add_argument("--verify", metavar="URL", help="a llama.cpp server, ends with /v1")
    parser.add_argument("--calls", type=int, default=5, help="calls to verify")
    given = parser.parse_args()
    if given.verify:
        tables = verify(next(iter(given.files), ""), given.verify, given.calls)
    else:
        tables = main(given.files, **SIZES[given.size])
    for table in tables:
        measure.report(*table)
