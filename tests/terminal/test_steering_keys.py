"""Messages while the agent works, with the real command in a pseudo-terminal: the screen after each
key, the requests to the model, and the state after a kill.
"""

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Fail, Say, Server, Step
from ..support.server.wires import Wire, over_each_wire
from ..support.terminal.screen import Terminal

SIZES = [(80, 24), (100, 34)]
ALT_ENTER, UP, DOWN, CLEAR, ESC = "\x1b\r", "\x1b[A", "\x1b[B", "\x15", "\x1b"
HINT = "Enter: after call · Alt-Enter: after turn · Ctrl-J: new line"
SWAPPED = "Enter: after turn · Alt-Enter: after call · Ctrl-J: new line"
WORKING = ["● Bash", "  under way"]
WAIT = "echo under way; until [ -e go ]; do sleep 0.02; done; echo over"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def begin(text: str = "I look.") -> Say:
    """A reply with a command that runs until the test ends it."""
    return Say(text, tools=[("Bash", {"command": WAIT})])


@contextmanager
def at_work(
    place: Place, steps: Sequence[Step] | Callable[[Any], Step], *options: str,
    size: tuple[int, int] = SIZES[0], mode: str = "bypass", wire: Wire = Server,
    refuses: bool = False,
) -> Iterator[tuple[Terminal, Server]]:  # fmt: skip
    """The real command with a server, after the first message. A server that `refuses` a request
    gets it again in plain strings.
    """
    columns, rows = size
    with wire(steps, lenient=refuses) as server:
        terminal = Terminal(
            "--permission-mode", mode, *options,
            cwd=place.project, env=place.environ(server.variables), columns=columns, rows=rows,
        )  # fmt: skip
        terminal.see("% full")
        terminal.type("begin\r")
        yield terminal, server
        assert server.rejected == []


def let_go(place: Place) -> None:
    (place.project / "go").touch()


def leave(terminal: Terminal) -> None:
    terminal.press("ctrl-d")
    assert terminal.leave() == 0


def bottom(terminal: Terminal) -> list[str]:
    """The screen from the running command down, without its running time and the status line."""
    lines = [line.rstrip() for line in terminal.screen.display]
    start = next((n for n, line in enumerate(lines) if line.startswith("● Bash")), 0)
    shown = [re.sub(r"^● Bash.*", "● Bash", line) for line in lines[start:]]
    return ["STATUS" if "% full" in line else line for line in "\n".join(shown).strip().split("\n")]


def shows(terminal: Terminal, *below: str) -> None:
    """Wait until exactly this is shown below the running command."""
    wanted = [*WORKING, *below, "STATUS"]
    try:
        terminal.see(lambda _: bottom(terminal) == wanted)
    except AssertionError:
        assert bottom(terminal) == wanted
        raise


def texts(message: dict[str, Any]) -> list[str]:
    return [block.get("text", block["type"]) for block in message["content"]]


def said(place: Place) -> list[tuple[str, bool]]:
    """The user's messages in the log, each with whether it arrived during a turn."""
    rows = (entry for entry in place.entries() if entry["kind"] == "user")
    return [(row["content"], row["mid_turn"]) for row in rows if row["source"] == "person"]


@pytest.mark.variants
@pytest.mark.parametrize("size", SIZES, ids=["80x24", "100x34"])
def test_the_screen_after_each_key(place: Place, size: tuple[int, int]) -> None:
    hint = HINT.rjust(size[0] - 1)
    steps = [begin(), Say("Tabs it is."), Say("The docs are written.")]
    with at_work(place, steps, size=size) as (terminal, server):
        shows(terminal, "", "❯")
        terminal.type("use")
        shows(terminal, hint, "❯ use")
        terminal.type(" tabs\r")
        shows(terminal, "", "after call ❯ use tabs", "", "❯")
        terminal.type("then the docs")
        shows(terminal, "", "after call ❯ use tabs", hint, "❯ then the docs")
        terminal.type(ALT_ENTER)
        both = ["after call ❯ use tabs", "after turn ❯ then the docs"]
        shows(terminal, "", *both, "", "❯")
        terminal.type("!git status")  # a command that waits can wait for the turn alone
        shows(terminal, "", *both, "", "❯ !git status")
        terminal.type("\r")
        shows(terminal, "", *both, "after turn ❯ !git status", "", "❯")
        terminal.type(UP)
        shows(terminal, "", *both, "", "❯ !git status")
        terminal.type(CLEAR)
        shows(terminal, "", *both, "", "❯")
        terminal.type(UP)
        shows(terminal, "", both[0], hint, "❯ then the docs")
        terminal.type(UP)
        shows(terminal, "", both[1], hint, "❯ use tabs")
        terminal.type("!" + DOWN)
        shows(terminal, "", "after call ❯ use tabs!", hint, "❯ then the docs")
        terminal.type("\r")  # now it is for the turn too
        shows(terminal, "", "after call ❯ use tabs!", "after call ❯ then the docs", "", "❯")
        terminal.type(UP + ALT_ENTER)
        shows(terminal, "", "after call ❯ use tabs!", both[1], "", "❯")
        let_go(place)
        text = terminal.see("The docs are written.")
        order = ["  over", "❯ use tabs!", "Tabs it is.", "❯ then the docs", "The docs are written."]
        assert [text.count(each) for each in order] == [1] * len(order)
        assert sorted(order, key=text.index) == order
        leave(terminal)
    second, third = (request["messages"] for request in server.requests[1:])
    assert texts(second[-1]) == ["tool_result", "use tabs!"]
    assert texts(third[-1]) == ["then the docs"]
    assert said(place) == [("begin", False), ("use tabs!", True), ("then the docs", False)]


@pytest.mark.variants
@pytest.mark.parametrize("size", SIZES, ids=["80x24", "100x34"])
@pytest.mark.parametrize("keys", ["emacs", "vi"])
def test_the_setting_exchanges_the_two_keys(place: Place, size: tuple[int, int], keys: str) -> None:
    steps = [begin(), Say("Tabs it is."), Say("The docs are written.")]
    setting = ["ui.enter_while_working=after-turn", f"ui.editing_mode={keys}"]
    with at_work(place, steps, "-c", setting[0], "-c", setting[1], size=size) as (terminal, server):
        shows(terminal, "", "❯")
        terminal.type("then the docs")
        shows(terminal, SWAPPED.rjust(size[0] - 1), "❯ then the docs")
        terminal.type("\r")
        shows(terminal, "", "after turn ❯ then the docs", "", "❯")
        terminal.type("use tabs" + ALT_ENTER)
        shows(terminal, "", "after turn ❯ then the docs", "after call ❯ use tabs", "", "❯")
        let_go(place)
        terminal.see("The docs are written.")
        leave(terminal)
    assert texts(server.requests[1]["messages"][-1]) == ["tool_result", "use tabs"]
    assert said(place) == [("begin", False), ("use tabs", True), ("then the docs", False)]


def test_alt_enter_is_a_new_line_at_rest_and_ctrl_j_always(place: Place) -> None:
    steps = [begin(), Say("Tabs it is."), Say("Read.")]
    with at_work(place, steps) as (terminal, _):
        shows(terminal, "", "❯")
        terminal.type("use tabs\nand\\\rno blanks")
        shows(terminal, HINT.rjust(79), "❯ use tabs", "  and", "  no blanks")
        terminal.type(ALT_ENTER + UP)
        shows(terminal, HINT.rjust(79), "❯ use tabs", "  and", "  no blanks")
        terminal.type("\r")
        let_go(place)
        terminal.see("out · 1 tool call")  # the turn is over
        terminal.type("one" + ALT_ENTER + "two")
        terminal.see("❯ one\n  two")
        terminal.type("\r")
        terminal.see("Read.")
        leave(terminal)
    assert said(place)[1:] == [("use tabs\nand\nno blanks", True), ("one\ntwo", False)]


@pytest.mark.variants
@pytest.mark.parametrize("size", SIZES, ids=["80x24", "100x34"])
@pytest.mark.parametrize("keys", ["emacs", "vi"])
def test_in_a_question_both_keys_are_the_questions(
    place: Place, size: tuple[int, int], keys: str
) -> None:
    steps = [Say("I make it.", tools=[("Bash", {"command": "touch made"})]), Say("I see.")]
    options = ("-c", f"ui.editing_mode={keys}", "-c", "sandbox.mode=off")
    with at_work(place, steps, *options, size=size, mode="ask") as (terminal, server):
        terminal.keys()
        terminal.type(ALT_ENTER)  # no answer yet, and no interrupt either
        terminal.keys()
        terminal.type("n use a file that is there")
        terminal.see("? n use a file that is there")
        terminal.type(ALT_ENTER)
        text = terminal.see("I see.")
        assert "declined: use a file that is there" in " ".join(text.split())
        assert "interrupted" not in text
        leave(terminal)
    assert texts(server.requests[1]["messages"][-1]) == ["tool_result"]
    assert said(place) == [("begin", False)]


def test_words_that_wait_answer_no_question(place: Place) -> None:
    steps = [begin(), Say("I make it.", tools=[("Bash", {"command": "touch made"})]), Say("No?")]
    steps.append(Say("Yes what?"))
    allowed = ("--allow", "Bash(echo under way*)", "-c", "sandbox.mode=off")
    with at_work(place, steps, *allowed, mode="ask") as (terminal, server):
        shows(terminal, "", "❯")
        terminal.type("y\r")
        terminal.type("yes" + ALT_ENTER)
        shows(terminal, "", "after call ❯ y", "after turn ❯ yes", "", "❯")
        let_go(place)
        terminal.keys()
        assert not (place.project / "made").exists()
        terminal.type("n\r")
        terminal.see("Yes what?")
        leave(terminal)
    assert not (place.project / "made").exists()
    assert texts(server.requests[1]["messages"][-1]) == ["tool_result", "y"]


@pytest.mark.variants
@over_each_wire
def test_esc_restores_all_queued_messages(place: Place, wire: Wire) -> None:
    with at_work(place, [begin(), Say("All of it.")], wire=wire) as (terminal, _):
        shows(terminal, "", "❯")
        terminal.type("then the docs" + ALT_ENTER)
        terminal.type("use tabs\r")
        shows(terminal, "", "after turn ❯ then the docs", "after call ❯ use tabs", "", "❯")
        terminal.type(ESC)
        terminal.see("❯ then the docs\n  use tabs")
        terminal.see("interrupted")
        terminal.type("\r")
        terminal.see("All of it.")
        leave(terminal)
    assert said(place) == [("begin", False), ("then the docs\nuse tabs", False)]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("ending", "options"),
    [(Say("Done."), ()), (Fail(400, "no such thing"), ()), (None, ("--max-turns", "1"))],
    ids=["answer", "error", "limit"],
)
def test_words_that_could_not_go_begin_the_next_turn(
    place: Place, ending: Step | None, options: tuple[str, ...]
) -> None:
    """The second reply ends the turn; it is delayed until the message is queued."""
    ready = threading.Event()

    def step(body: dict[str, Any]) -> Step:
        before = len(server.requests)
        if before <= 1:
            return begin()
        if before == 2 and ending:
            ready.wait(100)
            return ending
        return Say("Tabs and no blanks.")

    fails = isinstance(ending, Fail)
    with at_work(place, step, *options, refuses=fails) as (terminal, server):
        shows(terminal, "", "❯")
        if ending:
            let_go(place)
            terminal.see(lambda _: len(server.requests) == 2)
        terminal.type("use tabs\r")
        terminal.type("and no blanks\r")
        terminal.see("after call ❯ and no blanks")
        ready.set()
        let_go(place)
        terminal.see("limit of 1 model call" if ending is None else "Tabs and no blanks.")
        terminal.see(lambda text: "after call" not in text)
        leave(terminal)
    assert said(place) == [
        ("begin", False),
        ("use tabs", False),
        ("and no blanks", ending is not None),
    ]


def test_killed_right_after_the_words_and_gone_on_with(place: Place) -> None:
    steps: list[Step] = [begin(), Say(fault="mute"), Say("Tabs it is.")]
    with at_work(place, steps) as (terminal, server):
        shows(terminal, "", "❯")
        terminal.type("use tabs\r")
        shows(terminal, "", "after call ❯ use tabs", "", "❯")
        let_go(place)
        terminal.see(lambda _: len(server.requests) == 2)
        terminal.child.kill(signal.SIGKILL)
        terminal.child.wait()
        assert said(place) == [("begin", False), ("use tabs", True)]

        again = Terminal("--continue", cwd=place.project, env=place.server(server.url))
        again.see("use tabs")
        again.see("% full")
        again.type("go on\r")
        again.see("Tabs it is.")
        again.type("/rewind\r")
        again.see("while it worked: use tabs")
        again.press("esc")
        leave(again)
    before, after = (request["messages"] for request in server.requests[1:])
    assert after[: len(before) - 1] == before[:-1]
    assert texts(after[len(before) - 1])[:2] == texts(before[-1]) == ["tool_result", "use tabs"]
    assert "go on" in texts(after[-1])
    (log,) = place.logs()
    told = (log.parent / "conversation.md").read_text()
    assert told.count("use tabs") == 1
    assert told.index("over") < told.index("use tabs") < told.index("go on")
    assert place.run("doctor", log.parent.name).returncode == 0
    assert "use tabs" in place.run("sessions", "show", log.parent.name).stdout
    for format in ("md", "html", "json"):
        assert (
            "use tabs"
            in place.run("sessions", "export", log.parent.name, "--format", format).stdout
        )


@pytest.mark.variants
@over_each_wire
def test_back_to_before_words_in_the_middle_of_a_turn(place: Place, wire: Wire) -> None:
    write = Say("I write.", tools=[("Write", {"path": "a.txt", "content": "tabs\n"})])
    with at_work(place, [begin(), write, Say("Written.")], wire=wire) as (terminal, _):
        shows(terminal, "", "❯")
        terminal.type("use tabs\r")
        let_go(place)
        terminal.see("Written.")
        terminal.type("/rewind 2\r")
        terminal.see("before: while it worked: use tabs")
        terminal.see("the rest of its turn would be left out")
        terminal.keys("[b]oth")
        terminal.type("b")
        terminal.see("before that message")
        terminal.see("❯ use tabs")
        assert not (place.project / "a.txt").exists()
        terminal.press("ctrl-c")
        leave(terminal)


def test_a_file_that_the_words_name_comes_with_them(place: Place) -> None:
    (place.project / "style.md").write_text("Tabs, never blanks.\n")
    with at_work(place, [begin(), Say("Tabs it is.")]) as (terminal, server):
        shows(terminal, "", "❯")
        terminal.type("as @style.md says \r")
        terminal.see("after call ❯ as @style.md says")
        let_go(place)
        terminal.see("Tabs it is.")
        leave(terminal)
    result, words, file = texts(server.requests[1]["messages"][-1])[:3]
    assert (result, words) == ("tool_result", "as @style.md says ")
    assert "style.md" in file
    assert "Tabs, never blanks." in json.dumps(server.requests[1]["messages"][-1])


def test_a_plain_terminal_says_when_words_go(place: Place) -> None:
    steps = [begin(), Say("Tabs it is.")]
    with Server(steps) as server:
        terminal = Terminal(
            "--plain", "--permission-mode", "bypass",
            cwd=place.project, env=place.server(server.url),
        )  # fmt: skip
        terminal.see("/help\n>")
        terminal.type("begin\n")
        terminal.see(lambda _: bool(place.logs()) and "assistant" in place.logs()[0].read_text())
        terminal.type("use tabs\n")
        terminal.see("goes to the agent after the running call")
        let_go(place)
        terminal.see("Tabs it is.")
        leave(terminal)
    assert said(place) == [("begin", False), ("use tabs", True)]
