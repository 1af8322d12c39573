"""The choices of a permission question in a pseudo-terminal: arrows and Enter, numbers, letters,
and keys that must not answer.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctxagent.agent.events import Question
from ctxagent.agent.ui.conversation.questions import permission_rows
from ctxagent.agent.ui.screen import ROW_KEYS

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

UP, DOWN, CTRL_O = "\x1b[A", "\x1b[B", "\x0f"
SIZES = pytest.mark.parametrize("size", [(80, 24), (40, 12)], ids=["80x24", "40x12"])
DELETES = "rm -rf $HOME/.cache/thing"
BODY = "\n".join(f"print({n})" for n in range(58))
LONG = {
    "after the here-document": f"python3 - <<'E'\n{BODY}\nE\n{DELETES}",
    "in the here-document": f"python3 - <<'E'\n{BODY}\n{DELETES}\nE",
    "fed to a shell": f"bash <<'E'\n{BODY}\n{DELETES}\nE",
}


def touch(*names: str) -> Say:
    return Say(tools=[("Bash", {"command": f"touch {name}"}) for name in names])


@contextmanager
def person(
    tmp_path: Path, *said: Say, size: tuple[int, int] = (80, 24), options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> Iterator[tuple[Terminal, Path]]:  # fmt: skip
    place = Place(tmp_path)
    with Server(list(said)) as server:
        terminal = Terminal(
            *options, cwd=place.project, env=place.server(server.url) | (env or {}),
            columns=size[0], rows=size[1],
        )  # fmt: skip
        terminal.see("❯" if "--plain" not in options else ">")
        terminal.type("go\r")
        yield terminal, place.project
        terminal.type("/quit\r")
        assert terminal.leave() == 0


def display(terminal: Terminal) -> list[str]:
    terminal.text()
    return [line.rstrip() for line in terminal.screen.display]


def chosen(terminal: Terminal) -> str:
    """The selected row, "" if none is selected."""
    return next((row[2:] for row in display(terminal) if re.match(r"❯ \d\.", row)), "")


def until_chosen(terminal: Terminal, wanted: str) -> None:
    terminal.see(lambda _: chosen(terminal).startswith(wanted))


@pytest.mark.variants
@SIZES
def test_arrows_and_enter(tmp_path: Path, size: tuple[int, int]) -> None:
    said = (touch("one"), touch("two"), Say("Both ran."))
    with person(tmp_path, *said, size=size) as (terminal, project):
        terminal.keys()
        assert chosen(terminal) == "", "no row is chosen before an arrow"
        terminal.type(DOWN)
        until_chosen(terminal, "1. [y]es")
        terminal.type(DOWN)
        until_chosen(terminal, "2. [a]")
        terminal.type(UP + UP)
        until_chosen(terminal, "1. [y]es")
        terminal.type("\r")
        terminal.see("touch two")
        terminal.keys()
        assert chosen(terminal) == "", "the next question begins anew"
        terminal.type(DOWN + DOWN + "\r")
        terminal.see("from now on Bash(touch:*)")
        terminal.see("Both ran.")
        assert {path.name for path in project.iterdir()} >= {"one", "two"}


@SIZES
def test_no_with_what_to_do_instead(tmp_path: Path, size: tuple[int, int]) -> None:
    with person(tmp_path, touch("made"), Say("I see."), size=size) as (terminal, project):
        terminal.keys()
        terminal.type(UP)
        terminal.see(lambda _: "[n]o" in chosen(terminal))
        terminal.type("\r")
        terminal.see("say why")
        terminal.press("esc")  # goes back, and does not stop the turn
        terminal.see(lambda _: any("[y]es" in row for row in display(terminal)))
        terminal.keys()
        numbers = re.findall(r"^[ ❯] (\d)\. ", "\n".join(display(terminal)), re.MULTILINE)
        terminal.type(numbers[-1])
        terminal.see("say why")
        terminal.type("use mktemp\r")
        terminal.see("declined: use mktemp")
        terminal.see("I see.")
        assert not (project / "made").exists()


def test_a_number_and_a_letter(tmp_path: Path) -> None:
    with person(tmp_path, touch("one"), touch("two"), Say("Both ran.")) as (terminal, project):
        terminal.keys()
        terminal.type("1")
        terminal.see("touch two")
        terminal.keys()
        terminal.type("y")
        terminal.see("Both ran.")
        assert {path.name for path in project.iterdir()} >= {"one", "two"}


@pytest.mark.variants
@SIZES
def test_all_edits_in_this_session(tmp_path: Path, size: tuple[int, int]) -> None:
    writes = [Say(tools=[("Write", {"path": f"{n}.py", "content": "x = 1\n"})]) for n in "ab"]
    said = (*writes, touch("made"), Say("Done."))
    with person(tmp_path, *said, size=size) as (terminal, project):
        terminal.keys()
        terminal.type("e")
        terminal.see("touch made")  # which is no edit
        assert (project / "a.py").exists()
        assert (project / "b.py").exists()
        assert terminal.text().count("Write wants to") == 1
        terminal.see("accept-edits")
        terminal.keys()
        assert "[e]" not in "\n".join(display(terminal))
        terminal.type("y")
        terminal.see("Done.")


def test_a_protected_file_does_not_offer_all_edits(tmp_path: Path) -> None:
    write = Say(tools=[("Write", {"path": ".git/config", "content": "x\n"})])
    with person(tmp_path, write, Say("I see.")) as (terminal, _):
        terminal.keys()
        assert "[e]" not in "\n".join(display(terminal))
        terminal.type("n\r")
        terminal.see("I see.")


@pytest.mark.variants
@SIZES
@pytest.mark.parametrize("where", LONG)
def test_what_is_dangerous_comes_first(tmp_path: Path, where: str, size: tuple[int, int]) -> None:
    said = (Say(tools=[("Bash", {"command": LONG[where]})]), Say("I see."))
    with person(tmp_path, *said, size=size) as (terminal, _):
        terminal.keys()
        text = terminal.text()
        asked = text[text.index("? Bash wants to run") :]
        why = " ".join(asked.split("\n")[1].split())
        assert why.startswith("why: ")
        assert "rm -rf" in why
        assert f"! {DELETES}" in asked.split("\n")
        assert "print(30)" not in asked
        assert DELETES in "\n".join(display(terminal)), "it is on the screen beside the choices"
        assert all(f"{n}. " in "\n".join(display(terminal)) for n in (1, 2))
        terminal.type(CTRL_O)
        terminal.see("print(57)")
        terminal.see("print(30)")
        terminal.keys()
        terminal.type("n\r")
        terminal.see("I see.")


def test_the_dangerous_part_stands_out(tmp_path: Path) -> None:
    said = (Say(tools=[("Bash", {"command": f"make && {DELETES}"})]), Say("I see."))
    with person(tmp_path, *said) as (terminal, _):
        terminal.keys()
        rows = display(terminal)
        row = next(n for n, line in enumerate(rows) if line.startswith("  make && rm"))
        cell = terminal.screen.buffer[row][rows[row].index("rm -rf")]
        assert (cell.fg, cell.bold, cell.underscore) == ("red", True, True)
        terminal.type("n\r")
        terminal.see("I see.")


def test_without_colours_a_mark_and_the_reason_tell_it(tmp_path: Path) -> None:
    said = (Say(tools=[("Bash", {"command": LONG["fed to a shell"]})]), Say("I see."))
    with person(tmp_path, *said, env={"NO_COLOR": "1"}) as (terminal, _):
        terminal.keys()
        assert f"! {DELETES}" in terminal.text().split("\n")
        terminal.type(DOWN)
        until_chosen(terminal, "1. [y]es")
        terminal.type("n\r")
        terminal.see("I see.")


def test_lines_show_the_whole_command_and_take_numbers(tmp_path: Path) -> None:
    said = (Say(tools=[("Bash", {"command": LONG["fed to a shell"]})]), Say("I see."))
    with person(tmp_path, *said, options=("--plain",)) as (terminal, _):
        terminal.see("1 or y for yes")
        text = terminal.text()
        assert "print(30)" in text
        assert f"! {DELETES}" in text.split("\n")
        number = re.findall(r"^(\d) or n for no", text, re.MULTILINE)[-1]
        terminal.type(f"{number}\r")
        terminal.see("say why")
        terminal.type("too much\r")
        terminal.see("declined: too much")
        terminal.see("I see.")


@SIZES
def test_a_new_size_keeps_the_question_and_the_row(tmp_path: Path, size: tuple[int, int]) -> None:
    with person(tmp_path, touch("made"), Say("Ran."), size=size) as (terminal, project):
        terminal.keys()
        terminal.type(DOWN)
        until_chosen(terminal, "1. [y]es")
        for columns, rows in ((120, 30), (40, 12), (60, 20)):
            terminal.resize(columns, rows)
            terminal.rest()
            until_chosen(terminal, "1. [y]es")
            assert any("[n]o" in row for row in display(terminal))
        assert not (project / "made").exists()
        terminal.type("\r")
        terminal.see("Ran.")


def test_a_second_question_takes_no_key_of_the_first(tmp_path: Path) -> None:
    with person(tmp_path, touch("one", "two"), Say("I see.")) as (terminal, project):
        terminal.keys()
        terminal.type(DOWN)
        until_chosen(terminal, "1. [y]es")
        terminal.type("\r\r" + DOWN + "\r")
        terminal.see("touch two")
        terminal.rest()
        assert chosen(terminal) == ""
        assert (project / "one").exists()
        assert not (project / "two").exists()
        terminal.keys()
        terminal.type("n\r")
        terminal.see("I see.")
        assert not (project / "two").exists()


@pytest.mark.variants
@pytest.mark.parametrize("keys", ["\r", DOWN + "\r", DOWN + DOWN + "\r\r", UP + DOWN + "\r"])
def test_keys_typed_ahead_answer_nothing(tmp_path: Path, keys: str) -> None:
    with person(tmp_path, touch("made"), Say("I see.")) as (terminal, project):
        terminal.type(keys)
        terminal.see("[y]es")
        terminal.type(keys)  # right as the question comes
        terminal.keys()
        assert chosen(terminal) == ""
        assert not (project / "made").exists()
        terminal.type("\r")  # Enter alone chooses nothing
        terminal.keys()
        assert not (project / "made").exists()
        terminal.type("n\r")
        terminal.see("I see.")
        assert not (project / "made").exists()


@pytest.mark.parametrize("key", ["esc", "ctrl-c"])
def test_esc_and_ctrl_c_stop_the_turn_from_any_row(tmp_path: Path, key: str) -> None:
    with person(tmp_path, touch("made"), Say("I see.")) as (terminal, project):
        terminal.keys()
        terminal.type(DOWN)
        until_chosen(terminal, "1. [y]es")
        terminal.press(key)
        terminal.see("interrupted; what was done is kept")
        assert not (project / "made").exists()


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "permissions.md"


def section(heading: str) -> str:
    return GUIDE.read_text().partition(f"## {heading}\n")[2].partition("\n##")[0]


def labels() -> list[str]:
    """The label of every possible choice, without its rule."""
    flags = [{"may_accept_edits": True, "may_be_sandboxed": True}]
    wide = {"offers": ["Bash"], "check": lambda rule: "broad"}
    narrow = {"offers": ["Bash(a:*)"], "check": lambda rule: ""}
    rows = [
        row
        for more in (*flags, wide, narrow)
        for row in permission_rows(Question("Bash", "a", {}, "", "", **more))  # type: ignore[arg-type]
    ]
    found = (re.sub(r"(again for) any .*", r"\1 …", row.label) for row in rows)
    return list(dict.fromkeys(found))


def test_the_guide_lists_every_choice() -> None:
    told = re.findall(r"^\| `(.+?)` \|", section("Choices"), re.MULTILINE)
    assert sorted(told) == sorted(labels())


def test_the_guide_shows_what_the_screen_shows(tmp_path: Path) -> None:
    lines = re.findall(
        r"^    (.*)$|^()$", section("Answers to a permission question"), re.MULTILINE
    )
    example = "\n".join(line for line, _ in lines).partition("? Bash")[2].strip()
    say = Say(tools=[("Bash", {"command": "npm test -- --watch=false"})])
    with person(tmp_path, say, Say("I see."), options=("-c", "sandbox.mode=off")) as (terminal, _):
        terminal.keys()
        rows = display(terminal)
        start = next(n for n, row in enumerate(rows) if row.startswith("? Bash"))
        stop = next(n for n, row in enumerate(rows) if row == "?")
        assert "\n".join(rows[start : stop + 1]) == f"? Bash {example}"
        terminal.type("n\r")
        terminal.see("I see.")


def test_the_guide_lists_every_key() -> None:
    """Each key has a test here, in test_questions.py or in test_permission_prompt.py."""
    keys = re.findall(r"^\| (.+?) \|", section("Keys in a question"), re.MULTILINE)[2:]
    assert {"↑↓, then Enter", "a number, or the letter in brackets"} <= {*keys}
    assert ROW_KEYS == "↑↓ and Enter, a number or a letter"
    others = ["other words, then Enter", "Ctrl-O", "Shift-Tab, then Enter", "Tab", "Esc", "Ctrl-C"]
    assert keys[2:] == others
