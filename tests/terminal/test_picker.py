"""The picker: /resume and /rewind without a number, on screens of several sizes."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, Session, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project
from ctxagent.agent.ui.screen import Option, OptionList

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import CTRL_C, ENTER, ESC, Desk, Glass, Seat, drive

DOWN, PAGE_DOWN, HOME, END, TAB = "\x1b[B", "\x1b[6~", "\x1b[H", "\x1b[F", "\t"
SIZES = [(80, 24), (40, 10), (120, 40)]
WORDS = ["okapi", "heron", "Grüße", "日本語のテキスト", "quagga"]


def session(project: Project, number: int, words: str, answer: str, branch: str = "main") -> Path:
    """A session with its own last second: a higher number is newer."""
    log = Log(project.folder / "sessions" / f"20261101-{number:06}-{number:06x}/log.jsonl")
    log.append(
        Session(
            id=log.path.parent.name, cwd=str(project.cwd), branch=branch, version="0", model="m",
            system="You are an agent. " * 1_500, tools=[],
        )
    )  # fmt: skip
    if words:
        log.append(User(content=words))
        text = [{"type": "text", "text": answer}]
        log.append(Assistant(content=text, usage={}, stop_reason="end_turn", model="m"))
    log.close()
    os.utime(log.path, (1_700_000_000 + number, 1_700_000_000 + number))
    return log.path


def fill(project: Project, count: int) -> None:
    for n in range(count):
        words = f"look at {WORDS[n % len(WORDS)]} number {n}"
        session(project, n, words, f"seen {n}, and that is all there is to it", f"topic/{n % 7}")


def chosen_row(glass: Glass) -> str:
    """The row of the selected option: the first ❯ below the search line."""
    lines = glass.lines()
    at = next(n for n, line in enumerate(lines) if line.startswith("search:"))
    return next((line for line in lines[at:] if line.startswith("❯")), "")


def search_line(glass: Glass) -> str:
    return next((line for line in glass.lines() if line.startswith("search:")), "")


def chosen(seat: Seat, *words: str) -> Callable[[], bool]:
    """Return True if the row of the selected option contains these words."""
    return lambda: (
        bool(search_line(seat.glass))
        and all(
            word in re.sub(r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f])", "", chosen_row(seat.glass))
            for word in words
        )
    )


@pytest.mark.variants
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_three_hundred_sessions(tmp_path: Path, columns: int, rows: int) -> None:
    desk, glass = Desk(tmp_path, Step(text="Here I am.")), Glass(columns, rows)
    fill(desk.project, 300)
    session(desk.project, 400, "", "")
    broken = desk.project.folder / "sessions" / "20261101-500000-0000ff" / "log.jsonl"
    broken.parent.mkdir()
    broken.write_bytes(b"\x00\xff{garbage\n" * 5_000)

    async def act(seat: Seat) -> None:
        seat.say("/resume")
        await seat.until(lambda: any(line.endswith(" 300") for line in glass.lines()))
        await seat.until(chosen(seat, "number 299"[: columns - 35]))
        assert sum(line.startswith("❯") for line in glass.lines()[-rows:]) <= 3
        seat.press("HERON 101")
        await seat.until(lambda: "1 of 300" in "\n".join(glass.lines()))
        await seat.until(chosen(seat, "heron"))
        assert all(len(line) <= columns for line in glass.lines())
        assert any(line.startswith("Enter: open · Tab: all projects") for line in glass.lines())
        if rows >= 24:
            await seat.until("20261101-000101-000065")
            await seat.until("seen 101, and that is all there is to it")
        seat.press(ENTER)
        await seat.until("search:", gone=True)
        await seat.until("look at heron number 101")
        seat.say("go on")
        await seat.until("Here I am.")

    drive(desk, act, glass=glass)
    assert desk.loops[-1].log.path.parent.name == "20261101-000101-000065"
    assert desk.said(-1) == ["look at heron number 101", "go on"]
    assert "Enter: open" not in glass.all()
    assert glass.all().count("/resume") == 1
    for never in ("\x1b[2J", "\x1b[3J", "\x1b[?1049h", "\x1b[?47h"):
        assert never not in glass.raw


def test_keys_move_and_esc_leaves(tmp_path: Path) -> None:
    desk, glass = Desk(tmp_path, Step(text="Still here.")), Glass(80, 30)
    fill(desk.project, 50)

    async def act(seat: Seat) -> None:
        seat.say("/resume")
        await seat.until(chosen(seat, "number 49"))
        for keys, number in (
            (DOWN, 48), ("\x0e", 47), ("\x10", 48), (END, 0), (DOWN, 0), (HOME, 49), (PAGE_DOWN, 42)
        ):  # fmt: skip
            seat.press(keys)
            await seat.until(chosen(seat, f"number {number} "))
        seat.press("zzz")
        await seat.until("no match in the list")
        seat.press(ENTER)
        seat.press(ESC)
        await seat.until("search:", gone=True)
        seat.say("hello")
        await seat.until("Still here.")
        seat.say("/resume")
        await seat.until("search:")
        assert search_line(glass) == "search:"
        seat.press(CTRL_C)
        await seat.until("search:", gone=True)
        assert "again to leave" not in glass.all()

    code, _ = drive(desk, act, glass=glass)
    assert code == 0
    assert len(desk.loops) == 1
    assert desk.said() == ["hello"]


def test_what_matches_is_marked(tmp_path: Path) -> None:
    desk, glass = Desk(tmp_path), Glass(60, 24)
    session(desk.project, 1, "word " * 30 + "the quagga stands far to the right", "Yes.")

    async def act(seat: Seat) -> None:
        seat.say("/resume")
        await seat.until(chosen(seat, "word word"))
        seat.press("QUAG")
        await seat.until(chosen(seat, "…", "the quagga stands"))
        row = next(n for n, line in enumerate(glass.lines()) if "the quagga stands" in line)
        column = glass.lines()[row].index("quagga")
        cells = [glass.screen.buffer[row][column + n] for n in range(6)]
        assert [cell.bold for cell in cells] == [True] * 4 + [False] * 2
        assert all(cell.reverse for cell in cells)
        seat.press(ESC)

    drive(desk, act, glass=glass)


def test_the_sessions_of_all_projects(tmp_path: Path) -> None:
    desk, glass = Desk(tmp_path, Step(text="From there.")), Glass(100, 24)
    fill(desk.project, 3)
    other = Project(desk.project.state, tmp_path / "another place")
    session(other, 77, "look after the gnu", "It is well.")

    async def act(seat: Seat) -> None:
        seat.say("/resume")
        await seat.until(chosen(seat, "number 2"))
        seat.press("gnu")
        await seat.until("0 of 3")
        seat.press(TAB)
        await seat.until("1 of 4")
        await seat.until(chosen(seat, "look after the gnu", "another place"))
        await seat.until(lambda: "continues here" in " ".join(glass.all().split()))
        seat.press(TAB)
        await seat.until("0 of 3")
        seat.press("\x01")  # Ctrl-A
        await seat.until("1 of 4")
        seat.press(ENTER)
        await seat.until("It is well.")
        seat.say("go on")
        await seat.until("From there.")

    drive(desk, act, glass=glass)
    assert desk.said() == ["look after the gnu", "go on"]


def test_what_is_typed_ahead_is_looked_for_and_comes_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."))
    fill(desk.project, 30)

    async def act(seat: Seat) -> None:
        seat.press("/resume\rnumber 17")
        await seat.until(chosen(seat, "number 17"))
        assert search_line(seat.glass) == "search: number 17"
        seat.press(" and more")
        await seat.until("no match in the list")
        seat.press(ESC)
        await seat.until(lambda: "❯ number 17 and more" in seat.glass.lines())
        seat.press(ENTER)
        await seat.until("One.")

    drive(desk, act)
    assert desk.said() == ["number 17 and more"]


def test_the_size_changes_while_it_is_open(tmp_path: Path) -> None:
    desk, glass = Desk(tmp_path), Glass(100, 30)
    fill(desk.project, 40)

    async def act(seat: Seat) -> None:
        seat.say("/resume")
        await seat.until(chosen(seat, "number 39"))
        for columns, rows in ((40, 10), (120, 40), (20, 5), (80, 24)):
            glass.size = glass.size._replace(columns=columns, rows=rows)
            glass.screen.resize(rows, columns)
            seat.repl.screen.app._on_resize()  # type: ignore[attr-defined]
            seat.press(DOWN)
            await seat.until(lambda: "Enter: open" in "".join(glass.lines()[-3:]))
        await seat.until(chosen(seat, "number 35"))
        seat.press(ENTER)
        await seat.until("resumed (")

    drive(desk, act, glass=glass)
    assert desk.loops[-1].log.path.parent.name == "20261101-000035-000023"


def test_rewind_takes_a_point_from_the_menu(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."), Step(text="Three."))

    async def act(seat: Seat) -> None:
        for words, answer in (("first words", "One."), ("second words", "Two.")):
            seat.say(words)
            await seat.until(answer)
        seat.say("/rewind")
        await seat.until(chosen(seat, "second words"))
        seat.press("first")
        await seat.until(chosen(seat, "first words"))
        seat.press(ESC)  # leaves the menu; nothing is interrupted
        await seat.until("search:", gone=True)
        seat.say("/rewind")
        await seat.until(chosen(seat, "second words"))
        seat.press(DOWN + ENTER)
        await seat.keys("2 turns would be left out")
        seat.press("c")
        await seat.until(lambda: seat.repl.screen.draft.text == "first words")  # type: ignore[attr-defined]
        await seat.until(lambda: "❯ first words" in seat.glass.lines()[-6:])
        seat.press(CTRL_C)  # what the person said then is offered to be said again

    _, glass = drive(desk, act)
    assert "interrupted" not in glass.all()
    assert desk.said(0) == ["first words", "second words"]


def test_on_a_plain_terminal_a_number_is_taken(tmp_path: Path) -> None:
    place = Place(tmp_path)
    fill(Project(place.state, place.project), 3)
    with Server([Say("Here.")]) as server:
        env = {**place.server(server.url), "TERM": "dumb"}
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("/help")
        terminal.type("/resume\r")
        terminal.see("a number, or Enter for none")
        terminal.type("\r")
        terminal.type("/resume\r")
        terminal.see(lambda text: text.count("Enter for none") == 2)
        terminal.type("2\r")
        terminal.see("look at heron number 1")
        terminal.see("resumed (")
        terminal.type("/resume\r")
        terminal.see(lambda text: text.count("Enter for none") == 3)
        terminal.type("go on with this\r")  # words that are no number are for the agent
        terminal.see("Here.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert b"\x1b" not in terminal.raw
    assert server.requests[-1]["messages"][-1]["role"] == "user"
    assert "go on with this" in str(server.requests[-1]["messages"][-1])


def test_the_command_itself(tmp_path: Path) -> None:
    place = Place(tmp_path)
    project = Project(place.state, place.project)
    fill(project, 300)
    with Server([Say("One more."), Say("On it goes.")]) as server:
        env = place.server(server.url)
        held = Log.open(project.find_log("20261101-000298"))
        terminal = Terminal(cwd=place.project, env=env, columns=80, rows=24)
        terminal.see("❯")
        terminal.type("/resume\r")
        terminal.see(lambda text: "in use" in text and " 300" in text)
        terminal.type("number 298\r")
        terminal.see("is open in another process")
        terminal.keys("[l]eave")
        terminal.type("l")
        terminal.see(lambda text: "[l]eave" not in text)
        held.close()
        terminal.type("/resume\r")
        terminal.see("look at quagga number 299")
        terminal.type("zebra")
        terminal.see("no match in the list")
        terminal.type("\x15grÜße number 27\x0e\x0e\x0e\x0e")
        terminal.see(lambda text: "❯ look at Grüße number 27 " in text)
        terminal.type("\r")
        terminal.see("resumed (")
        terminal.type("go on\r")
        text = terminal.see("One more.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert "look at Grüße number 27" in text
    assert "search:" not in terminal.text()
    assert "Enter: open" not in terminal.text()
    assert "Grüße number 27" in str(server.requests[-1]["messages"][0])
    assert not re.search(rb"\x1b\[[23]J|\x1b\[\?(1049|47)h|\x1bc", terminal.raw)


def test_a_request_to_end_while_it_is_open(tmp_path: Path) -> None:
    place = Place(tmp_path)
    fill(Project(place.state, place.project), 20)
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("❯")
    terminal.type("/resume\r")
    terminal.see("number 19")
    terminal.signal(signal.SIGTERM)
    assert terminal.leave() == 130
    assert "Enter: open" not in terminal.text()
    assert terminal.raw.rindex(b"?2004l") > terminal.raw.rindex(b"?2004h")


def test_a_menu_that_opens_while_typing_with_vi_keys(tmp_path: Path) -> None:
    """The menu opens while the user types: Enter must not open the first option."""
    desk = Desk(tmp_path, Step(text="word " * 40), Step(text="Yes."), pace=0.005)
    fill(desk.project, 5)

    async def act(seat: Seat) -> None:
        seat.say("hello")
        await seat.until(lambda: seat.repl.working)
        seat.say("/resume")
        seat.press("what I am about to ")
        await seat.until("no match in the list")
        seat.press("say\r")
        await seat.until(lambda: search_line(seat.glass).endswith("to say"))
        seat.press(ESC)
        await seat.until("❯ what I am about to say")
        seat.press(ENTER)
        await seat.until("Yes.")

    drive(desk, act, editing_mode="vi")
    assert len(desk.loops) == 1
    assert desk.said() == ["hello", "what I am about to say"]


def test_an_option_list_finds_all_words_and_keeps_the_order() -> None:
    options = OptionList()
    options.search("b A")
    options.add(
        [Option("1", "a b"), Option("2", "a"), Option("345678", "b", detail="A", words="c")]
    )
    assert [option.key for option in options.matches] == ["1", "345678"]
    options.move(5)
    assert options.chosen == Option("345678", "b", detail="A", words="c")
    options.add([Option("4", "ab", ("long", "fact"))])
    assert (options.total, options.columns, options.index) == (4, [4, 4], 1)
    options.search(" a   b ")  # the same words in another order are another search
    assert options.index == 0
    for words, keys in (("c", ["345678"]), ("45678", ["345678"]), ("4567", []), ("x", [])):
        options.search(words)
        assert [option.key for option in options.matches] == keys
    assert options.chosen is None
    options.move(1)
    assert options.index == 0


@pytest.mark.parametrize("words", ["status", "/Status"])
def test_the_option_with_the_typed_name_is_chosen(words: str) -> None:
    options = OptionList()
    options.add([Option("context", "/context /status"), Option("status", "/status")])
    options.search(words)
    assert (options.index, len(options.matches)) == (1, 2)


def test_the_model_is_chosen_from_a_list_or_typed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.models = [("large-1", "$4/20/0.4", "1M", "one"), ("small-1", "$1/2/0.1", "200k", "two")]

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.say("/model")
        await seat.menu()
        await seat.until(chosen(seat, "scripted", "now"))
        seat.press("smal")
        await seat.until(chosen(seat, "$1/2/0.1", "200k", "two", "small-1"))
        seat.press(ENTER)
        await seat.until(lambda: len(desk.chosen) == 1)
        await seat.idle()
        seat.say("/model")
        await seat.menu()
        seat.press("my-own")
        await seat.until("not in the list")
        seat.press(ENTER)
        await seat.until(lambda: len(desk.chosen) == 2)
        await seat.idle()
        seat.say("/model")
        await seat.menu()
        seat.press("two words")
        await seat.until("no match in the list")
        seat.press(ENTER + ESC)
        await seat.until("Model · $ per million", gone=True)

    drive(desk, act)
    assert [id for _, id in desk.chosen] == ["small-1", "my-own"]
