"""Real language servers, if they are installed: each finds the error of an edit in the sandbox, and
no longer finds it after the fix.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server

SCRIPTS = Path(sys.executable).parent
GO = "package main\n\nfunc main() {\n\tvar count int = 1\n\t_ = count\n}\n"
PYTHON = "old: int = 'an old error'\n\n\ndef double(number: int) -> int:\n    return 2 * number\n"
CASES = {
    "gopls": ("a.go", GO, "= 1", '= "one"', "cannot use"),
    "basedpyright-langserver": ("a.py", PYTHON, "2 * number", "2 * nummer", '"nummer" is not'),
    "pyright-langserver": ("a.py", PYTHON, "2 * number", "2 * nummer", '"nummer" is not'),
}


def results(request: Body) -> list[str]:
    blocks = [block for message in request["messages"] for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


class Editor:
    """Break a file, fix it and break it again. After each break, run commands that change nothing
    until the error is reported.
    """

    def __init__(self, name: str, good: str, bad: str, said: str) -> None:
        breaks = {"path": name, "old_string": good, "new_string": bad}
        fixes = {"path": name, "old_string": bad, "new_string": good}
        self.edits, self.said = [breaks, fixes, breaks], said
        self.told: list[str] = []  # with the result of each edit, or after it

    def __call__(self, body: Body) -> Say:
        done = results(body)
        if done and not done[-1].startswith("Edited"):
            self.told[-1] += done[-1]
        elif done:
            self.told.append(done[-1])
        if len(self.told) in (1, 3) and self.said not in self.told[-1]:
            return Say(tools=[("Bash", {"command": f"sleep 0.1 # {len(done)}"})])
        if len(self.told) == 3:
            return Say("Done.")
        return Say(tools=[("Edit", self.edits[len(self.told)])])


@pytest.mark.parametrize("program", CASES)
def test_a_real_server_finds_the_error_of_an_edit(tmp_path: Path, program: str) -> None:
    found = shutil.which(program, path=f"{os.environ['PATH']}:{SCRIPTS}")
    if found is None:
        pytest.skip(f"not installed: {program}")
    place, (name, text, good, bad, said) = Place(tmp_path), CASES[program]
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    (place.project / "go.mod").write_text("module example.org/a\n\ngo 1.19\n")
    (place.project / name).write_text(text)
    arguments = " --stdio" if "pyright" in program else ""
    setting = f'lsp.servers=["{Path(name).suffix}: {found}{arguments}"]'
    editor = Editor(name, good, bad, said)
    with Server(editor) as server:
        done = place.run(
            "-p", "go", "--permission-mode", "bypass", "-c", setting, "-c", "lsp.enabled=on",
            env=place.server(server.url),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "language server" not in done.stderr
    first, fixed, again = editor.told
    assert said in first
    assert said not in fixed
    assert said in again
    assert "an old error" not in f"{first}{fixed}{again}"
