"""The API's own compaction block: the real command against a server that binds thinking to
everything before it.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.compactions import block_in
from ..support.server.loopback import Body, Fail, Say, Server, Step

WINDOW = 40_000
TASK = "Count with seq, forty times. Rule: never rename the module blue_heron."
RECORD = (
    "## Session Intent\nCount with seq.\n\n## Key Decisions\n1. seq, because it is there.\n\n"
    "## Current State\nPhase: counting\n- Done: some counts\n\n## Next Steps\n1. Count on.\n"
)
OPTIONS = (
    "--model", "claude-opus-5-5", "--context-window", str(WINDOW), "--permission-mode", "bypass",
    "-c", "compact.preset=append", "-c", "compact.prepare_at=off", "-c", "sandbox.mode=off",
)  # fmt: skip


class Counter:
    """Ask for this many counts, think before each, and write summaries on request."""

    def __init__(self, calls: int = 40, summary: Step | None = None) -> None:
        self.calls, self.summary = calls, summary or Say(RECORD)

    def __call__(self, body: Body) -> Step:
        if "compaction" in body:
            return self.summary
        if asks_for_record(body):
            return Say(RECORD)
        if not self.calls:
            return Say("Counted.", thinking="It is all there.")
        self.calls -= 1
        count = {"command": f"seq {1000 * self.calls} {1000 * self.calls + 600}"}
        return Say(thinking=f"Count number {self.calls}.", tools=[("Bash", count)])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def serve(
    place: Place, step: Callable[[Body], Step], *, compacts: bool, more: str = TASK
) -> Server:
    """Return a server that has played a session to its end."""
    with Server(step, bound=True, strict=True, window=WINDOW) as server:
        server.compacts = compacts
        continued = ("--continue",) if place.logs() else ()
        done = place.run(*OPTIONS, *continued, "-p", more, env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    return server


def summaries(place: Place) -> list[dict[str, Any]]:
    return [entry for entry in place.entries() if entry["kind"] == "summary"]


def asks_for_record(body: Body) -> bool:
    """Return True if a request asks the model for a summary."""
    return is_summary_question(body["messages"][-1]["content"][-1].get("text", ""))


def thoughts(body: Body) -> int:
    return json.dumps(body["messages"]).count('"type": "thinking"')


def test_block_comes_first_and_later_thinking_stays(place: Place) -> None:
    server = serve(place, Counter(), compacts=True)
    made = summaries(place)
    assert len(made) > 1
    assert all(each["block"] and each["keeps_thinking"] for each in made)
    asked = [n for n, body in enumerate(server.requests) if "compaction" in body]
    assert len(asked) == len(made)
    for n, body in enumerate(server.requests):
        assert TASK in json.dumps(body["messages"])  # the person's words stand
        if block_in(body):
            text = body["messages"][0]["content"][0]["content"]
            assert text == RECORD
            assert "compact-2026-09-04" in server.headers[n]["anthropic-beta"]
    swapped = next(body for body in server.requests if block_in(body))
    assert thoughts(swapped) > 0
    assert not any(map(asks_for_record, server.requests))
    # What it was asked was the beginning of a request that had been sent, to the byte.
    request = server.requests[asked[0]]
    sent = [json.dumps(_unmarked(body["messages"])) for body in server.requests[: asked[0]]]
    assert json.dumps(_unmarked(request["messages"])) in sent
    assert "Do not continue the task" in request["compaction"]["instructions"]


def test_block_that_pays_is_written_in_the_background(place: Place) -> None:
    """No reply that is kept loses its thinking."""
    large = ("-c", "compact.prepare_at=0.6", "--context-window", "100000")
    with Server(Counter(calls=60), bound=True, strict=True, window=100_000) as server:
        server.compacts = True
        done = place.run(*OPTIONS, *large, "-p", TASK, env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    (summary, *_) = summaries(place)
    assert summary["block"]
    assert summary["keeps_thinking"]
    for body in server.requests:
        replies = [each for each in body["messages"] if each["role"] == "assistant"]
        assert thoughts(body) == len(replies) - bool(block_in(body))


def test_records_follow_the_block_and_its_text_is_kept(place: Place) -> None:
    serve(place, Counter(), compacts=True)
    last = summaries(place)[-1]
    assert "blue_heron" in last["text"]
    assert last["block"]["content"] == RECORD
    folder = place.logs()[0].parent
    assert (folder / "summary.md").read_text().startswith("## Session Intent")
    assert "blue_heron" in (folder / "summary.md").read_text()
    replayed = place.run("replay", str(place.logs()[0]))
    told = re.search(r"(\d+) of (\d+) requests rebuilt byte for byte", replayed.stdout)
    assert told, replayed.stdout
    assert told[1] == told[2]


def test_cost_of_the_block_is_counted(place: Place) -> None:
    serve(place, Counter(), compacts=True)
    asked = [e for e in place.entries() if e["kind"] == "assistant" and e["purpose"] == "summary"]
    assert asked
    for entry in asked:
        assert entry["usage"]["output"] > 0
        assert entry["usage"]["cache_read"] > 0
        assert entry["cost_usd"] > 0


@pytest.mark.full
def test_server_without_blocks_gets_our_summary(place: Place) -> None:
    server = serve(place, Counter(), compacts=False)
    made = summaries(place)
    assert made
    assert not any(each["block"] for each in made)
    refused = [body for body in server.requests if "compaction" in body]
    assert len(refused) == 1  # and never again
    serve(place, Counter(), compacts=False, more="Count again, as many times.")
    assert len(summaries(place)) > len(made)


@pytest.mark.variants
@pytest.mark.parametrize(
    "summary",
    [
        Say(tools=[("Bash", {"command": "true"})]),
        Say("Nothing in any section."),
        Fail(400, "compaction: the summary could not be made"),
    ],
    ids=["a call", "no sections", "refused"],
)
def test_useless_block_is_replaced(place: Place, summary: Step) -> None:
    serve(place, Counter(summary=summary), compacts=True)
    made = summaries(place)
    assert made
    assert not made[0]["block"]


def test_another_server_gets_the_text_in_place_of_the_block(place: Place) -> None:
    serve(place, Counter(), compacts=True)
    assert summaries(place)[-1]["block"]
    server = serve(place, Counter(calls=1), compacts=False, more="And once more.")
    first, *_ = server.requests
    assert not block_in(first)
    assert RECORD.strip() in first["messages"][0]["content"][0]["text"]
    assert thoughts(first) == 0


@pytest.mark.full
def test_another_server_with_blocks_begins_with_our_summary(place: Place) -> None:
    """The server has not accepted a block yet, and new thinking is bound to the block's text."""
    serve(place, Counter(), compacts=True)
    before = len(summaries(place))
    serve(place, Counter(), compacts=True, more=f"Again. {TASK}")
    made = summaries(place)[before:]
    assert [bool(each["block"]) for each in made][:2] == [False, True]


def test_invalid_block_does_not_end_the_session(place: Place) -> None:
    serve(place, Counter(), compacts=True)
    log = place.logs()[0]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "summary":
            line["block"]["signature"] = "cmpother"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Server(Counter(calls=1), bound=True, window=WINDOW) as server:
        server.compacts = True
        known = {"gaps": [], "seen": ["compaction"], "at": int(time.time())}
        learned = {f"{server.url} claude-opus-5-5": known}
        (place.state / "servers.json").write_text(json.dumps(learned))
        (place.state / "servers.json").chmod(0o600)
        done = place.run(*OPTIONS, "--continue", "-p", "Go on.", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    (_, refused), *_ = server.rejected
    assert block_in(refused)
    assert len(server.rejected) == 1
    assert not block_in(server.requests[-1])


def test_undo_of_a_block_restores_everything(place: Place) -> None:
    serve(place, Counter(calls=24), compacts=True)
    assert len(summaries(place)) == 1
    undone = place.run("compact", "--undo")
    assert undone.returncode == 0, undone.stderr
    server = Server(Counter(calls=0), bound=True)
    server.compacts = True
    with server:
        done = place.run(
            *OPTIONS, "-c", "compact.mode=off", "--context-window", "200000", "--continue",
            "-p", "Was that all?", env=place.server(server.url),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    (body,) = server.requests
    assert not block_in(body)
    assert "seq 23000 23600" in json.dumps(body)  # the first count is there again


@pytest.mark.parametrize(("compacts", "told"), [(True, "supported"), (False, "not supported: ")])
def test_doctor_shows_if_a_server_makes_blocks(place: Place, *, compacts: bool, told: str) -> None:
    with Server(lambda body: Say("walrus"), lenient=True) as server:
        server.compacts = compacts
        doctor = ("-c", "model.id=claude-opus-5-5", "doctor", "--server")
        done = place.run(*doctor, env=place.server(server.url))
    assert f"server-side summaries: {told}" in done.stdout
    (learned,) = json.loads((place.state / "servers.json").read_text()).values()
    assert ("compaction" in learned["seen"]) == compacts
    assert ("compaction" in learned["gaps"]) != compacts


def _unmarked(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _unmarked(v) for k, v in node.items() if k != "cache_control"}
    return [_unmarked(each) for each in node] if isinstance(node, list) else node
