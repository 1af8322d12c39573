"""Command files with the real command: the text for the model, and which commands may run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

REVIEW = """---
description: Look at this: well
argument-hint: [file]
allowed-tools: Bash(printf:*), Bash(touch allowed)
---
Review $1, all of: $ARGUMENTS.
It said !`printf '<%s>' $2`.
@a.txt
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(lambda body: Say("Yes.")) as running:
        yield running
    assert running.rejected == []


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "commands" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def told(server: Server) -> str:
    return "\n".join(
        str(block.get("text", ""))
        for message in server.requests[-1]["messages"]
        for block in message["content"]
    )


def test_a_trusted_file_of_the_project(place: Place, server: Server) -> None:
    write(place.project / ".claude", "review.md", REVIEW)
    (place.project / "a.txt").write_text("alpha\n")
    env = place.server(server.url)
    assert place.run("config", "--trust", env=env).returncode == 0
    done = place.run("-p", '/review src/x.py "a $1 b; !`id`"', env=env)
    assert done.returncode == 0, done.stderr
    said = told(server)
    assert '[/review src/x.py "a $1 b; !`id`", a command from .claude/commands/review.md:]' in said
    # Arguments are put in once, and are words: nothing in them is replaced or run.
    assert 'Review src/x.py, all of: src/x.py "a $1 b; !`id`".' in said
    assert "It said <a $1 b; !`id`>." in said
    assert "[The user attached the file a.txt:]\n1\talpha" in said


def test_untrusted_command_of_a_project_is_text_only(place: Place, server: Server) -> None:
    write(place.project / ".claude", "review.md", f"{REVIEW}\n!`touch made`\n@~/secret.txt\n")
    (place.root / "home" / "secret.txt").write_text("a secret\n")
    done = place.run("-p", "/review x", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert "is not trusted; ignored: `!` commands and allowed-tools" in done.stderr
    assert "ctxagent config --trust" in done.stderr
    assert "!`touch made`" in told(server)
    assert "a secret" not in told(server)
    assert not (place.project / "made").exists()


def test_shell_command_in_a_command_file_follows_the_rules(place: Place, server: Server) -> None:
    """This is also true for the user's own file. A command that needs approval does not run if
    nobody can be asked, and the text for the model gives the reason.
    """
    write(place.root / "home" / ".claude", "deep/note.md", "!`touch made`\n$ARGUMENTS!")
    done = place.run("-p", "/note now", env=place.server(server.url))
    assert done.returncode == 3, done.stderr
    assert "Not allowed" in told(server)
    assert "\nnow!" in told(server)
    assert not (place.project / "made").exists()


def test_rules_of_a_command_file_apply_to_its_turn_only(place: Place) -> None:
    write(place.root / "home" / ".claude", "make.md", REVIEW)
    call = Say(tools=[("Bash", {"command": "touch allowed"})])
    with Server([call, Say("Made."), call, Say("Not made.")]) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("/make x y\r")
        terminal.see("Made.")
        assert (place.project / "allowed").exists()
        terminal.type("again\r")
        terminal.see("[y]es")
        terminal.type("n\r\r")
        terminal.see("Not made.")
        terminal.type("/quit\r")
        terminal.leave()
    assert server.rejected == []


def test_model_of_a_command_file_answers_its_turn_only(place: Place) -> None:
    write(place.root / "home" / ".claude", "quick.md", "---\nmodel: haiku\n---\nBe quick.")
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        for words, answer in (("hi", "One."), ("/quick", "Two."), ("hi", "Three.")):
            terminal.type(f"{words}\r")
            terminal.see(answer)
            terminal.see(lambda text, a=answer: " out · " in text.rpartition(a)[2])  # type: ignore[misc]
        terminal.type("/quit\r")
        terminal.leave()
    models = [request["model"] for request in server.requests]
    assert models[0] == models[2] != models[1] == "claude-haiku-5-5"
    assert server.rejected == []


def test_help_and_menu_show_the_origin_of_a_command(place: Place) -> None:
    write(place.project / ".ctxagent", "review.md", REVIEW)
    write(place.project / ".claude", "review.md", "Another of the same name.")
    write(place.project / ".claude", "compact.md", "A name that is taken.")
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("/rev")
        terminal.see("Look at this: well · .ctxagent/commands/review.md")
        terminal.type("\x15/help review\r")
        shown = terminal.see("/review [file]")
        assert "command ignored: /compact is built in" in shown
        terminal.type("/nosuch\r")
        terminal.see("there is no command /nosuch")
        terminal.type("/review a\r")
        terminal.see("Yes.")
        terminal.type("/quit\r")
        terminal.leave()
    assert "Review a, all of: a." in json.dumps(server.requests[-1]["messages"])


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (
            "/compact",
            "/compact is a command of the terminal\nOn the command line: ctxagent compact",
        ),
        ("/log", "On the command line: ctxagent log"),
        ("/rewind 3", 'Open the terminal with it: ctxagent "/rewind"'),
        ("/cmpact now", "there is no command /cmpact\nDid you mean /compact?"),
        ("/reveiw src", "Did you mean /review?"),
        ("/releas", "Did you mean /release?"),
        ("/unco", "Did you mean /uncompact?"),
        ("/usage", "/cost is a command of the terminal"),
        ("/add-dir", "/add-dir is a command of the terminal"),
        ("/map", "there is no command /map\nThe agent searches the project"),
        ("/memory", "/memory is a command of the terminal"),
        ("/settings demote.above 9", "/settings is a command of the terminal"),
        ("/settings ui.theme", "ctxagent config --explain"),
    ],
)
def test_terminal_command_is_not_a_task(place: Place, task: str, told: str) -> None:
    """Nothing starts, and nothing is asked for, not even a key."""
    write(place.project / ".claude", "review.md", REVIEW)
    skill = place.project / ".claude" / "skills" / "release" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: release\ndescription: How to release.\n---\nTag it.\n")
    place.run("config", "--trust")
    for given in (["-p", task], [task]):
        done = place.run(*given)
        assert (done.returncode, done.stdout) == (2, "")
        assert told in done.stderr
    assert place.logs() == []


@pytest.mark.parametrize(
    "task",
    [
        "/etc/hosts is broken, mend it",
        "/tmp is full",
        "/users answers 500, mend it",
        "/settings answers 500, mend it",
        "/a.b",
        "/ is the root",
        "/compact.md is too long",
    ],
)
def test_words_that_begin_with_a_slash(place: Place, server: Server, task: str) -> None:
    done = place.run("-p", task, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert task in told(server)


def test_a_message_that_is_a_command_of_the_terminal(place: Place, server: Server) -> None:
    """It gets its own result, and the messages after it get their turns."""
    lines = [json.dumps({"type": "user", "text": text}) for text in ("/theme", "hello")]
    form = ("--input-format", "stream-json", "--output-format", "stream-json")
    done = place.run("-p", *form, env=place.server(server.url), stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    results = [row for row in map(json.loads, done.stdout.splitlines()) if row["type"] == "result"]
    assert [row["exit_code"] for row in results] == [2, 0]
    assert "/theme is a command of the terminal" in results[0]["error"]["message"]
    assert len(server.requests) == 1


def test_long_command_text_is_one_line_on_the_screen(place: Place) -> None:
    with Server([Say("Committed.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("· ask")
        terminal.type("/commit the parser\r")
        terminal.see("Committed.")
        shown = terminal.see("lines (Ctrl-O)")
        assert "sent its instructions:" in shown
        assert "git status" not in shown
        terminal.type("\x0f")
        terminal.see("git status")
        terminal.see("Report the commit")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
