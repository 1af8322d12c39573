"""`ctxagent config --trust`: the screen before anything is accepted, and the choice of files."""

import json
import re
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.machine import needs_landlock
from ..support.terminal.screen import Terminal

SCREEN = """\
.agentrc: never accepted
  settings
  sets permissions.allow = ["Bash(make test)"]
  the hook after_tool: sh scripts/log.sh
    inside the sandbox, with network, writes to ~/logs
    runs scripts/log.sh (new)
.ctxagent/extensions/x.py: never accepted
  extension: its code runs in the agent's process, outside the sandbox
.claude/settings.json: never accepted
  hooks
  Stop: posts to http://127.0.0.1:1/stop
  the hook PostToolUse of the file settings.json: python3 scripts/fmt.py
    outside the sandbox, with your rights
    runs scripts/fmt.py (new), scripts/helper.py (new)
.mcp.json: never accepted
  MCP servers
  the MCP server t: python3 -I tools/server.py
    inside the sandbox, without network
    runs tools/server.py (new)
"""
ALL_ACCEPTED = "every file is accepted with its current content\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    files = {
        ".agentrc": '[permissions]\nallow = ["Bash(make test)"]\n'
        '[hooks]\nafter_tool = ["sh scripts/log.sh"]\n'
        '[programs]\nnetwork = true\nwrite = ["~/logs"]\n',
        ".ctxagent/extensions/x.py": "raise SystemExit\n",
        ".mcp.json": json.dumps(
            {"mcpServers": {"t": {"command": "python3", "args": ["-I", "tools/server.py"]}}}
        ),
        "scripts/fmt.py": "import helper\n",
        "scripts/helper.py": "",
        "scripts/log.sh": "",
        "tools/server.py": "",
        ".git/HEAD": "",
    }
    fmt = {"type": "command", "command": "python3 scripts/fmt.py", "outside": True}
    stop = {"type": "http", "url": "http://127.0.0.1:1/stop"}
    hooks = {"PostToolUse": [{"hooks": [fmt]}], "Stop": [{"hooks": [stop]}]}
    files[".claude/settings.json"] = json.dumps({"hooks": hooks})
    for name, text in files.items():
        path = place.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


def preview(place: Place) -> str:
    done = place.run("config", "--trust", "--preview")
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def trust(place: Place, *files: str) -> list[str]:
    """Return the accepted files."""
    done = place.run("config", "--trust", *files)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(?:trusted|accepted) with its current content: (.*)", done.stderr)
    return [str(Path(path).relative_to(place.project)) for path in found]


@needs_landlock
def test_the_preview_shows_each_file_and_accepts_nothing(place: Place) -> None:
    assert preview(place) == SCREEN
    assert preview(place) == SCREEN
    trust(place)
    assert preview(place) == ALL_ACCEPTED


def test_only_named_files_are_accepted(place: Place) -> None:
    assert trust(place, ".agentrc") == [".agentrc", "scripts/log.sh"]
    assert trust(place, "tools/server.py") == [".mcp.json", "tools/server.py"]
    shown = preview(place)
    assert re.findall(r"^(\S+): never accepted$", shown, re.MULTILINE) == [
        ".ctxagent/extensions/x.py",
        ".claude/settings.json",
    ]
    done = place.run("config", "--trust", "README.md")
    assert done.returncode == 2
    assert "README.md does not need trust" in done.stderr


def test_after_a_change_the_difference_is_shown(place: Place) -> None:
    trust(place)
    (place.project / "scripts" / "fmt.py").write_text("import helper\nprint('more')\n")
    shown = preview(place)
    assert ".claude/settings.json: accepted" in shown
    assert "runs scripts/fmt.py (changed)" in shown
    assert "    +print('more')\n" in shown
    assert ".agentrc" not in shown
    (place.project / ".agentrc").write_text('[permissions]\nallow = ["Bash(make all)"]\n')
    assert '    +allow = ["Bash(make all)"]\n' in preview(place)
    assert trust(place, "scripts/fmt.py") == [".claude/settings.json", "scripts/fmt.py"]


def test_preview_and_files_need_the_option(place: Place) -> None:
    for words in (["--preview"], [".agentrc"]):
        assert place.run("config", *words).returncode == 2


@pytest.mark.slow
def test_a_user_at_a_terminal_chooses_one_by_one(place: Place) -> None:
    terminal = Terminal("config", "--trust", cwd=place.project, env=place.environ())
    terminal.see("Accept [a]ll, [o]ne by one, or [n]othing?")
    terminal.type("o\r")
    for name, answer in (
        (".agentrc", "y"), (".ctxagent/extensions/x.py", "n"),
        (".claude/settings.json", "n"), (".mcp.json", "n"),
    ):  # fmt: skip
        terminal.see(f"Accept {name}?")
        terminal.type(f"{answer}\r")
    assert terminal.leave() == 0
    shown = preview(place)
    assert ".agentrc" not in shown
    assert shown.count("never accepted") == 3
