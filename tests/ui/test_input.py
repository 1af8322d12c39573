"""User input without a terminal: history, long pastes, queued messages, keys."""

import asyncio
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.ui.input import history
from ctxagent.agent.ui.input.history import ProjectHistory
from ctxagent.agent.ui.input.pasted import (
    MAX_PASTED_CHARS,
    MAX_PASTED_LINES,
    MAX_TEXT_CHARS,
    PastedTexts,
)
from ctxagent.agent.ui.repl.input_queue import InputQueue

from ..support.terminal.seat import CTRL_C, CTRL_R, ENTER, ESC, UP, Desk, Glass, Seat, drive

DOWN, ALT_ENTER, CTRL_J, CTRL_S = "\x1b[B", "\x1b\r", "\n", "\x13"
HOME, END, CTRL_A, CTRL_E, UNDO, BACKSPACE = "\x1b[H", "\x1b[F", "\x01", "\x05", "\x1f", "\x7f"
LONG = {"command": "echo going on; sleep 60"}


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


# The history.


def kept(path: Path) -> list[str]:
    """The stored entries, oldest first."""
    return list(ProjectHistory(path, PastedTexts()).load_history_strings())[::-1]


def test_history_is_kept_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    typed = ["one", "two\nlines\n\nand more", "naïve ☃", "# like a heading\n+plus"]
    for words in typed:
        ProjectHistory(path, PastedTexts()).store_string(words)
    assert kept(path) == typed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_sessions_keep_each_others_history(tmp_path: Path) -> None:
    here, there = (ProjectHistory(tmp_path / "history", PastedTexts()) for _ in range(2))
    here.store_string("here")
    there.store_string("there")
    here.store_string("there")
    here.store_string("here again")
    assert kept(tmp_path / "history") == ["here", "there", "here again"]


@pytest.mark.slow
def test_the_file_of_the_history_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "history"
    typed = ProjectHistory(path, PastedTexts())
    words = "x" * 50_000
    for number in range(2 * history.MAX_HISTORY_BYTES // len(words)):
        typed.store_string(f"{number} {words}")
        assert path.stat().st_size <= history.MAX_HISTORY_BYTES
    numbers = [int(found.split()[0]) for found in kept_whole(path)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[-1] == 2 * history.MAX_HISTORY_BYTES // len(words) - 1
    assert len(numbers) >= history.MAX_HISTORY_BYTES // 2 // 60_000


def kept_whole(path: Path) -> list[str]:
    pasted = PastedTexts()
    found = [pasted.unfold(text) for text in ProjectHistory(path, pasted).load_history_strings()]
    return found[::-1]


def test_history_that_was_read_once_is_there_at_once(tmp_path: Path) -> None:
    """No thread is needed, so a key right after sending a line finds that line."""
    typed = history.open_history(tmp_path / "history", PastedTexts(), print)

    async def all_of_it() -> list[str]:
        return [words async for words in typed.load()]

    async def run() -> list[str]:
        assert await all_of_it() == []
        typed.append_string("one")
        loading = asyncio.create_task(all_of_it())
        await asyncio.sleep(0)
        assert loading.done()
        return await loading

    assert asyncio.run(run()) == ["one"]


def test_history_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    typed = ProjectHistory(tmp_path / "file" / "history", PastedTexts())
    typed.append_string("words")
    assert typed.get_strings() == ["words"]


# Long texts.


def test_a_long_paste_is_a_mark_that_stands_for_all_of_it() -> None:
    pasted = PastedTexts()
    text = "".join(f"line {number}\n" for number in range(2_000))
    mark = pasted.paste(text)
    assert "2,001 lines: line 0 line 1" in mark
    assert len(mark) < 80
    assert pasted.unfold(f"look at {mark} here") == f"look at {text} here"
    assert pasted.fold(f"look at {text} here") == f"look at {mark} here"
    changed = mark.replace("2,001", "2,002")
    assert pasted.unfold(changed) == changed
    assert pasted.mark_length_at_end(f"see {mark}") == len(mark)
    assert (
        pasted.mark_length_at_end(f"see {mark} ")
        == pasted.mark_length_at_end(f"see {changed}")
        == 0
    )


def test_what_stays_as_it_is_and_what_does_not() -> None:
    pasted = PastedTexts()
    few = "a line\n" * (MAX_PASTED_LINES - 1)
    assert pasted.paste(few) == few
    assert pasted.paste(few + "a line\n") != few + "a line\n"
    assert pasted.paste("x" * MAX_PASTED_CHARS) == "x" * MAX_PASTED_CHARS
    assert "2,001 characters" in pasted.paste("x" * (MAX_PASTED_CHARS + 1))
    typed = "a line of words\n" * 500
    assert pasted.fold(typed) == typed  # it was not pasted
    assert len(pasted.fold("a line\n" * MAX_TEXT_CHARS)) < 80


@pytest.mark.slow
@given(st.lists(st.text(max_size=40) | st.text("]\n[x", min_size=30, max_size=60), max_size=6))
def test_nothing_of_what_was_pasted_is_lost(texts: list[str]) -> None:
    pasted = PastedTexts()
    long = [text + "\n" * MAX_PASTED_LINES for text in texts]
    words = " and ".join(pasted.paste(text) for text in long)
    assert pasted.unfold(words) == " and ".join(long)
    assert pasted.unfold(pasted.fold(" and ".join(long))) == " and ".join(long)


# Words that wait.


def texts(waiting: InputQueue) -> list[str]:
    return [each.text for each in waiting]


def test_queued_messages_are_edited_one_by_one_in_place() -> None:
    waiting = InputQueue()
    for words in ("one", "two", "three"):
        waiting.add(words)
    assert waiting.earlier("a draft") is None
    assert waiting.earlier("") == "three"
    assert waiting.earlier("three!") == "two"
    assert texts(waiting) == ["one", "three!"]
    waiting.add("two!")
    assert texts(waiting) == ["one", "two!", "three!"]
    assert waiting.earlier("") == "three!"
    assert waiting.earlier("three!") == "two!"
    assert waiting.earlier("two!") == "one"
    assert waiting.earlier("ONE") == "ONE"
    assert waiting.later("ONE") == "two!"
    assert waiting.later(" ") == "three!"  # what is empty is gone
    assert waiting.later("three!") == ""
    assert waiting.later("anything") is None
    assert waiting.take_all() == ["ONE", "three!"]
    assert not waiting


def test_messages_after_an_edited_one_wait() -> None:
    async def run() -> list[str]:
        waiting, served = InputQueue(), list[str]()

        async def serve() -> None:
            while True:
                served.append(await waiting.next())

        serving = asyncio.create_task(serve())
        await waiting.idle()
        for words in ("one", "two", "three"):
            waiting.add(words)
        assert (waiting.earlier(""), waiting.earlier("three")) == ("three", "two")
        for _ in range(10):
            await asyncio.sleep(0)
        assert (served, texts(waiting)) == (["one"], ["three"])
        waiting.add("two!")
        await waiting.idle()
        waiting.add("four")
        assert waiting.earlier("") == "four"
        waiting.drop()
        waiting.add("five")
        await waiting.idle()
        serving.cancel()
        return served

    assert asyncio.run(run()) == ["one", "two!", "three", "five"]


def test_a_turn_takes_mid_turn_messages_in_order() -> None:
    waiting = InputQueue()
    assert waiting.next_mid_turn() is None
    for text, mid_turn in (("a", True), ("later", False), ("b", True), ("/cost", False)):
        waiting.add(text, mid_turn=mid_turn)
    assert waiting.next_mid_turn() == "a"
    assert waiting.next_mid_turn() == "b"
    assert waiting.next_mid_turn() is None
    assert texts(waiting) == ["later", "/cost"]


def test_the_turn_skips_messages_after_an_edited_one() -> None:
    waiting = InputQueue()
    for text in ("one", "two", "three"):
        waiting.add(text, mid_turn=True)
    assert (waiting.earlier(""), waiting.earlier("three")) == ("three", "two")
    assert waiting.next_mid_turn() == "one"
    assert waiting.next_mid_turn() is None
    assert waiting.later("two!") == "three"  # it keeps when it goes
    waiting.add("three, after the turn")
    assert waiting.next_mid_turn() == "two!"
    assert waiting.next_mid_turn() is None
    assert texts(waiting) == ["three, after the turn"]


# The keys.


def typed(seat: Seat) -> str:
    return seat.repl.screen.draft.text  # type: ignore[attr-defined,no-any-return]


@pytest.mark.slow
def test_keys_of_a_text_of_several_lines(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Read."))

    async def act(seat: Seat) -> None:
        seat.press("one" + ALT_ENTER + "two" + CTRL_J + "three\\" + ENTER + "four")
        await seat.until(lambda: typed(seat) == "one\ntwo\nthree\nfour")
        seat.press(UP + CTRL_A + "> " + UP + END + "!" + UP + HOME + "- " + CTRL_E + ";")
        await seat.until(lambda: typed(seat) == "- one;\ntwo!\n> three\nfour")
        seat.press("xyz")
        await seat.until(lambda: "xyz" in typed(seat))
        seat.press(3 * UNDO)
        await seat.until(lambda: typed(seat) == "- one;\ntwo!\n> three\nfour")
        seat.press(ENTER)
        await seat.until("Read.")

    drive(desk, act)
    assert desk.said() == ["- one;\ntwo!\n> three\nfour"]


@pytest.mark.slow
def test_history_and_a_draft(tmp_path: Path) -> None:
    desk = Desk(tmp_path, *(Step(text=f"Answer {n}.") for n in range(4)))

    async def act(seat: Seat) -> None:
        for number, words in enumerate(("first", "second\nof two lines", "second\nof two lines")):
            seat.press(words.replace("\n", CTRL_J) + ENTER)
            await seat.until(f"Answer {number}.")
        await seat.idle()
        seat.press("a draft" + CTRL_J + "of mine")
        seat.press(UP + UP)
        await seat.until(lambda: typed(seat) == "second\nof two lines")
        seat.press(UP + UP)  # it stands there once
        await seat.until(lambda: typed(seat) == "first")
        seat.press(DOWN + DOWN + DOWN + DOWN)
        await seat.until(lambda: typed(seat) == "a draft\nof mine")
        seat.press(CTRL_C + " secret" + ENTER)
        await seat.until("Answer 3.")
        await seat.idle()
        seat.press(UP)
        await seat.until(lambda: typed(seat) == "second\nof two lines")
        seat.press(CTRL_C)

    drive(desk, act, history=tmp_path / "history")
    assert kept(tmp_path / "history") == ["first", "second\nof two lines"]


@pytest.mark.slow
def test_search_backwards_and_forwards(tmp_path: Path) -> None:
    path = tmp_path / "history"
    for words in ("run the tests", "fix the bug", "run the linter", "thanks"):
        ProjectHistory(path, PastedTexts()).store_string(words)
    desk = Desk(tmp_path, Step(text="Done."))

    async def act(seat: Seat) -> None:
        seat.press(CTRL_R + "run")
        await seat.until("run the linter")
        seat.press(CTRL_R)
        await seat.until("run the tests")
        seat.press(CTRL_S)
        await seat.until("❯ run the linter")
        seat.press(CTRL_R + ENTER)
        await seat.until(lambda: typed(seat) == "run the tests" and bool(desk.loops))
        assert not desk.loops[0].log.path.exists()  # found, and not sent
        seat.press(ENTER)
        await seat.until("Done.")

    drive(desk, act, history=path)
    assert desk.said() == ["run the tests"]


@pytest.mark.slow
def test_a_huge_paste_is_folded_sent_whole_and_comes_back(tmp_path: Path) -> None:
    text = "".join(f"{number} a line of some forty characters\r" for number in range(25_000))
    desk = Desk(tmp_path, Step(text="Seen."))
    glass = Glass()

    async def act(seat: Seat) -> None:
        await asyncio.to_thread(seat.press, "look:" + CTRL_J + paste(text))
        await seat.until("25,001 lines: 0 a line of some forty")
        seat.press("x" + BACKSPACE + BACKSPACE)
        await seat.until(lambda: typed(seat) == "look:\n")
        await asyncio.to_thread(seat.press, paste(text) + ENTER)
        await seat.until("Seen.")

    drive(desk, act, glass=glass, history=tmp_path / "history")
    assert "… +24,972 lines" in glass.all()
    whole = "look:\n" + text.replace("\r", "\n")
    assert kept_whole(tmp_path / "history") == [whole]
    log = desk.loops[0].log.path
    offloaded = list((log.parent / "offloaded").iterdir())
    assert [path.read_text() for path in offloaded] == [whole]


@pytest.mark.slow
def test_a_short_paste_never_sends(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Seen."))

    async def act(seat: Seat) -> None:
        seat.press(paste("one\rtwo\r\nthree\n"))
        await seat.until(lambda: typed(seat) == "one\ntwo\nthree\n")
        seat.press("four" + ENTER)
        await seat.until("Seen.")

    drive(desk, act)
    assert desk.said() == ["one\ntwo\nthree\nfour"]


@pytest.mark.slow
def test_words_that_wait_are_edited_in_their_place(tmp_path: Path) -> None:
    until = {"command": "echo going on; until [ -e go ]; do sleep 0.02; done"}
    steps = [Step(tools=[("Bash", until)]), *(Step(text=f"Answer {n}.") for n in range(3))]
    desk = Desk(tmp_path, *steps, mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("begin")
        await seat.until("going on")
        for words in ("one", "two", "three"):
            seat.press(words + ALT_ENTER)
        await seat.until(lambda: seat.glass.lines().count("after turn ❯ three") == 1)
        seat.press(UP + UP)
        await seat.until(lambda: typed(seat) == "two")
        seat.press(" and a half" + ALT_ENTER)
        await seat.until("after turn ❯ two and a half")
        seat.press(UP)
        await seat.until(lambda: typed(seat) == "three")
        seat.press("\x15")  # Ctrl-U: the line is empty, the words are gone
        await seat.until(lambda: typed(seat) == "")
        seat.press("/context report" + ENTER)  # that one need not wait
        await seat.until("free")
        (desk.cwd / "go").touch()
        await seat.until("Answer 2.")

    drive(desk, act)
    assert desk.said() == ["begin", "one", "two and a half"]


@pytest.mark.slow
def test_what_was_not_sent_is_named(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", LONG)]), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("begin")
        await seat.until("going on")
        seat.say("one")
        seat.say("two")
        await seat.until("❯ two")
        seat.press("a draft")
        await seat.until("❯ a draft")
        seat.repl.leave()

    _, glass = drive(desk, act, history=tmp_path / "history")
    assert "not sent: one" in glass.all()
    assert "not sent: two" in glass.all()
    assert kept(tmp_path / "history") == ["begin", "one", "two", "a draft"]


@pytest.mark.slow
def test_esc_gives_everything_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", LONG)]), Step(text="Both."), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("begin")
        await seat.until("going on")
        seat.say("one")
        seat.say("two")
        await seat.until("❯ two")
        seat.press(ESC)
        await seat.until(lambda: typed(seat) == "one\ntwo")
        await seat.idle()
        seat.press(ENTER)
        await seat.until("Both.")

    drive(desk, act)
    assert desk.said() == ["begin", "one\ntwo"]


@pytest.mark.slow
def test_vi_keys_have_a_cursor_and_no_clash(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Read."))

    async def act(seat: Seat) -> None:
        seat.press("wrong words" + ESC)
        await seat.until(lambda: "\x1b[2 q" in seat.glass.raw)
        seat.press("0ceright" + ESC + "kj" + ENTER)
        await seat.until("Read.")

    _, glass = drive(desk, act, editing_mode="vi")
    assert desk.said() == ["right words"]
    assert "\x1b[6 q" in glass.raw  # a bar while words are put in
