"""Pipes and messages on the command line: piped input with a task, messages without `-p`, files
named in messages, `--resume` without an ID, `--system-prompt`.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.cli import stdin
from ctxagent.agent.cli.stdin import StdinTimeouts, read_attached_data
from ctxagent.agent.features.environment import system_prompt
from ctxagent.agent.features.subagent_types import built_in_types

from ..support.command import COMMAND, PATIENCE, Place
from ..support.server.loopback import Say, Server
from .test_images import png


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(lambda body: Say("Yes.")) as running:
        yield running
    assert running.rejected == []


def texts(server: Server) -> list[str]:
    """Return the texts of the last request, before the environment."""
    blocks = [b for m in server.requests[-1]["messages"] for b in m["content"]]
    shown = [str(block.get("text", f"[{block['type']}]")) for block in blocks]
    return [text for text in shown if not text.startswith("The environment")]


def shell(place: Place, server: Server, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of shell with `ctxagent` in it."""
    return subprocess.run(
        ["bash", "-c", line.replace("ctxagent", shlex.quote(COMMAND))], cwd=place.project,
        env=place.server(server.url), capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


def piped(
    place: Place, server: Server, source: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command with the output of a line of shell as its standard input."""
    with subprocess.Popen(
        ["bash", "-c", source], cwd=place.project, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        return place.run(*arguments, env=place.server(server.url), stdin=program.stdout.fileno())


def redirected(
    place: Place, server: Server, name: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command with a file of the project as its standard input."""
    with (place.project / name).open() as file:
        return place.run(*arguments, env=place.server(server.url), stdin=file.fileno())


def test_piped_input_is_attached_to_the_task(place: Place, server: Server) -> None:
    (place.project / "in").write_text("one\ntwo\n")
    for run in (
        lambda: shell(place, server, "cat in | ctxagent -p review"),
        lambda: shell(place, server, "ctxagent -p review < <(cat in)"),
        lambda: piped(place, server, "cat in", "--", "review"),
        lambda: piped(place, server, "cat in", "-p", "-", "review"),
        lambda: redirected(place, server, "in", "-p", "review"),
    ):
        done = run()
        assert (done.returncode, done.stdout, done.stderr) == (0, "Yes.\n", ""), done.args
        attached = "[The user attached standard input, 2 lines, 8 bytes:]\none\ntwo\n"
        assert texts(server) == ["review", attached], done.args


def test_nothing_is_printed_without_piped_input(place: Place, server: Server) -> None:
    (place.project / "empty").write_text("")
    for run in (
        lambda: place.run("-p", "review", env=place.server(server.url)),  # from /dev/null
        lambda: shell(place, server, "ctxagent -p review <&-"),
        lambda: redirected(place, server, "empty", "-p", "review"),
    ):
        done = run()
        assert (done.returncode, done.stderr) == (0, ""), done.args
        assert texts(server) == ["review"], done.args


def test_a_slow_program_is_waited_for(place: Place, server: Server) -> None:
    os.mkfifo(place.project / "go")
    line = "{ read x < go; echo late; } | ctxagent -p review"
    with subprocess.Popen(
        ["bash", "-c", line.replace("ctxagent", shlex.quote(COMMAND))], cwd=place.project,
        env=place.server(server.url), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        assert run.stderr.readline() == "ctxagent: waiting for standard input from bash\n"
        (place.project / "go").write_text("now\n")
        out, _ = run.communicate(timeout=PATIENCE)
    assert out == "Yes.\n"
    assert texts(server)[1].endswith(":]\nlate\n")


def test_pipe_without_a_writer_is_reported_and_ignored(place: Place, server: Server) -> None:
    reading, writing = os.pipe()
    done = place.run("-p", "hello", env=place.server(server.url), stdin=reading)
    os.close(reading)
    os.close(writing)
    assert done.stdout == "Yes.\n"
    assert done.stderr == f"ctxagent: {stdin.NO_WRITER}\n"
    assert texts(server) == ["hello"]


class Source:
    """Standard input as `read_attached_data` gets it, and what it prints."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.file = os.fdopen(number)
        self.said: list[str] = []
        monkeypatch.setattr(sys, "stdin", self.file)

    def read(self, **patience: float) -> Any:
        with self.file:
            return read_attached_data(self.said.append, StdinTimeouts(**patience))


def test_waits_for_a_silent_program_but_not_for_a_pipe_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    source = Source(monkeypatch, reading)
    with subprocess.Popen(
        ["sh", "-c", "read x; echo late"], stdin=subprocess.PIPE, stdout=writing
    ) as slow:
        os.close(writing)
        stdin_of_slow = slow.stdin
        assert stdin_of_slow is not None

        def release(text: str) -> None:
            source.said.append(text)
            stdin_of_slow.close()

        with source.file:
            found = read_attached_data(release, StdinTimeouts(first=0))
    assert found is not None
    assert (found.data, found.cut) == (b"late\n", "")
    assert source.said == ["waiting for standard input from sh"]
    ours = os.pipe()  # that we hold the other end of
    source = Source(monkeypatch, ours[0])
    assert source.read(first=0) is None
    os.close(ours[1])
    assert source.said == [stdin.NO_WRITER]


def test_endless_input_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"some\n")
    source = Source(monkeypatch, reading)
    found = source.read(first=0, silence=0)
    os.close(writing)
    assert found.data == b"some\n"
    assert "had not ended" in found.cut
    assert source.said == [
        "waiting for the end of standard input: 5 bytes so far",
        "standard input did not end: continuing with the data so far",
    ]
    reading, writing = os.pipe()
    source = Source(monkeypatch, reading)
    with subprocess.Popen(["yes"], stdout=writing) as endless:
        os.close(writing)
        found = source.read()
        assert endless.wait(PATIENCE) == -signal.SIGPIPE  # nobody reads on
    assert len(found.data) == stdin.MAX_STDIN_BYTES
    assert "only the first 16 MiB" in found.cut


def test_a_socket_and_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"by socket")
        ours.shutdown(socket.SHUT_WR)
        assert Source(monkeypatch, os.dup(theirs.fileno())).read().data == b"by socket"
        assert Source(monkeypatch, os.dup(ours.fileno())).read(first=0) is None
    main, side = os.openpty()
    os.write(main, b"typed\n")
    assert Source(monkeypatch, side).read() is None
    os.close(main)


def test_large_and_binary_input(place: Place, server: Server) -> None:
    (place.project / "shot.png").write_bytes(png(8, 8))
    piped(place, server, "seq 1 100000", "-p", "review")
    text = texts(server)[1]
    assert "[The user attached standard input, 100,000 lines, 588,895 bytes:]" in text
    assert "\n> 1\n" in text
    assert "\n> 100000\n" in text
    (log,) = place.logs()
    (kept,) = (log.parent / "offloaded").iterdir()
    assert kept.read_text().splitlines()[-1] == "100000"
    redirected(place, server, "shot.png", "-p", "what is it")
    assert texts(server)[2] == "[image]"
    done = piped(place, server, "head -c 100 /bin/sh", "-p", "what is it")
    assert "binary, not text: ELF" in texts(server)[1]
    assert "binary, not text: ELF" in done.stderr
    done = piped(place, server, "head -c 100 /bin/sh", "-p")
    assert done.returncode == 2
    assert "the task on standard input is binary" in done.stderr


def test_keys_are_removed_from_piped_input(place: Place, server: Server) -> None:
    (place.project / "a.txt").write_text("the key is test-key-1\n")
    assert piped(place, server, "cat a.txt; seq 1 100000", "-p", "see @a.txt").returncode == 0
    assert "test-key-1" not in str(server.requests[-1])
    assert texts(server)[2].endswith("1\tthe key is [redacted: ANTHROPIC_API_KEY]")
    for path in place.state.rglob("*"):
        assert not path.is_file() or b"test-key-1" not in path.read_bytes(), path


def test_files_that_a_task_names(place: Place, server: Server) -> None:
    (place.project / "a.txt").write_text("alpha\n")
    (place.root / "b.txt").write_text("beta\n")
    env = place.server(server.url)
    done = place.run("-p", "read @a.txt and @../b.txt for me@x.org", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert texts(server)[1:] == [
        "[The user attached the file a.txt:]\n1\talpha",
        "[The user attached the file ../b.txt:]\n1\tbeta",
    ]
    done = place.run("-p", env=env, stdin="read @a.txt and @../b.txt")  # nobody typed that
    assert texts(server)[1:] == ["[The user attached the file a.txt:]\n1\talpha"]
    assert "@../b.txt: not attached" in done.stderr
    place.run("-p", "read @a.txt", "--deny", "Read(a.txt)", env=env)
    assert "alpha" not in str(server.requests[-1])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sesions"], "Did you mean `ctxagent sessions`?"),
        (["sesions", "list"], "Did you mean `ctxagent sessions`?"),
        (["resume"], "`ctxagent --resume` lists the sessions"),
        (["help"], "Did you mean `ctxagent --help`?"),
        (["update"], "To send it to the agent: ctxagent -- update"),
        (["exec", "fix the tests"], "`ctxagent -p TASK` does one task"),
        (["auth", "login"], "type `/login`: it asks for a key and saves it"),
        (["mcp-list"], "Did you mean `ctxagent mcp`?"),
        (["--yolo", "fix it"], "`--permission-mode bypass`"),
        (["-c"], "The newest session is `--continue`"),
        (["-c", "fix it"], "To resume the newest session, use --continue"),
        (["--system-prompt", "Be brief.", "-p", "x"], "--append-system-prompt takes a text"),
        ([" "], "the message is blank"),
        (["-p", "explain", "this"], 'Quote it as one: ctxagent -p "explain this"'),
        (["explain", "--nosuch"], "No such option"),
        (["--modle", "x"], "Did you mean '--model'?"),
        (["doctor", "--repiar"], "Did you mean '--repair'?"),
        (["--resume"], "a headless run can't pick the session"),
        (["-r", "-p", "go on"], "`ctxagent sessions list`"),
        (["-r", "--continue", "-p", "go on"], "name two sessions"),
    ],
)
def test_likely_mistakes_are_errors(place: Place, arguments: list[str], told: str) -> None:
    done = place.run(*arguments, env=place.server("http://127.0.0.1:9"))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert place.logs() == []


def test_words_between_options_are_a_task(place: Place, server: Server) -> None:
    env = place.server(server.url)
    for arguments in (
        ["replay the steps", "--output-format", "json"],
        ["--output-format", "json", "replay the steps"],
        ["-p", "--output-format", "json", "replay the steps"],
        ["--output-format", "json", "--", "replay the steps"],
    ):
        done = place.run(*arguments, env=env)
        assert json.loads(done.stdout)["result"] == "Yes."
        assert texts(server) == ["replay the steps"]


@pytest.mark.parametrize("words", [["update"], ["models"], ["sesions", "list"]])
def test_words_after_two_dashes_are_a_task(place: Place, server: Server, words: list[str]) -> None:
    done = place.run("--output-format", "json", "--", *words, env=place.server(server.url))
    assert json.loads(done.stdout)["result"] == "Yes."
    assert texts(server) == [" ".join(words)]


def test_custom_system_prompt(place: Place) -> None:
    (place.project / "poet.md").write_text("\ufeffYou are a poet.\n")
    (place.project / "other.md").write_text("You are a judge.\n")
    task = ("Task", {"description": "look", "prompt": "Look at @poet.md.", "type": "explore"})
    steps = [Say(tools=[task]), Say("Nothing."), *[Say("Yes.")] * 6]
    with Server(steps) as server:
        env = place.server(server.url)

        def run(*arguments: str) -> tuple[str, str]:
            done = place.run(*arguments, env=env)
            assert done.returncode == 0, done.stderr
            return server.requests[-1]["system"][0]["text"], done.stderr

        own = system_prompt("Rhyme.", own="You are a poet.")
        assert own.startswith("You are a poet.\n\n# Limits\n")
        assert own.endswith("\n\nRhyme.")
        given = ("--system-prompt", "poet.md", "--append-system-prompt", "Rhyme.")
        assert run(*given, "-p", "sing")[0] == own
        explore = next(kind for kind in built_in_types() if kind.name == "explore")
        below = system_prompt("Rhyme.", explore.prompt, own="You are a poet.")
        assert [body["system"][0]["text"] for body in server.requests[:3]] == [own, below, own]
        told = str(server.requests[1]["messages"])  # what the model names brings nothing in
        assert "Look at @poet.md." in told
        assert "attached" not in told
        kept = system_prompt(own="You are a poet.")
        assert run("--continue", "-p", "on") == (kept, "")
        assert run("--continue", "-p", "on", "--system-prompt", "poet.md") == (kept, "")
        system, told = run("--continue", "-p", "on", "--system-prompt", "other.md")
        assert system == kept
        assert "this session began with another system prompt and keeps it" in told
        assert run("--continue", "--fork", "-p", "on")[0] == kept
        assert run("-p", "fresh")[0] == system_prompt()
    assert server.rejected == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b" \n", "the file is empty"),
        (b"\0\1\2", "the file is binary"),
        (b"\xff\xfe\xfd", "the file is binary"),
        (b"x" * 100_001, "the file is too large"),
    ],
)
def test_invalid_system_prompt(place: Place, content: bytes | None, told: str) -> None:
    if content is not None:
        (place.project / "own.md").write_bytes(content)
    done = place.run("--system-prompt", "own.md", "-p", "x", env=place.server("http://127.0.0.1:9"))
    assert done.returncode == 2
    assert "--system-prompt own.md" in done.stderr
    assert told in done.stderr
    assert place.logs() == []
