"""The real command with a slow or small model: it makes no useless requests."""

import json
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.sessions.setup import long_text
from .test_engine_http import asks_for_a_record


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_window_of_3000_names_what_fills_it_and_the_next_step(place: Place) -> None:
    with Server([Say("Hi.")]) as server:
        done = place.run(
            "-p", "hello", "--context-window", "3000", "--output-format", "json",
            env=place.server(server.url),
        )  # fmt: skip
        assert server.requests == []
    assert done.returncode == 4
    told = json.loads(done.stdout)["error"]["message"]
    assert "of 3,000 tokens and cannot be made to fit" in told
    assert "the definitions of 13 tools, 1," in told
    assert "the system prompt, 2" in told
    assert "A reply needs 1,024 tokens" in told
    for step in ("--preset small", "features.off", "--context-window"):
        assert step in told


def test_a_model_without_a_usable_summary_is_asked_less_often(place: Place) -> None:
    """The count continues after a resume. The third summary is made from the ledger, unasked."""
    asked = list[Body]()

    def play(body: Body) -> Say:
        if asks_for_a_record(body):
            asked.append(body)
            return Say("All is well.")
        return Say(long_text(2_000))

    little = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
    told = ""
    with Server(play) as server:
        env = place.server(server.url)
        for number in range(4):
            for turn in range(2):
                more = ("--continue",) if number + turn else ()
                assert place.run("-p", "go", *little, *more, env=env).returncode == 0
            done = place.run(*little, "compact", "--apply", env=env)
            assert done.returncode == 0, done.stderr
            told += done.stderr
    assert len(asked) == 5
    assert told.count("was not usable") == 3
    assert told.count("is not asked for the next 1 summary; /model selects another model") == 1
    assert told.count("is not asked for the next 2 summaries; /model selects another model") == 1
    assert sum(entry["kind"] == "summary" for entry in place.entries()) == 4


def test_a_run_without_a_terminal_is_told_a_changed_permission_mode(place: Place) -> None:
    little = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
    bypass = ("--permission-mode", "bypass")
    mechanical = ("-c", "compact.summarizer=mechanical")
    with Server(lambda body: Say(long_text(2_000))) as server:
        env = place.server(server.url)
        for more in ((), ("--continue",)):
            assert place.run("-p", "go", *bypass, *little, *more, env=env).returncode == 0
        done = place.run(*little, *mechanical, "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
        assert place.run("-p", "go", *bypass, *little, "--continue", env=env).returncode == 0
        said = json.dumps(server.requests[-1]["messages"])
    assert said.rindex("The permission mode is now bypass") > said.rindex("Permission mode: ask")


def test_a_summary_that_would_make_nothing_smaller_is_not_asked_for(place: Place) -> None:
    with Server([Say("Yes."), Say("Yes.")]) as server:
        env = place.server(server.url)
        assert place.run("-p", "one", env=env).returncode == 0
        assert place.run("-p", "two", "--continue", env=env).returncode == 0
        done = place.run("-c", "compact.keep_messages=1", "compact", "--apply", env=env)
        assert len(server.requests) == 2
    assert done.returncode != 0
    assert "the context would not get smaller" in done.stderr
