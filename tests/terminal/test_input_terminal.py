"""User input with the real command in a pseudo-terminal: the editor, a shell command, a note, a
paste, the history over two runs.
"""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

EDIT = "\x18\x05"  # Ctrl-X Ctrl-E


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def editor(place: Place, script: str) -> dict[str, str]:
    """An editor that runs a shell script on the file, `$1`."""
    path = place.root / "my editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"EDITOR": f"'{path}'"}


def texts(request: dict[str, Any]) -> str:
    return json.dumps(request["messages"], ensure_ascii=False)


def test_the_input_is_edited_elsewhere_and_not_sent(place: Place) -> None:
    script = 'printf "IN THE EDITOR: "; cat "$1"; echo "$1" > name; read key; echo more >> "$1"'
    with Server([Say("Read.")]) as server:
        env = place.server(server.url) | editor(place, script)
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("words of mine" + EDIT)
        terminal.see("IN THE EDITOR: words of mine")
        terminal.type("\r")
        terminal.see(lambda text: "❯ words of mine" in text and "more" in text)
        assert server.requests == []
        assert Path((place.project / "name").read_text().strip()).name == "message.md"
        terminal.press("enter")
        terminal.see("Read.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert "words of mine" in texts(server.requests[0])
    assert "more" in texts(server.requests[0])


def test_an_editor_that_fails_keeps_the_words(place: Place) -> None:
    with Server([Say("Read.")]) as server:
        env = place.server(server.url) | editor(place, 'echo gone > "$1"; exit 7')
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("words of mine" + EDIT)
        terminal.see(lambda text: "ended with code 7" in " ".join(text.split()))
        terminal.see("❯ words of mine")
        terminal.press("enter")
        terminal.see("Read.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert "gone" not in texts(server.requests[0])


def test_ctrl_c_in_an_editor_is_the_editors(place: Place) -> None:
    with Server([Say("Read.")]) as server:
        env = place.server(server.url) | editor(place, "echo EDITING; exec sleep 300")
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("words of mine" + EDIT)
        terminal.see("EDITING")
        terminal.press("ctrl-c")
        terminal.see(lambda text: "was killed" in " ".join(text.split()))
        terminal.see("❯ words of mine")
        terminal.press("enter")
        terminal.see("Read.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0


def test_nothing_is_painted_over_an_editor_and_the_turn_goes_on(place: Place) -> None:
    let_go = threading.Event()

    def step(body: dict[str, Any]) -> Say:
        if "tool_result" not in texts(body):
            return Say("I begin.", tools=[("Bash", {"command": "echo under way; touch ran"})])
        let_go.wait(200)
        return Say("All of it is done.")

    wait = "until [ -e done ]; do sleep 0.05; done"
    script = f'echo EDITING; {wait}; echo "and more" >> "$1"; echo LEAVING'
    with Server(step) as server:
        env = place.server(server.url) | editor(place, script)
        terminal = Terminal("--permission-mode", "bypass", cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("begin\r")
        terminal.see("under way")
        terminal.type("a draft" + EDIT)
        terminal.see("EDITING")
        let_go.set()
        terminal.see(lambda text: place.entries()[-1]["kind"] == "end")
        (place.project / "done").touch()
        terminal.see(lambda text: "All of it is done." in text and "and more" in text)
        assert terminal.raw.index(b"LEAVING") < terminal.raw.index(b"All of it is done.")
        assert terminal.text().count("All of it is done.") == 1
        terminal.press("ctrl-c")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []


def test_v_goes_to_the_editor_with_vi_keys(place: Place) -> None:
    (place.project / ".agentrc").write_text('[ui]\nediting_mode = "vi"\n')
    with Server([Say("Read.")]) as server:
        env = place.server(server.url) | editor(place, 'printf "by hand" > "$1"')
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("words\x1b")
        terminal.see(lambda text: b"\x1b[2 q" in terminal.raw)
        terminal.type("v")
        terminal.see("❯ by hand")
        terminal.press("enter")
        terminal.see("Read.")
        terminal.type("\x1bi/quit\r")
        assert terminal.leave() == 0


def test_a_command_a_note_and_a_paste(place: Place) -> None:
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    long = "".join(f"line {number} of a log\n" for number in range(2_000))
    with Server([Say("Seen."), Say("Still seen.")]) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("!echo by hand > made; cat made; exit 3\r")
        terminal.see("exit 3")
        terminal.type("#never touch the lock file\r")
        terminal.see("removes it")
        terminal.type("what of this: \x1b[200~" + long + "\x1b[201~")
        terminal.see("2,001 lines: line 0 of a log")
        terminal.press("enter")
        terminal.see("Seen.")
        session = place.logs()[0].parent.name
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
        terminal = Terminal("--resume", session, cwd=place.project, env=env)
        terminal.see("resumed (")
        terminal.type("go on\r")
        terminal.see("Still seen.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    first, second = map(texts, server.requests)
    assert "by hand\\n[exit 3]" in first
    assert "[It changed: made (created)]" in first
    assert "never touch the lock file" in first
    assert "line 1999 of a log" in first
    assert second.startswith(first[: first.index("what of this")])
    exported = place.run("sessions", "export", session).stdout
    assert "by hand" in exported
    assert "never touch the lock file" in exported


def test_history_over_two_runs(place: Place) -> None:
    with Server([Say("One."), Say("Two.")]) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("first line\nsecond line\r")
        terminal.see("One.")
        terminal.type("left behind")
        terminal.see("❯ left behind")
        terminal.signal(15)
        terminal.leave()
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("\x12second")
        terminal.see("second line")
        terminal.press("enter")
        terminal.see("❯ first line")
        terminal.press("enter")
        terminal.see("Two.")
        terminal.type("\x1b[A\x1b[A\x1b[A")
        terminal.see("❯ left behind")
        terminal.press("ctrl-c")
        terminal.see(lambda text: "❯ left behind" not in text)
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert "first line\\nsecond line" in texts(server.requests[1])
    (kept,) = place.state.glob("projects/*/history")
    assert kept.stat().st_mode & 0o777 == 0o600


def test_words_with_a_leading_blank_are_not_kept_by_an_end_either(place: Place) -> None:
    with Server([Say("One.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("first\r")
        terminal.see("One.")
        terminal.type(" secret")
        terminal.see("❯  secret")
        terminal.signal(15)
        terminal.leave()
    (kept,) = place.state.glob("projects/*/history")
    assert "first" in kept.read_text()
    assert "secret" not in kept.read_text()


def test_user_commands_on_the_plain_screen(place: Place) -> None:
    with Server([Say("Seen.")]) as server:
        terminal = Terminal("--plain", cwd=place.project, env=place.server(server.url))
        terminal.see("/help\n>")
        terminal.type("!echo by hand; exit 3\n")
        terminal.see("[exit 3]")
        terminal.type("#keep it short\n")
        terminal.see("removes it")
        terminal.type("and?\n")
        terminal.see("Seen.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert b"\x1b" not in terminal.raw
    assert "by hand\\n[exit 3]" in texts(server.requests[0])
    assert "keep it short" in texts(server.requests[0])
