"""The real command on many kinds of terminals: with and without an answer to the background query,
and with few capabilities.
"""

import json
import re
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

DARK, LIGHT = b"38;5;245", b"38;5;243"  # what is quiet, in the two themes
ASKED = b"\x1b]11;?"
PROMPT = re.compile(r"^>", re.MULTILINE).search
LINES = re.compile("[─-▟●❯✗∴↧▰▱]")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(server: Server) -> list[str]:
    """The user's messages in all requests together."""
    return re.findall(r"say \w+", json.dumps([r["messages"][-1] for r in server.requests]))


@pytest.mark.variants
@pytest.mark.parametrize(
    ("answers", "seen", "unseen"),
    [
        ([b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\\x1b[?62;22c"], DARK, LIGHT),
        ([b"\x1b]11;rgb:ff/ff/ff\x07", b"\x1b[?1;2c"], LIGHT, DARK),
        ([b"\x1b]11;rgb:1e1e/1e", b"1e/1e1e\x1b", b"\\"], DARK, LIGHT),
        ([b"\x1b[?62;22c"], b"2m", b"38;5;"),
        ([b"\x1b]11;nonsense\x07"], b"2m", b"38;5;"),
        ([], b"2m", b"38;5;"),
    ],
    ids=["dark", "light", "in pieces", "no colour", "nonsense", "nothing"],
)
def test_a_terminal_that_answers(
    place: Place, answers: list[bytes], seen: bytes, unseen: bytes
) -> None:
    with Server([Say("Well.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.see(lambda _: ASKED in terminal.raw)
        terminal.type("say he")
        for answer in answers:  # amid what is typed
            terminal.child.send(answer)
        terminal.type("llo\r")
        text = terminal.see("Well.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert said(server) == ["say hello"]
    assert "rgb" not in text
    assert "nonsense" not in text
    assert seen in terminal.raw
    assert unseen not in terminal.raw
    prompt = terminal.raw.index("❯".encode())
    assert prompt < terminal.raw.index(ASKED), "the first paint has waited"


def test_an_answer_in_the_midst_of_work(place: Place) -> None:
    with Server([Say("Well."), Say("Again.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("say one\r")
        terminal.see("Well.")
        terminal.child.send(b"\x1b]11;rgb:0000/0000/0000\x07\x1b[?62c")
        terminal.type("say two\r")
        terminal.see("Again.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert said(server) == ["say one", "say two"]
    assert DARK in terminal.raw.partition(b"Again.")[2]
    assert DARK not in terminal.raw.partition(b"Well.")[0]


def test_a_report_that_arrives_while_leaving_is_not_printed(place: Place) -> None:
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see(lambda _: ASKED in terminal.raw)
    terminal.type("/quit\r\x1b]11;rgb:0000/0000/0000\x07\x1b[?62c")
    assert terminal.leave() == 0
    assert "rgb" not in terminal.text()


@pytest.mark.variants
@pytest.mark.parametrize(
    "environ",
    [
        {"TERM": "screen-256color"}, {"TERM": "linux"}, {"NO_COLOR": "1"},
        {"CTXAGENT_UI_THEME": "dark"},
    ],
    ids=str,
)  # fmt: skip
def test_terminals_without_a_background_query(place: Place, environ: dict[str, str]) -> None:
    env = place.server("http://127.0.0.1:9") | environ
    terminal = Terminal(cwd=place.project, env=env)
    terminal.see("% full")
    terminal.type("/quit\r")
    assert terminal.leave() == 0
    assert ASKED not in terminal.raw


TABLE = "A **bold** word.\n\n| name | size |\n|---|---|\n| one | 1 |\n\n- item\n\n> quoted\n\n---\n"
SCRIPT = [
    Say("First I look.", tools=[("Bash", {"command": "echo out; touch made"})]),
    Say(TABLE + "\nThat is all."),
]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("arguments", "term"),
    [(["--plain"], "xterm-256color"), (["-c", "ui.plain=true"], "xterm"), ([], "dumb"), ([], "")],
    ids=["--plain", "setting", "dumb", "no TERM"],
)
def test_lines_that_may_be_read_aloud(place: Place, arguments: list[str], term: str) -> None:
    with Server(SCRIPT) as server:
        env = place.server(server.url) | {"TERM": term}
        terminal = Terminal(*arguments, cwd=place.project, env=env)
        terminal.see(PROMPT)
        terminal.type("look\r")
        asked = terminal.see("or n for no")
        assert "Bash wants to run" in asked
        assert re.search(r"^1 or y for yes$", asked, re.MULTILINE)
        assert re.search(r"^\d or n for no, and tell it what to do instead$", asked, re.MULTILINE)
        assert "touch made" in asked
        terminal.type("/help\r")
        reminder = re.compile(r"^Bash echo out; touch made\n1 or y for yes", re.MULTILINE)
        again = terminal.see(lambda text: reminder.search(text) is not None)
        assert "[y]es" not in again
        assert "Ctrl-D" in again
        assert not {"Shift-Tab", "Ctrl-O", "Ctrl-R", "Ctrl-B", "Esc"} & {*again.split()}
        terminal.type("y\r")
        text = terminal.see("This turn:")
        terminal.see(lambda text: text.rstrip().endswith("\n>"))
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert b"\x1b" not in terminal.raw
    assert LINES.findall(text) == []
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    wanted = ["First I look.", "✓ allowed", "Bash starts:", "Bash is done:", "A bold word.",
              "name: one", "size: 1", "- item", "> quoted", "That is all."]  # fmt: skip
    places = [[n for n, row in enumerate(rows) if row.startswith(said)] for said in wanted]
    assert all(len(found) == 1 for found in places), text
    assert places == sorted(places), text


def test_no_color(place: Place) -> None:
    with Server(SCRIPT) as server:
        env = place.server(server.url) | {"NO_COLOR": "1"}
        terminal = Terminal("--allow", "Bash", cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("look\r")
        terminal.see("That is all.")
        terminal.type("/context report\r")
        terminal.see("system prompt")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    codes = {code for codes in re.findall(rb"\x1b\[([\d;]*)m", terminal.raw)
             for code in codes.split(b";")}  # fmt: skip
    assert codes <= {b"", b"0", b"1", b"2", b"3", b"4", b"7", b"9"}
    assert b"1" in codes


@pytest.mark.variants
@pytest.mark.parametrize(
    "environ", [{"LC_ALL": "C"}, {"LANG": "en_US.ISO-8859-1"}, {"TERM": "linux"}], ids=str
)
def test_few_characters(place: Place, environ: dict[str, str]) -> None:
    with Server([*SCRIPT[:1], Say("Ein Gr\xfc\xdf \u65e5\u672c.")]) as server:
        env = place.server(server.url) | environ
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see(PROMPT)
        terminal.type("look\r")
        terminal.keys()
        terminal.type("y")
        text = terminal.see("Ein Gr\xfc\xdf \u65e5\u672c.")
        terminal.see(" out - ")
        terminal.type("/context report\r")
        terminal.see("system prompt")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    left = re.sub(rb"\xc3\xbc|\xc3\x9f|\xe6\x97\xa5|\xe6\x9c\xac", b"", terminal.raw)
    assert left.isascii(), [row for row in terminal.text().splitlines() if not row.isascii()]
    assert "* Bash" in text
    assert re.search(r"^> look", text, re.MULTILINE)


def test_forty_columns(place: Place) -> None:
    wide = "| " + " | ".join(f"column{n}" for n in range(6)) + " |\n" + "|---" * 6 + "|\n"
    wide += "| " + " | ".join(f"cell{n}" for n in range(6)) + " |\n\n"
    address = "https://example.org/" + "".join(f"part{n:02}" for n in range(12))
    with Server([*SCRIPT[:1], Say(f"{wide}See {address} there.\n\nThat is all.")]) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env=env, columns=40, rows=30)
        greeting = terminal.see("❯").split()
        assert {"ctxagent", "/help"} <= set(greeting), "broken in the middle of a word"
        terminal.type("look\r")
        terminal.keys()
        terminal.type("y")
        text = terminal.see("That is all.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    joined = "".join(text.split())
    assert all(f"cell{n}" in joined for n in range(6))
    assert address in joined


def test_doctor_says_what_the_terminal_can_do(place: Place) -> None:
    def doctor(**environ: str) -> str:
        terminal = Terminal("doctor", cwd=place.project, env=place.environ(environ), columns=150)
        terminal.leave()
        return terminal.text()

    text = doctor()
    assert "ok    terminal: xterm-256color, 150x40" in text
    assert "ok    screen: interactive, with menus and a status line" in text
    assert "ok    colours: 256 (TERM=xterm-256color), theme auto" in text
    assert "ok    characters: UTF-8 (LANG=C.UTF-8)" in text
    assert "plain lines, because TERM=dumb" in doctor(TERM="dumb")
    assert "ASCII, because LC_ALL=C; LANG=C.UTF-8 may enable" in doctor(LC_ALL="C")
    assert "xterm-256color in tmux, 150x40" in doctor(TMUX="/tmp/tmux,1,0")
    assert "because --plain or ui.plain" in place.run("--plain", "doctor").stdout
    assert "the input is not a terminal" in place.run("doctor").stdout


def test_doctor_in_the_repl(place: Place) -> None:
    place.state.mkdir()
    (place.state / "keys.json").write_text('{"keys": {}}')  # the first start was before
    terminal = Terminal(cwd=place.project, env=place.environ({"COLORFGBG": "0;15"}), columns=150)
    terminal.see("❯")
    terminal.type("/doctor\r")
    text = terminal.see("theme in use")
    assert re.search(r"theme in use +light$", text, re.MULTILINE)
    assert re.search(r"colours +256 \(TERM=xterm-256color\), theme auto$", text, re.MULTILINE)
    assert LIGHT in terminal.raw
    terminal.type("/quit\r")
    assert terminal.leave() == 0


@pytest.mark.parametrize("arguments", [["--plain"], []], ids=["lines", "painted"])
def test_the_name_of_a_folder_does_nothing_to_the_terminal(
    place: Place, arguments: list[str]
) -> None:
    folder = place.project / "x\x1b]0;TITLE\x07\u202ey"
    folder.mkdir()
    with Server([]) as server:
        terminal = Terminal(*arguments, cwd=folder, env=place.server(server.url))
        terminal.see(re.compile("^[>❯]", re.MULTILINE).search)
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert b"ctxagent" in terminal.raw
    assert b"\x1b]0;" not in terminal.raw
    assert "\u202e".encode() not in terminal.raw


@pytest.mark.parametrize("arguments", [["--plain"], []], ids=["lines", "painted"])
def test_the_greeting_with_a_long_folder_is_broken_between_words(
    place: Place, arguments: list[str]
) -> None:
    width = 150 - len(str(place.project)) - 1
    folder = place.project / ("long-name" * 20)[:width]
    folder.mkdir()
    assert len(str(folder)) == 150
    with Server([]) as server:
        env = place.server(server.url)
        columns = 250
        for _ in range(2):
            terminal = Terminal(*arguments, cwd=folder, env=env, columns=columns)
            text = terminal.see(re.compile("^[>❯]", re.MULTILINE).search)
            assert {"ctxagent", "/help"} <= set(text.split()), text
            assert str(folder) in "".join(text.split())
            terminal.type("/quit\r")
            assert terminal.leave() == 0
            # The terminal alone would break the line in the middle of /help.
            columns = min(columns, (text.index("/help") + 2) // 2)
