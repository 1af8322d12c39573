"""Notices at shares of the window: for the user and hooks before a compaction, for the model."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server

RECORD = (
    "## Session Intent\nCount.\n\n## Key Decisions\n1. Count.\n\n"
    "## Current State\nPhase: counting\n\n## Next Steps\n1. Go on.\n"
)
WINDOW = 24_000
OPTIONS = (
    "--context-window", str(WINDOW), "-c", "compact.at=0.85", "-c", "compact.prepare_at=off",
    "-c", "clear.when=off", "-c", "truncate.at=off", "-c", "move.above=off",
    "-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1", "--permission-mode", "bypass",
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Model:
    """Runs `calls` commands in each turn, each with about a tenth of the window."""

    def __init__(self, calls: int) -> None:
        self.calls, self.made = calls, 0

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            return Say(RECORD)
        self.made += 1
        if self.made % (self.calls + 1) == 0:
            return Say("Done.")
        return Say(tools=[("Bash", {"command": f"seq -f 'words of {self.made} %g' 420"})])


def summaries(place: Place) -> list[Any]:
    return [entry for entry in place.entries() if entry["kind"] == "summary"]


def heard(place: Place, name: str = "heard") -> list[Any]:
    path = place.root / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lines_for_model(body: Body) -> list[str]:
    """Return the lines about the window in a request."""
    texts = (b.get("text", "") for message in body["messages"] for b in message["content"])
    return [text for text in texts if "of the context window is used" in text]


def test_a_notice_and_hooks_at_each_share_once_before_a_summary(place: Place) -> None:
    hooks = place.root / "home" / ".config" / "ctxagent" / "hooks.json"
    hooks.parent.mkdir(parents=True)
    published = {"type": "command", "command": "cat >> ../published"}
    of_event = {"matcher": "context_reached", "hooks": [published]}
    hooks.write_text(json.dumps({"hooks": {"Notification": [of_event]}}))
    options = (
        *OPTIONS, "-c", "context.notify=[0.5, '80%']",
        "-c", "hooks.context_reached=cat >> ../heard", "-c", "hooks.before_compact=cat >> ../heard",
    )  # fmt: skip
    model = Model(6)
    with Server(model, window=WINDOW) as server:
        env = place.server(server.url)
        first = place.run("-p", "count", *options, env=env)
        assert first.returncode == 0, first.stderr
        assert [event["event"] for event in heard(place)] == ["context_reached"]
        again = place.run("-p", "go on", "--continue", *options, env=env)
        assert again.returncode == 0, again.stderr
    assert len(summaries(place)) == 1
    events = heard(place)
    assert [event["event"] for event in events] == [
        "context_reached", "context_reached", "before_compact",
    ]  # fmt: skip
    assert [event["share"] for event in events[:2]] == [0.5, 0.8]
    assert all(e["tokens"] >= e["share"] * WINDOW for e in events[:2])
    assert events[0]["window"] == WINDOW
    told = [event["message"] for event in heard(place, "published")]
    notes = [e["text"] for e in place.entries() if e["kind"] == "note" and e["topic"] == "window"]
    assert notes == told
    assert told[0].startswith("the context is 5")
    assert told[0] in first.stderr
    assert told[1] in again.stderr


def test_nothing_is_announced_to_the_user_by_default_or_without_the_feature(place: Place) -> None:
    model = Model(6)
    with Server(model, window=WINDOW) as server:
        env = place.server(server.url)
        done = place.run("-p", "count", *OPTIONS, "-c", "features.off=window", env=env)
    assert done.returncode == 0, done.stderr
    assert "full" not in done.stderr
    assert not any(map(lines_for_model, server.requests))


def test_the_model_gets_a_line_at_each_share_once_and_no_prefix_changes(place: Place) -> None:
    model = Model(7)
    with Server(model, window=WINDOW, bound=True) as server:
        env = place.server(server.url)
        for turn in ((), ("--continue",)):
            done = place.run("-p", "count", *turn, *OPTIONS, env=env)
            assert done.returncode == 0, done.stderr
    assert server.rejected == []
    turns = [body for body in server.requests if "tools" in body]
    told = [lines_for_model(body) for body in turns]
    assert told[0] == []
    before_summary = max(told, key=len)
    assert len(before_summary) == 2
    assert before_summary[0].startswith("[5")
    assert before_summary[1].startswith("[8")
    (summary,) = summaries(place)
    usages = [
        e["usage"]
        for e in place.entries()
        if e["kind"] == "assistant" and e.get("purpose", "turn") == "turn"
        if e["seq"] < summary["seq"]
    ]
    assert len(usages) > 5
    for usage, later in pairwise(usages):
        assert later["cache_read"] == usage["cache_read"] + usage["cache_creation"]
    after = told[-1]
    assert len(after) == 1
    assert "the oldest part summarised; Recall has all of it" in after[0]


def test_the_line_says_what_was_left_out(place: Place) -> None:
    model, moving = Model(9), ("-c", "move.above=1500", "-c", "context.tell_model=['25%']")
    with Server(model, window=WINDOW) as server:
        done = place.run("-p", "count", *OPTIONS, *moving, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    (line,) = lines_for_model(server.requests[-1])
    assert "So far: " in line
    assert "moved to files; Recall has all of it." in line


@pytest.mark.parametrize("value", ["['x']", "[0]", "[1.5]", "0.5x"])
def test_a_size_that_is_none_is_refused(place: Place, value: str) -> None:
    done = place.run("-p", "x", "-c", f"context.notify={value}")
    assert done.returncode == 2
    assert "context.notify" in done.stderr
