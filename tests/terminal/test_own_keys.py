"""Configured keys with the real command in a pseudo-terminal: their effect, and their names on the
screen.
"""

from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

CTRL_B, CTRL_G, CTRL_J, CTRL_O, CTRL_R, CTRL_T, CTRL_X = (
    chr(ord(letter) & 31) for letter in "BGJORTX"
)
ESC, F2, ALT_ENTER, SHIFT_TAB = "\x1b", "\x1bOQ", "\x1b\r", "\x1b[Z"
SIZES = [(80, 24), (40, 12)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def start(place: Place, url: str, keys: str, size: tuple[int, int] = (80, 24), *arguments: str,
          **env: str) -> Terminal:  # fmt: skip
    own_file = place.root / "home/.config/ctxagent/agentrc"
    own_file.parent.mkdir(parents=True, exist_ok=True)
    own_file.write_text(f"[keys]\n{keys}")
    terminal = Terminal(
        *arguments, cwd=place.project, env=place.server(url) | env, columns=size[0], rows=size[1]
    )
    terminal.see("sonnet-5-5")
    return terminal


def leave(terminal: Terminal) -> None:
    terminal.rest()
    terminal.type("/exit")
    terminal.type(ALT_ENTER)
    terminal.type("\r")
    assert terminal.leave() == 0


@pytest.mark.parametrize("size", SIZES)
def test_enter_may_make_a_new_line_and_another_key_send(
    place: Place, size: tuple[int, int]
) -> None:
    keys = 'send = "alt-enter"\nsend_other = "f2"\nnewline = "enter"\n'
    with Server([Say("Yes.")]) as server:
        terminal = start(place, server.url, keys, size)
        terminal.type("/he")
        terminal.see("find a command")
        terminal.type("\t")
        terminal.see("❯ /help")
        terminal.type("\r")  # takes the completion, and makes no new line
        terminal.see("❯ /help")
        terminal.type("\x15one\rtwo" + CTRL_J + "three" + F2 + "four" + ALT_ENTER)
        terminal.see("Yes.")
        terminal.rest()
        terminal.type("/help keys" + ALT_ENTER)
        terminal.see("\\ Alt-Enter")
        terminal.see("F2")
        leave(terminal)
    assert server.requests[0]["messages"][-1]["content"][0]["text"] == "one\ntwo\nthree\nfour"


def test_hints_name_the_keys_that_are_set(place: Place) -> None:
    keys = """
interrupt = "ctrl-g"
background = "ctrl-x b"
unfold = "ctrl-t"
cycle_mode = "ctrl-a"
send_other = "f2"
"""
    command = "seq 40; while ! test -e go; do sleep 0.05; done"
    script = [Say(tools=[("Bash", {"command": command})]), Say("It runs on."),
              Say(tools=[("Bash", {"command": "sleep 300"})])]  # fmt: skip
    with Server(script) as server:
        terminal = start(place, server.url, keys, (80, 24), "--permission-mode", "bypass")
        terminal.see("Ctrl-A: permission mode")
        terminal.type("go\r")
        terminal.see("Ctrl-X B: to the background")
        terminal.see("Ctrl-G to stop")
        terminal.type("wait")
        terminal.see("Enter: after call · F2: after turn · Ctrl-J: new line")
        terminal.type("\x15")
        terminal.type(CTRL_B + ESC + SHIFT_TAB + CTRL_O)  # which do nothing now
        terminal.type(CTRL_X + "b")
        terminal.see("continues in the background")
        terminal.see("It runs on.")
        text = terminal.see("(Ctrl-T)")
        assert "Ctrl-B" not in text
        assert "interrupted" not in text
        terminal.type(CTRL_T)
        terminal.see("\n  20\n")
        terminal.type("again\r")
        terminal.see("sleep 300")
        terminal.see("Ctrl-G to stop")
        terminal.type(CTRL_G)
        terminal.see("interrupted")
        terminal.rest()
        terminal.type("\x01")
        terminal.see("· ask ·")
        (place.project / "go").touch()
        leave(terminal)


def test_the_history_is_searched_and_the_editor_opened_by_other_keys(place: Place) -> None:
    editor = place.root / "editor"
    editor.write_text('#!/bin/sh\necho edited > "$1"\n')
    editor.chmod(0o755)
    keys = 'history_search = "ctrl-t"\neditor = "ctrl-g"\nunfold = "ctrl-r"\n'
    with Server([Say("One."), Say("Two.")]) as server:
        terminal = start(place, server.url, keys, EDITOR=str(editor), VISUAL="")
        for words, answer in (("count okapis", "One."), ("count herons", "Two.")):
            terminal.type(f"{words}\r")
            terminal.see(answer)
            terminal.rest()
        terminal.type(CTRL_T + "count")
        terminal.see("count herons")
        terminal.type(CTRL_T)
        terminal.see(lambda text: "❯ count okapis" in text.rpartition("Two.")[2])
        terminal.type("\r")
        terminal.rest()
        terminal.type("\x15" + CTRL_R)
        terminal.see("nothing to show in full")
        terminal.type(CTRL_G)
        terminal.see("❯ edited")
        terminal.type("\x15")
        leave(terminal)


def test_esc_declines_a_question_where_another_key_stops(place: Place) -> None:
    script = [Say(tools=[("Bash", {"command": "touch made"})]), Say("Not done.")]
    with Server(script) as server:
        terminal = start(place, server.url, 'interrupt = "ctrl-g"\n')
        terminal.type("make it\r")
        terminal.keys()
        terminal.type(ESC)
        terminal.see("interrupted")
        leave(terminal)
    assert not (place.project / "made").exists()


def test_keys_that_cannot_be_are_refused_at_start_and_in_the_menu(place: Place) -> None:
    terminal = start(place, "http://127.0.0.1:9", 'unfold = "ctrl-t"\n')
    own_file = place.root / "home/.config/ctxagent/agentrc"
    before = own_file.read_text()
    terminal.type("/settings keys.background ctrl-t\r")
    terminal.see('keys.unfold is "ctrl-t", but keys.background is')
    terminal.type("/settings keys.background ctrl-c\r")
    terminal.see("keys.background is 'ctrl-c'; expected a key such as")
    assert own_file.read_text() == before
    terminal.type("/settings keys.background f3\r")
    terminal.see('keys.background = "f3"')
    leave(terminal)
    own_file.write_text('[keys]\nunfold = "ctrl-b"\n')
    done = place.run("-p", "hello")
    assert done.returncode == 2
    assert f'{own_file}:2: keys.unfold is "ctrl-b", but keys.background' in done.stderr
