"""The items that `ctxagent context` lists: harmless names, each with its own calls and results."""

import json
from pathlib import Path

import pytest

from ..support.command import Place
from .test_context_edits import items, next_messages, place

__all__ = ["place"]  # the fixture

HOSTILE = "a\x1b]0;title\x07\n<b>\u202e.txt"


@pytest.fixture
def scripted(tmp_path: Path) -> Place:
    """A project with a session in which two processes played scripts."""
    place = Place(tmp_path)
    for command, more in (("echo one", ()), (f": '{HOSTILE}'", ("--continue",))):
        call = {"name": "Bash", "input": {"command": command}}
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"steps": [{"tools": [call]}, {"text": "Done."}]}))
        options = ("--model", f"scripted:{script}", "--permission-mode", "bypass", *more)
        done = place.run(*options, "-p", f"do {HOSTILE}")
        assert done.returncode == 0, done.stderr
    return place


def run(place: Place, *words: str) -> str:
    done = place.run(*words)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_items_are_printable_and_have_their_own_calls(scripted: Place) -> None:
    listed = items(scripted)
    assert all(str(item["what"]).isprintable() for item in listed)
    assert run(scripted, "context").replace("\n", "").isprintable()
    calls = [item["what"] for item in listed if str(item["what"]).startswith("Bash")]
    assert calls[:2] == ["Bash echo one"] * 2
    assert len({*calls}) == 2
    replies = [item["ref"] for item in listed if item["kind"] == "reply"]
    results = [item["ref"] for item in listed if item["kind"] == "result"]
    plan = json.loads(run(scripted, "context", "drop", f"{replies[2]}", "--dry-run", "--json"))
    assert plan["refs"] == [replies[2], results[1]]


def test_no_summary_repeats_a_dropped_message(place: Place) -> None:
    listed = items(place)
    first, second, third = (each["ref"] for each in listed if each["kind"] == "message")
    last = max(each["ref"] for each in listed if each["ref"] < third)
    run(place, "context", "drop", f"{first}", f"{second}")
    for part in (("--before", f"{third}"), ("--from", f"{second}", "--to", f"{last}")):
        run(place, "-c", "compact.summarizer=mechanical", "context", "compact", *part)
        sent = json.dumps(next_messages(place))
        assert "ummar" in sent
        assert "what is in both" not in sent
        assert "how many words" not in sent
        run(place, "compact", "--undo")
