"""The vi keys in a real terminal: `cw` as in vi, and the mode in the status line."""

from pathlib import Path

import pytest

from ..support.command import Place
from ..support.terminal.screen import Terminal

WORDS = "mend the_old parser, please"
CHANGES = {  # keys from the beginning of the words, and what they make of these
    "cwfix": "fix the_old parser, please",
    "wcwa": "mend a parser, please",
    "w2cwone": "mend one, please",
    "wc2wone": "mend one, please",
    "wwcWit": "mend the_old it please",
    "2wecwR": "mend the_old parseR, please",  # on the last letter of a word: that alone
    "whcw_": "mend_the_old parser, please",  # on a blank: up to the next word
    "$bcwnow": "mend the_old parser, now",
    'w"acwx\x1b"aP': "mend the_oldx parser, please",  # a register keeps what was changed
    '"adw"ap': "tmend he_old parser, please",
    '"aye$"apa': "mend the_old parser, pleasemend",
    "dwi": "the_old parser, please",  # `dw` takes the blank, as before
    "wceno": "mend no parser, please",
    "ccall of it": "all of it",
    "wCall": "mend all",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / ".agentrc").write_text('[ui]\nediting_mode = "vi"\n')
    return place


def status(terminal: Terminal) -> str:
    return terminal.text().rstrip().rpartition("\n")[2]


def test_cw_leaves_the_blank(place: Place) -> None:
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("· ask")
    for keys, made in CHANGES.items():
        terminal.type(f"{WORDS}\x1b")
        terminal.see(lambda _: status(terminal).startswith("NORMAL · "))
        change, _, then = f"0{keys}".partition("\x1b")
        terminal.type(change)
        if then:
            terminal.type("\x1b")
            terminal.see(lambda _: status(terminal).startswith("NORMAL · "))
            terminal.type(then)
        terminal.see(f"❯ {made}\n")
        terminal.type("\x1b")
        terminal.see(lambda _: status(terminal).startswith("NORMAL · "))
        terminal.type("0Di")
        terminal.see(lambda _: status(terminal).startswith("INSERT · "))
    terminal.type("/quit\r")
    assert terminal.leave() == 0


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
def test_the_mode_is_seen_while_one_types(place: Place, columns: int, rows: int) -> None:
    terminal = Terminal(
        cwd=place.project, env=place.server("http://127.0.0.1:9"), columns=columns, rows=rows
    )
    terminal.see("· ask")
    assert status(terminal).startswith("INSERT · sonnet-5-5")
    terminal.type("some words\x1b")
    for key, mode in (("", "NORMAL"), ("V", "VISUAL"), ("\x1b", "NORMAL"), ("R", "REPLACE")):
        terminal.type(key)
        terminal.see(lambda _, mode=mode: status(terminal).startswith(f"{mode} · "))  # type: ignore[misc]
        assert len(status(terminal)) < columns
    terminal.type("\x1b0Di/quit\r")
    assert terminal.leave() == 0


def test_other_keys_have_no_mode(tmp_path: Path) -> None:
    place = Place(tmp_path)
    terminal = Terminal(cwd=place.project, env=place.server("http://127.0.0.1:9"))
    terminal.see("· ask")
    assert status(terminal).startswith("sonnet-5-5")
    terminal.type("/quit\r")
    assert terminal.leave() == 0
