"""A first message on the command line, attached files, and `--resume` without an ID: the real
command in a terminal.
"""

import os
from pathlib import Path

import pytest

from ctxagent.agent.session.store import Project

from ..support.command import COMMAND, Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal
from .test_picker import fill

ESC = "\x1b"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(body: Body) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [str(block.get("text", f"[{block['type']}]")) for block in blocks]


@pytest.mark.parametrize("plain", [False, True])
def test_words_are_the_first_turn(place: Place, plain: bool) -> None:
    with Server([Say("It counts."), Say("And more.")]) as server:
        more = ["--plain"] if plain else []
        terminal = Terminal(
            "explain", "this code", *more, cwd=place.project, env=place.server(server.url)
        )
        text = terminal.see("It counts.")
        assert "explain this code" in text
        terminal.type("go on\r")
        terminal.see("And more.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert [said(body)[0] for body in server.requests] == ["explain this code"] * 2
    assert server.rejected == []


def test_words_may_be_a_command(place: Place) -> None:
    terminal = Terminal("/cost", cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("calls")
    terminal.type("/quit\r")
    assert terminal.leave() == 0


@pytest.mark.variants
@pytest.mark.parametrize("theme", ["auto", "dark"])  # the terminal is queried, or it is not
def test_keys_before_the_first_paint_mean_what_they_mean_later(place: Place, theme: str) -> None:
    started = place.root / "started"
    os.mkfifo(started)
    begin = f': < "{started}"; exec "{COMMAND}" -c ui.theme={theme}'
    with Server([Say("It counts."), Say("And more.")]) as server:
        env = {**os.environ, **place.server(server.url)}
        terminal = Terminal("-c", begin, cwd=place.project, env=env, command="/bin/sh")
        terminal.type("go hello\rand then höre\r/quit")
        with started.open("w"):  # the command starts now
            terminal.see("And more.")
        terminal.type("\r")
        assert terminal.leave() == 0
    assert said(server.requests[0])[0] == "go hello"
    assert "and then höre" in said(server.requests[1])
    assert server.rejected == []


def test_a_mistyped_command_is_told_before_the_prompt(place: Place) -> None:
    terminal = Terminal("sesions", cwd=place.project, env=place.server("http://127.0.0.1:9"))
    assert terminal.leave() == 2
    terminal.see("Did you mean `ctxagent sessions`?")
    assert "/help" not in terminal.text()


def test_files_that_words_name_are_brought_in(place: Place) -> None:
    (place.project / "my notes.txt").write_text("alpha\n")
    with Server([Say("Seen.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("read @my")
        terminal.see("my notes.txt")
        terminal.type("\t for me@x.org and @nothing\r")
        text = terminal.see("Seen.")
        assert "attached my notes.txt" in text
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    words, attached, *_ = said(server.requests[0])
    assert words == 'read @"my notes.txt" for me@x.org and @nothing'
    assert attached == "[The user attached the file my notes.txt:]\n1\talpha"


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (100, 34)])
def test_resume_alone_picks_a_session(place: Place, columns: int, rows: int) -> None:
    fill(Project(place.state, place.project), 12)
    with Server([Say("On it goes.")]) as server:
        terminal = Terminal(
            "-r", cwd=place.project, env=place.server(server.url), columns=columns, rows=rows
        )
        terminal.see("number 11")
        terminal.type("number 7")
        terminal.see("❯ look at Grüße number 7")
        terminal.type("\r")
        terminal.see("seen 7, and that is all")
        terminal.type("go on\r")
        terminal.see("On it goes.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert "number 7" in said(server.requests[0])[0]


def test_resume_alone_with_words_and_in_a_copy(place: Place) -> None:
    project = Project(place.state, place.project)
    fill(project, 3)
    with Server([Say("On it goes.")]) as server:
        terminal = Terminal(
            "go on", "-r", "--fork", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("number 2")
        terminal.type("\r")
        terminal.see("On it goes.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert len(project.logs()) == 4
    assert "go on" in said(server.requests[0])


def test_who_picks_nothing_leaves(place: Place) -> None:
    project = Project(place.state, place.project)
    fill(project, 3)
    terminal = Terminal("-r", "go on", cwd=place.project, env=place.server("http://127.0.0.1:9"))
    assert terminal.leave() == 2  # "go on" is no session
    terminal = Terminal("-r", cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("number 2")
    terminal.type(ESC)
    assert terminal.leave() == 0
    assert len(project.logs()) == 3


def test_resume_alone_where_there_is_nothing(place: Place) -> None:
    terminal = Terminal("-r", cwd=place.project, env=place.server("http://127.0.0.1:9"))
    assert terminal.leave() == 2
    terminal.see("there is no session to resume yet")
    assert "/help" not in terminal.text()
