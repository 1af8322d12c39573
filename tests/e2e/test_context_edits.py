"""Edits of the context from outside: `ctxagent context`, control lines of stream-json, and the
library.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.server.loopback import Say, Server

RECORD = (
    "## Session Intent\nKnow big.txt.\n\n## Key Decisions\n1. Estimate.\n\n"
    "## Current State\nPhase: reading\n\n## Next Steps\n1. Wait.\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project with a session of three turns, with parallel calls and thinking."""
    place = Place(tmp_path)
    (place.project / "big.txt").write_text("word " * 3_000)
    (place.project / "small.txt").write_text("letter " * 300)
    reads: list[Any] = [("Read", {"path": name}) for name in ("big.txt", "small.txt")]
    steps = [
        Say("I read both.", thinking="Two files.", tools=reads),
        Say("Words.", thinking="So many."),
        Say(" ".join(f"word {number}" for number in range(4_000)), thinking="Count."),
        Say("You are welcome."),
    ]
    with Server(steps) as server:
        env = place.server(server.url)
        tasks = ("what is in both? " * 40, "how many words? " * 40, "thank you")
        for task, more in zip(tasks, ([], ["--continue"], ["--continue"]), strict=True):
            done = place.run(*more, "-p", task, env=env)
            assert done.returncode == 0, done.stderr
    return place


def items(place: Place) -> list[dict[str, Any]]:
    done = place.run("context", "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["items"])


def test_the_items_of_a_session_are_listed(place: Place) -> None:
    (log,) = place.logs()
    before = log.read_bytes()
    found = items(place)
    kinds = [item["kind"] for item in found]
    assert kinds.count("message") == 3
    assert kinds.count("result") == 2
    big = next(item for item in found if item["what"] == "Read big.txt")
    assert big["tokens"] > 300
    assert big["call_usd"] > 0
    assert (big["age"], big["state"]) == (3, "whole")
    shown = place.run("context", log.parent.name)
    assert shown.returncode == 0, shown.stderr
    assert f"#{big['ref']}" in shown.stdout
    assert f"{big['tokens']:,}" in shown.stdout
    assert place.run("context", "no-such-session").returncode == 2
    assert log.read_bytes() == before


def next_messages(place: Place) -> Any:
    """Return the messages of the next request, with what is in the log now."""
    entries = read_log(place.logs()[0]).entries
    return build_request(fold(entries), model="m", max_tokens=1_000).messages


def edit(place: Place, *arguments: str, **more: Any) -> dict[str, Any]:
    """Edit the context, and check the plan that was shown before."""
    log = place.logs()[0]
    before = log.read_bytes()
    plan = place.run("context", *arguments, "--dry-run", "--json", **more)
    assert plan.returncode == 0, plan.stderr
    assert log.read_bytes() == before
    planned = json.loads(plan.stdout)
    assert not planned.pop("applied")
    done = place.run("context", *arguments, "--json", **more)
    assert done.returncode == 0, done.stderr
    applied = json.loads(done.stdout)
    assert applied.pop("applied")
    if "compact" not in arguments:
        assert applied == planned
    return dict(applied)


def undo(place: Place) -> None:
    done = place.run("compact", "--undo")
    assert done.returncode == 0, done.stderr


def ref(place: Place, kind: str, what: str = "") -> str:
    return str(next(i["ref"] for i in items(place) if i["kind"] == kind and what in i["what"]))


def test_items_are_dropped_and_restored_from_the_command_line(place: Place) -> None:
    whole = next_messages(place)
    for each in (
        ref(place, "message", "how many"),
        ref(place, "result", "big.txt"),
        ref(place, "reply", "Read"),
    ):
        applied = edit(place, "drop", each)
        assert applied["tokens_after"] < applied["tokens_before"]
        assert applied["after_usd"] < applied["before_usd"]
        dropped = next_messages(place)
        assert f"full text: #{each}" in str(dropped)
        undo(place)
        assert next_messages(place) == whole
        edit(place, "drop", f"#{each}")
        edit(place, "restore", each)
        assert without_thinking(next_messages(place)) == without_thinking(whole)
        undo(place)
        assert next_messages(place) == dropped
        undo(place)
        assert next_messages(place) == whole


def without_thinking(messages: Any) -> Any:
    return [
        [block for block in message["content"] if block["type"] != "thinking"]
        for message in messages
    ]


def test_a_part_is_summarised_from_the_command_line(place: Place) -> None:
    whole = next_messages(place)
    first, last = ref(place, "message", "how many"), ref(place, "message", "thank")
    with Server([Say(RECORD), Say(RECORD)]) as server:
        env = place.server(server.url)
        edit(place, "compact", "--from", first, "--before", last, env=env)
        assert server.rejected == []
        asked = str(server.requests[0]["messages"])
        assert "how many words?" in asked
        assert "what is in both?" not in asked
        part = str(next_messages(place))
        assert "Know big.txt." in part
        assert "what is in both?" in part
        undo(place)
        assert next_messages(place) == whole
        done = place.run("context", "compact", "--before", last, "--instructions", "count", env=env)
        assert done.returncode == 0, done.stderr
        assert "count" in str(server.requests[1]["messages"][-1])
    assert "tokens" in done.stdout
    assert "thank you" in str(next_messages(place))
    undo(place)
    assert next_messages(place) == whole


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("drop", "9999"), "#9999 is not in the context"),
        (("drop", "x"), "not a ref"),
        (("restore", "2"), "nothing to restore"),
        (("compact", "--from", "2"), "Give --to or --before"),
        (("compact", "--to", "2", "--before", "3"), "Give --to or --before"),
    ],
)
def test_an_edit_that_is_impossible_says_why(
    place: Place, arguments: tuple[str, ...], told: str
) -> None:
    done = place.run("context", *arguments)
    assert done.returncode in (1, 2)
    assert told in done.stderr
