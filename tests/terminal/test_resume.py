"""A resumed session: earlier messages look as they did originally, never as Markdown source."""

import re
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

ANSWER = """\
## Fixed

`half` took away **fifty cents** where it *should* have halved.

| price | now |
|------:|----:|
|  3.00 | 1.50 |

```python
return price / 2
```
"""
LONG = ANSWER + "\n".join(f"{n}. Line **{n}** of `many`.\n" for n in range(1, 4_000))
MARKS = re.compile(r"\*\*|`|^##|\|--|^ *\|", re.MULTILINE)


def resumed(place: Place, answer: str, columns: int, rows: int) -> Terminal:
    """The command that resumes a session of one turn."""
    with Server([Say(answer, deltas=40)]) as server:
        done = place.run("-p", "mend **half**", env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    terminal = Terminal(
        "--continue", cwd=place.project, env=place.server("http://127.0.0.1:9"),
        columns=columns, rows=rows,
    )  # fmt: skip
    terminal.see("mend **half**")
    return terminal


@pytest.mark.variants
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
@pytest.mark.parametrize("answer", [ANSWER, LONG], ids=["short", "long"])
def test_what_was_said_before_is_rendered(
    tmp_path: Path, answer: str, columns: int, rows: int
) -> None:
    terminal = resumed(Place(tmp_path), answer, columns, rows)
    terminal.see(lambda text: re.search(r"3\.00 +1\.50", text) is not None)
    if answer == LONG:
        terminal.see("lines (Ctrl-O)")
    terminal.resize(120 - columns, 36 - rows)
    terminal.rest()
    shown = terminal.text()
    recap = shown.rpartition("mend **half**")[2]
    assert shown.count("3.00") == 1
    assert MARKS.search(recap) is None, recap
    assert "half took away fifty cents" in recap
    assert len(recap.rstrip("\n").split("\n")) < 24
    terminal.type("\x0f")
    terminal.see("▾ the last answer")
    whole = terminal.see("return price / 2" if answer == ANSWER else "3999. Line 3999 of many.")
    assert MARKS.search(whole.rpartition("▾ the last answer")[2]) is None
    terminal.type("/quit\r")
    assert terminal.leave() == 0


def test_the_menu_of_sessions_shows_no_marks(tmp_path: Path) -> None:
    place = Place(tmp_path)
    terminal = resumed(place, ANSWER, 80, 30)
    terminal.type("/clear\r")
    terminal.see("new session")
    terminal.type("/resume\r")
    menu = terminal.see(lambda text: "fifty cents" in text.partition("search:")[2])
    menu = menu.partition("search:")[2]
    assert "Fixed half took away fifty cents" in menu
    assert MARKS.search(menu.replace("mend **half**", "")) is None
    terminal.press("esc")
    terminal.see(lambda text: "search:" not in text)
    terminal.type("/quit\r")
    assert terminal.leave() == 0
