"""A user who returns after the prompt cache has expired, and one who returns in time."""

import json
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

MODEL = "walrus-1"
OPTIONS = ("--model", f"anthropic/{MODEL}", "--permission-mode", "bypass")
ROW = f"""[{MODEL}]
window = 200_000
output = 8_000
input_price = 2
output_price = 10
"""
TRIGGER = "the cache ended while you were away"
LONG = " ".join(f"word {n}" for n in range(12_000))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def prices(place: Place, life: float) -> None:
    """Set the seconds for which the model's prompt cache lives."""
    own = place.root / "home" / ".config" / "ctxagent" / "models.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(f"{ROW}cache_life = {life}\n")


def summaries(place: Place) -> list[dict[str, Any]]:
    return [entry for entry in place.entries() if entry["kind"] == "summary"]


def test_a_summary_for_the_user_but_never_in_a_headless_run(place: Place) -> None:
    """The cache has expired before each message. A headless run summarises nothing; the user who
    continues the session is shown the size in advance, and then the summary. The next message finds
    nothing more to replace. No request asks for a summary.
    """
    prices(place, 0.001)
    steps = [Say(LONG), Say("First."), Say("Second."), Say("Third.")]
    with Server(steps) as server:
        env = place.server(server.url)
        for message in (("-p", "go"), ("-p", "more", "--continue")):
            assert place.run(*message, *OPTIONS, env=env).returncode == 0
        assert summaries(place) == []
        terminal = Terminal(*OPTIONS, "--continue", cwd=place.project, env=env)
        terminal.see("% full")
        terminal.type("/context report\r")
        terminal.see("after a pause of more than 0.001 seconds: ")
        terminal.type("and now?\r")
        text = terminal.see("Second.")
        assert TRIGGER in text
        terminal.type("and then?\r")
        terminal.see("Third.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    (summary,) = summaries(place)
    assert summary["trigger"] == TRIGGER
    assert summary["tokens_after"] < summary["tokens_before"] / 2
    requests = [json.dumps(each["messages"]) for each in server.requests]
    assert [LONG in each for each in requests] == [False, True, False, False]


def test_a_user_who_returns_in_time_has_the_same_requests(tmp_path: Path) -> None:
    """The same session with and without the setting, byte for byte apart from the folders."""
    sent = {}
    for name in ("true", "false"):
        place = Place(tmp_path / name)
        prices(place, 3_600)
        options = (*OPTIONS, "-c", f"compact.while_away={name}")
        with Server([Say(LONG), Say("First."), Say("Second.")]) as server:
            env = place.server(server.url)
            for message in (("-p", "go"), ("-p", "more", "--continue")):
                assert place.run(*message, *options, env=env).returncode == 0
            terminal = Terminal(*options, "--continue", cwd=place.project, env=env)
            terminal.see("% full")
            terminal.type("and now?\r")
            terminal.see("Second.")
            terminal.press("ctrl-d")
            assert terminal.leave() == 0
        assert summaries(place) == []
        (log,) = place.logs()
        known = (str(place.root), "ROOT"), (log.parent.name, "ID"), (log.parents[2].name, "PROJECT")
        text = json.dumps([{**each, "metadata": None} for each in server.requests])
        for old, new in known:
            text = text.replace(old, new)
        sent[name] = text
    assert sent["true"] == sent["false"]
