"""Two hundred turns in a terminal: all finished output is written once, in order, and never
changed.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal
from ..support.terminal.tape import faults

TURNS = 200
ANSWER = """\
Answer {n:03d}. Some **bold** words, a bit of `code`, and enough of them to fill a row and more.

- item {n:03d} one
- item {n:03d} two, 漢字 in it

```python
def turn_{n:03d}() -> int:
    return {n}
```

| turn {n:03d} | value |
| --- | --- |
| half | {n} |

End {n:03d}."""
MARKS = ("❯ turn {n:03d}", "Answer {n:03d}.", "item {n:03d} one", "item {n:03d} two",
         "def turn_{n:03d}", "turn {n:03d}  ", "End {n:03d}.")  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def answer(body: dict[str, Any]) -> Say:
    """The answer to each turn; before every tenth a tool call, before every seventh thinking."""
    content = body["messages"][-1]["content"]
    n = max(map(int, re.findall(r"(?:turn|output of) (\d{3})", str(content))))
    if content[0]["type"] == "tool_result":
        return Say(ANSWER.format(n=n), deltas=8)
    if n % 10 == 3:
        return Say(tools=[("Bash", {"command": f"seq 60; echo output of {n:03d}"})])
    pace = 0.02 if n % 10 == 5 else 0.0
    thinking = "I wonder. " * 20 if n % 7 == 0 else ""
    return Say(ANSWER.format(n=n), thinking=thinking, deltas=12, pace=pace)


@pytest.mark.full
def test_two_hundred_turns(place: Place) -> None:
    with Server(answer) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", "--context-window", "26000",
            "-c", "compact.summarizer=mechanical", "-c", "ui.enter_while_working=after-turn",
            cwd=place.project, env=place.server(server.url), columns=80, rows=24,
        )  # fmt: skip
        terminal.hear(b"% full")
        n = 0
        while n < TURNS:
            at_once = 3 if n % 10 == 5 else 1  # the others wait for their turn
            for _ in range(min(at_once, TURNS - n)):
                terminal.type(f"turn {n:03d}\r")
                n += 1
            terminal.hear(b" out \xc2\xb7 ", n)
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert server.rejected == []
    kinds = [entry["kind"] for entry in place.entries()]
    assert kinds.count("summary") >= 1, "the window was too large"
    assert faults(terminal.raw) == []
    text = terminal.text()
    for mark in MARKS:
        places = [text.find(mark.format(n=n)) for n in range(TURNS)]
        assert -1 not in places, f"lost: {mark} {places.index(-1)}"
        assert places == sorted(places), f"out of order: {mark}"
        counts = [text.count(mark.format(n=n)) for n in range(TURNS)]
        assert counts == [1] * TURNS, f"twice: {mark}"
    assert text.count("% full") == 0


PAINT = b"\x1b[?25l\x1b[?7l\x1b[0m\x1b[Jlive\r\nmore\x1b[?7h\x1b[?25h"


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (b"done\r\n" + PAINT + b"\x1b[1A\x1b[Jdone\r\n" + PAINT, 0),
        (b"done\r\n" + PAINT + b"\x1b[2A\x1b[Jdone\r\n", 2),
        (b"done\r\n\x1b[A", 1),
        (PAINT + b"\x1b[Jover what is live\r\n", 1),
        (PAINT + b"\x1b[2J", 2),
        (PAINT + b"\x1b[?1049h\x1b[H", 3),
    ],
)
def test_terminal_faults_are_counted(raw: bytes, count: int) -> None:
    assert len(faults(raw)) == count


def test_resizing_where_lines_stay_as_they_are(place: Place) -> None:
    """pyte does not rewrap lines, as xterm and the console do not."""
    text = "\n\n".join(f"Paragraph {n:02d}, short." for n in range(60))
    with Server([Say(text, deltas=300, pace=0.01)]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url), columns=80, rows=24)
        terminal.see("% full")
        terminal.type("talk\r")
        for n, size in enumerate([(60, 24), (80, 12), (50, 30), (100, 8), (80, 40), (40, 16)]):
            # Nothing is on its way that was painted for the old size.
            with server.halted_after(f"Paragraph {n * 8:02d},"):
                *_, said, _ = ["", *server.said.split("\n\n")]
                terminal.see(said)
                terminal.rest()
                terminal.resize(*size)
                terminal.rest()
        text = terminal.see(" out · ")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    counts = [text.count(f"Paragraph {n:02d}, short.") for n in range(60)]
    assert counts == [1] * 60, text
