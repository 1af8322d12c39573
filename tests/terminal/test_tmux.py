"""The real command in tmux, which rewraps lines when its size changes. Each finished line is shown
once, and no live output is left behind.
"""

import itertools
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.machine import needs
from ..support.server.loopback import Say, Server
from ..support.terminal.tmux import pane

pytestmark = needs("tmux")

WORDS = "The quick brown fox jumps over the lazy dog and back again, as foxes do all day long."
SIZES = [(60, 24), (40, 24), (100, 24), (40, 12), (80, 40), (30, 10), (120, 30), (80, 24)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def paragraphs(count: int) -> str:
    return "\n\n".join(f"Paragraph {n:03d}. {WORDS}" for n in range(count))


def flat(text: str) -> str:
    """The text without spaces and without line breaks from wrapping."""
    return "".join(text.split())


def whole(text: str, count: int) -> None:
    """Assert that every paragraph is there once, in order."""
    said = flat(text)
    places = [said.find(flat(f"Paragraph {n:03d}. {WORDS}")) for n in range(count)]
    assert -1 not in places, f"lost: {[n for n, at in enumerate(places) if at < 0]}\n{text}"
    assert places == sorted(places)
    assert said.count("Paragraph") == count, f"something stands twice\n{text}"


def once(text: str, *marks: str) -> None:
    for mark in marks:
        count = flat(text).count(flat(mark))
        assert count == 1, f"{mark!r} stands {count} times\n{text}"


def test_a_turn_with_a_tool_and_a_question(place: Place) -> None:
    steps = [Say("First this.", tools=[("Bash", {"command": "touch made; seq 3"})]), Say("Done.")]
    with Server(steps) as server, pane(cwd=place.project, env=place.server(server.url)) as seen:
        seen.see("% full")
        seen.type("go on\r")
        seen.see("[y]es")
        seen.type("y\r")
        seen.see("Done.")
        seen.still(lambda text: once(text, "❯ go on", "First this.", "Done.", "% full", "/help"))
        seen.press("ctrl-d")
        assert seen.leave() == 0
        text = seen.text()
    assert "% full" not in text, "the status line is left behind"
    once(text, "❯ go on", "First this.", "Done.", "Resume with: ctxagent --resume")


@pytest.mark.variants
@pytest.mark.parametrize("sizes", [SIZES, SIZES[::-1]], ids=["there", "back"])
def test_resizing_at_rest(place: Place, sizes: list[tuple[int, int]]) -> None:
    with (
        Server([Say(paragraphs(12))]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.type("talk\r")
        seen.see(" out · ")
        seen.type(
            "words that nobody sends and that are long enough to be wrapped in half the width"
        )
        seen.still()

        def holds(text: str) -> None:
            whole(text, 12)
            once(text, "words that nobody sends", "half the width", " out · ")
            assert text.count("❯") == 2, text

        for columns, rows in sizes:
            seen.resize(columns, rows)
            seen.still(holds)


def test_resizing_while_text_streams(place: Place) -> None:
    streaming = Say(paragraphs(60), deltas=600, pace=0.01)
    with (
        Server([streaming]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.type("talk\r")
        sizes = itertools.cycle(SIZES)
        for n in (3, 8, 14, 20, 26, 33, 40, 47):
            # Nothing is on its way that was painted for the old size, and what is live is short.
            with server.halted_after(f"Paragraph {n:03d}."):
                said = flat(server.said)[-30:]
                seen.see(lambda text, said=said: said in flat(text))  # type: ignore[misc]
                seen.rest()
                seen.resize(*next(sizes))
                seen.rest()
        seen.see(lambda text: "·context" in flat(text))

        def holds(text: str) -> None:
            whole(text, 60)
            assert text.count("❯") == 2, text

        seen.still(holds)


def test_resizing_with_a_question_open(place: Place) -> None:
    ask = Say(paragraphs(3), tools=[("Bash", {"command": "touch made"})])
    with (
        Server([ask, Say("As you like.")]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.type("go\r")
        seen.see("[y]es")
        seen.still()

        def holds(text: str) -> None:
            whole(text, 3)
            once(text, "[y]es", "Bash wants to run")

        # Rows that wrap do not fit into 10 rows: tmux keeps those that it pushes out.
        for columns, rows in (size for size in SIZES if size != (30, 10)):
            seen.resize(columns, rows)
            seen.still(holds)
        seen.resize(30, 10)

        def shows(text: str) -> None:
            whole(text, 3)
            once("\n".join(seen.rows()), "[y]es")

        seen.still(shows)
        seen.type("y\r")
        seen.see("As you like.")
    assert (place.project / "made").exists()


def test_resizing_with_the_menu_open(place: Place) -> None:
    with (
        Server([Say(paragraphs(12))]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.type("talk\r")
        seen.see(" out · ")
        seen.type("/co")
        seen.see("/compact")
        seen.still()

        def holds(text: str) -> None:
            whole(text, 12)
            once(text, "❯ /co", "/commit", "/cost", "/compress")

        # Narrowed once: tmux keeps the blank rows below, so rows that wrap push others out of it.
        for columns, rows in [(60, 24), (100, 30), (120, 24), (80, 40)]:
            seen.resize(columns, rows)
            seen.still(holds)


def on_one_line(text: str) -> str:
    return " ".join(text.split()) + " "


@pytest.mark.variants
@pytest.mark.parametrize("size", [(20, 5), (1, 1), (2, 3), (200, 2), (10, 60)])
def test_a_window_too_small_for_anything(place: Place, size: tuple[int, int]) -> None:
    ask = Say(paragraphs(2), tools=[("Bash", {"command": "touch made"})])
    with (
        Server([ask, Say(paragraphs(4))]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.resize(*size)
        seen.type("go\r")
        assert server.asked.wait(100)
        seen.resize(80, 24)
        seen.see("[y]es")
        seen.resize(*size)
        seen.type("y\r")
        seen.see(lambda _: len(server.requests) == 2)
        seen.resize(80, 24)
        seen.see(lambda text: " out · " in on_one_line(text))  # the reply may be shown before that
        once(on_one_line(seen.text()), "Paragraph 003.")
        seen.press("ctrl-d")
        assert seen.leave() == 0


def test_an_interrupt_keeps_what_was_said_and_gives_back_what_waits(place: Place) -> None:
    with (
        Server([Say(paragraphs(2) + "\n\nAnd more", fault="silence"), Say("Here.")]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.type("talk\r")
        seen.see("And more")
        seen.type("this waits\r")
        seen.see("this waits")
        seen.press("esc")
        seen.see("nterrupted")

        def holds(text: str) -> None:
            whole(text, 2)
            once(text, "And more", "❯ this waits", "❯ talk")

        seen.still(holds)
        seen.press("enter")
        seen.see("Here.")
        seen.still(lambda text: once(text, "❯ this waits", "Here."))


def test_an_editor_that_is_killed_leaves_nothing_behind(place: Place) -> None:
    editor = place.root / "editor"
    editor.write_text(
        "#!/bin/sh\nprintf '\\033[?1049h\\033[2J\\033[?25l\\033[31mTHE EDITOR'\n"
        "stty raw -echo\nkill -9 $$\n"
    )
    editor.chmod(0o755)
    with Server([Say(paragraphs(12)), Say("Here.")]) as server:
        env = {**place.server(server.url), "EDITOR": str(editor)}
        with pane(cwd=place.project, env=env) as seen:
            seen.see("% full")
            seen.type("talk\r")
            seen.see(" out · ")
            seen.type("some words\x18\x05")
            seen.see(lambda text: "waskilled" in flat(text))

            def holds(text: str) -> None:
                assert seen.tell("alternate_on") == "0"
                assert seen.tell("cursor_flag") == "1"
                whole(text, 12)
                once(text, "❯ some words")
                assert "THE EDITOR" not in text

            seen.still(holds)
            seen.press("enter")
            seen.see("Here.")


def test_leaving_with_words_that_wait(place: Place) -> None:
    with (
        Server([Say("Half", fault="silence")]) as server,
        pane(cwd=place.project, env=place.server(server.url)) as seen,
    ):
        seen.see("% full")
        seen.type("talk\r")
        seen.see("Half")
        seen.type("these wait\r")
        seen.see("these wait")
        seen.press("ctrl-d")
        assert seen.leave() == 0
        text = seen.text()
    once(text, "these wait", "Half", "Resume with: ctxagent --resume")
    assert "% full" not in text
