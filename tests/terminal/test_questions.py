"""Questions in a real pseudo-terminal: the screen after each key."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.machine import lacks, needs_bwrap
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

SHIFT_TAB, CTRL_O = "\x1b[Z", "\x0f"
BOTH_SIZES = pytest.mark.parametrize("size", [(80, 24), (100, 34)], ids=["80x24", "100x34"])
TOUCH = [("Bash", {"command": "touch made"})]


@contextmanager
def person(
    tmp_path: Path, size: tuple[int, int], *said: Say, options: tuple[str, ...] = ()
) -> Iterator[tuple[Terminal, Path]]:
    """The real command after the message "go", and its project."""
    place = Place(tmp_path)
    with Server(list(said)) as server:
        columns, rows = size
        terminal = Terminal(
            *options, cwd=place.project, env=place.server(server.url), columns=columns, rows=rows
        )
        terminal.see("❯")
        terminal.type("go\r")
        yield terminal, place.project
        terminal.type("/quit\r")
        assert terminal.leave() == 0


def shown(terminal: Terminal) -> list[str]:
    terminal.text()
    return [line.rstrip() for line in terminal.screen.display]


def above_the_choices(terminal: Terminal) -> str:
    """The text directly above the choices, up to a blank line."""
    lines = shown(terminal)
    place = next(n for n, line in enumerate(lines) if line.startswith("  1. [y]es"))
    start = max(n for n in range(place) if not lines[n]) + 1
    return "\n".join(lines[start:place])


def offered(mode: str) -> str:
    return f"mode {mode}? Enter: use it, also here · Shift-Tab: next mode"


def offers(terminal: Terminal) -> str:
    """The offered mode, "" for none."""
    lines = (line for line in shown(terminal) if line.startswith("mode "))
    return next(lines, "mode ?").removeprefix("mode ").partition("?")[0]


@BOTH_SIZES
def test_shift_tab_offers_modes_and_never_bypass(tmp_path: Path, size: tuple[int, int]) -> None:
    """A mode is only offered until Enter; then it also decides about the call in question."""
    with person(tmp_path, size, Say(tools=TOUCH), Say("I see.")) as (terminal, project):
        terminal.keys()
        modes = ["accept-edits", *([] if lacks("bubblewrap") else ["sandboxed"]), "plan"]
        for mode in (*modes, "", *modes):
            terminal.type(SHIFT_TAB)
            terminal.see(lambda _, mode=mode: offers(terminal) == mode)  # type: ignore[misc]
            terminal.see(" · ask · ")
        assert not (project / "made").exists()
        terminal.type("\r")
        terminal.see("plan mode is on")
        terminal.see("I see.")
        assert not (project / "made").exists()
        terminal.see(" · plan · ")


@BOTH_SIZES
def test_a_mode_that_is_taken_answers_this_question_too(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    write = [("Write", {"path": "a.py", "content": "x = 1\n"})]
    with person(tmp_path, size, Say(tools=write), Say("Written.")) as (terminal, project):
        terminal.keys()
        terminal.type(SHIFT_TAB)
        terminal.see(offered("accept-edits"))
        assert not (project / "a.py").exists()
        terminal.type("\r")
        terminal.see("Written.")
        assert (project / "a.py").read_text() == "x = 1\n"
        terminal.see(" · accept-edits · ")


@pytest.mark.variants
@BOTH_SIZES
def test_an_answer_leaves_the_mode_as_it_was(tmp_path: Path, size: tuple[int, int]) -> None:
    with person(tmp_path, size, Say(tools=TOUCH), Say("Ran.")) as (terminal, project):
        terminal.keys()
        terminal.type(SHIFT_TAB)
        terminal.see(offered("accept-edits"))
        terminal.keys()
        terminal.type("y")
        terminal.see("Ran.")
        assert (project / "made").exists()
        terminal.see(" · ask · ")


@BOTH_SIZES
def test_esc_withdraws_what_is_offered_before_it_interrupts(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    with person(tmp_path, size, Say(tools=TOUCH), Say("Ran.")) as (terminal, project):
        terminal.keys()
        terminal.type(SHIFT_TAB)
        terminal.see(offered("accept-edits"))
        terminal.press("esc")
        terminal.see(lambda _: offers(terminal) == "")
        terminal.keys()
        terminal.press("esc")
        terminal.see("interrupted; what was done is kept")
        assert not (project / "made").exists()


@pytest.mark.variants
@BOTH_SIZES
def test_a_command_or_note_in_a_question_is_not_a_refusal(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """A note or a command typed into a question is run as usual; the question stays open."""
    with person(tmp_path, size, Say(tools=TOUCH), Say("Ran.")) as (terminal, project):
        terminal.keys()
        terminal.type("#never touch the folder build\r")
        terminal.see("after")  # it waits, and says for what
        terminal.keys()
        terminal.type("y")
        terminal.see("Ran.")
        assert (project / "made").exists()
        terminal.type("/intent\r")
        terminal.see("never touch the folder build")
        assert "declined" not in terminal.text()


@BOTH_SIZES
def test_bypass_is_seen_in_words_and_colour(tmp_path: Path, size: tuple[int, int]) -> None:
    options = ("--permission-mode", "bypass")
    said = (Say(tools=TOUCH), Say("Ran."))
    with person(tmp_path, size, *said, options=options) as (terminal, project):
        terminal.see("Ran.")
        assert (project / "made").exists()
        terminal.see("bypass: asks nothing")
        lines = shown(terminal)
        row = next(n for n, line in enumerate(lines) if "bypass: asks nothing" in line)
        cell = terminal.screen.buffer[row][lines[row].index("bypass: asks")]
        assert (cell.fg, cell.bold) == ("red", True)
        terminal.type(SHIFT_TAB)
        terminal.see(" · ask · ")  # and back: it was started with it
        for _ in range(4):
            terminal.type(SHIFT_TAB)
            terminal.rest()
            if any("bypass: asks nothing" in line for line in shown(terminal)):
                break
        else:
            pytest.fail("it does not come back")


def outside(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "outside.txt").write_text("words\n")
    return {"path": str(tmp_path / "outside.txt")}


@BOTH_SIZES
def test_what_is_asked_stands_beside_the_choices(tmp_path: Path, size: tuple[int, int]) -> None:
    """The question stays visible although other output is printed meanwhile."""
    project = Place(tmp_path).project
    (project / "long.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    tools = [("Read", outside(tmp_path)), ("Read", {"path": "long.txt"})]
    with person(tmp_path, size, Say(tools=tools), Say("Both.")) as (terminal, _):
        terminal.keys()
        terminal.see("● Read  long.txt")
        terminal.rest()
        assert "".join(above_the_choices(terminal).split()).startswith("Read/")
        terminal.type(CTRL_O)
        terminal.see("▾ ")
        terminal.rest()
        assert "".join(above_the_choices(terminal).split()).startswith("Read/")
        terminal.keys()
        terminal.type("y")
        terminal.see("Both.")


@pytest.mark.variants
@BOTH_SIZES
def test_a_subagent_that_waits_says_so(tmp_path: Path, size: tuple[int, int]) -> None:
    task = {"description": "make it", "prompt": "Make it.", "type": "general"}
    said = (Say(tools=[("Task", task)]), Say(tools=TOUCH), Say("It is made."), Say("Done."))
    with person(tmp_path, size, *said) as (terminal, project):
        terminal.keys()
        terminal.see("make it · waiting for your answer")
        assert above_the_choices(terminal) == "Bash touch made"
        terminal.type("y")
        terminal.see("Done.")
        assert (project / "made").exists()
        assert not any("waiting for your answer" in line for line in shown(terminal))


@needs_bwrap
@BOTH_SIZES
def test_sandboxed_is_offered_and_kept(tmp_path: Path, size: tuple[int, int]) -> None:
    """The first question explains it. Once saved for the user, the next session asks nothing."""
    run = [("Bash", {"command": 'python3 -c \'open("made", "a").write("x")\''})]
    said = (Say(tools=run), Say(tools=run), Say("Twice."))
    with person(tmp_path, size, *said) as (terminal, project):
        terminal.keys()
        terminal.see("sandboxed: from now on, such commands run without a question")
        terminal.type("s")
        terminal.see("[s]ession  for this session only")
        terminal.see("[u]ser")
        terminal.type("u")
        terminal.see("✓ allowed, from now on everything that the sandbox confines")
        terminal.see("Twice.")
        assert (project / "made").read_text() == "xx"
        assert terminal.text().count("wants to run") == 1
        terminal.see(" · ask+sandboxed · ")
    (project / "made").unlink()
    with person(tmp_path, size, *said) as (terminal, project):
        terminal.see("Twice.")
        assert (project / "made").read_text() == "xx"
        assert "wants to run" not in terminal.text()
