"""docs/internals/seeds.md: run its sessions with the real command, and the command of each row."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.command import COMMAND, PATIENCE, Place
from ..support.terminal.screen import Terminal

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "seeds.md").read_text()
FOLDERS = {"S0": "ctx-001", "S1": "ctx-001", "S2": "anchored", "S3": "ledger", "S4": "v5"}
REPL = "anchored"
_READER = re.compile(r"(?:cd (\S+) && )?ctxagent ((?:[^|]|\\\|)+?) \| (.+)")


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield folder, demand and the cell "command" of each row that has code."""
    folder = ""
    for line in PAGE.splitlines():
        if heading := re.match(r"## (S\d):", line):
            folder = FOLDERS[heading[1]]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if folder and len(cells) == 5 and cells[1] not in ("code", "---", "–"):
            yield folder, cells[0], cells[3]


class Played(Place):
    """The sessions of the page. Each command of a row runs once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.said: dict[tuple[str, str], str] = {}

    def shell(self, command: str, cwd: Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        env = self.environ()
        env["PATH"] = f"{Path(COMMAND).parent}:{env['PATH']}"
        return subprocess.run(
            ["bash", "-c", command], cwd=cwd, env=env, input=stdin, capture_output=True,
            text=True, timeout=PATIENCE,
        )  # fmt: skip

    @property
    def state(self) -> Path:
        return self.project / "state"

    def shows(self, folder: str, command: str) -> bool:
        """Return True if a row's command succeeds."""
        cwd = self.project / folder
        if reader := _READER.fullmatch(command):
            where, arguments, rest = reader.groups()
            cwd = (cwd / (where or ".")).resolve()
            key = (cwd.name, arguments)
            if key not in self.said:
                done = self.run(*shlex.split(arguments), cwd=cwd)
                self.said[key] = done.stdout + done.stderr
            return self.shell(rest, cwd, self.said[key]).returncode == 0
        return self.shell(command, cwd).returncode == 0


@pytest.mark.full
def test_command_of_each_row_succeeds(tmp_path: Path) -> None:
    played = Played(tmp_path)
    (script,) = re.findall(r"```sh\n(.+?)```", PAGE, re.DOTALL)
    done = played.shell(script, played.project)
    assert done.returncode == 0, done.stderr
    typed, failed, count = list[tuple[str, str]](), list[str](), 0
    for folder, demand, cell in rows():
        count += 1
        if repl := re.fullmatch(r"`([^`]+)` → `([^`]+)`", cell):
            typed.append((repl[1], repl[2]))
        else:
            shown = re.fullmatch(r"`([^`]+)`", cell)
            assert shown, f"{demand}: {cell}"
            if not played.shows(folder, shown[1].replace("\\|", "|")):
                failed.append(f"{folder}: {demand}: {shown[1]}")
    assert count > 100
    assert failed == []

    model = ("--continue", "--model", "scripted:script.json", "--context-window", "40000")
    desk = Terminal(*model, cwd=played.project / REPL, env=played.environ())
    desk.see("% full")
    for words, says in typed:
        before = desk.text().count(says) + words.count(says)
        desk.type(words)
        desk.press("enter")
        desk.see(lambda text, says=says, before=before: text.count(says) > before)
    desk.press("ctrl-d")
    assert desk.leave() == 0
