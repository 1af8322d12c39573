"""Allow rules that match a command by its words do not skip the other checks: the real command with
hostile repositories and with denied files, without a kernel sandbox and with what the machine has.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ...support.command import Place
from ...support.server.loopback import Say, Server

HOOKS = ("pre-commit", "reference-transaction", "post-checkout", "post-index-change")
GIT_COMMANDS = (
    "git status -s", "git add f", "git tag t1", "git commit -qam x", "git stash",
    "git checkout -qb n", "git reset -q", "git mv f g", "git merge -q n",
)  # fmt: skip
SEARCHES = (
    "grep -rn KEPT .", "rg -uu KEPT", "diff -r . config", "git grep --no-index KEPT",
    "cp -r config copy; cat copy/e*", "tar cO config", "cat config/$x", "sed '' c*/.e?v",
)  # fmt: skip
RULES = ("grep", "rg", "diff", "git", "cp", "tar", "cat", "sed")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.project.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "-q", str(made.project)], check=True)
    (made.project / "f").write_text("a\n")
    return made


def run(place: Place, commands: Sequence[str], *options: str) -> tuple[str, str]:
    """Return the requests and the standard error of a headless run that calls these commands."""
    calls = [("Bash", {"command": command}) for command in commands]
    with Server([Say(tools=calls), Say("Done.")]) as server:
        done = place.run("-p", "go", *options, env=place.server(server.url))
        assert len(server.requests) >= 2, done.stderr
        return str(server.requests[-1]), done.stderr


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_rule_for_git_runs_nothing_that_the_repository_names(place: Place, sandbox: str) -> None:
    ran = place.project / "RAN"
    config = place.project / ".git/config"
    for hook in HOOKS:
        file = place.project / ".git/hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {ran}\n")
        file.chmod(0o755)
    (place.project / ".gitattributes").write_text("f filter=x\n")
    config.write_text(f'{config.read_text()}[filter "x"]\n\tclean = touch {ran}; cat\n')
    options = ("-c", f"sandbox.mode={sandbox}", "--allow", "Bash(git:*)")
    seen, _ = run(place, GIT_COMMANDS, *options)
    assert not ran.exists()
    assert seen.count("the repository makes git run") == len(GIT_COMMANDS)
    subprocess.run(["git", "-C", str(place.project), "add", "f"], check=True)
    assert ran.exists()  # the control


@pytest.mark.parametrize("mode", ["ask", "plan", "accept-edits"])
def test_a_rule_for_a_search_shows_no_denied_file(place: Place, mode: str) -> None:
    (place.project / "config").mkdir()
    (place.project / "config/.env").write_text("KEPT-" + "SECRET=1\n")
    allowed = [option for name in RULES for option in ("--allow", f"Bash({name}:*)")]
    options = ("--permission-mode", mode, "--deny", "Read(.env)", *allowed)
    for sandbox in ("off", "auto"):
        seen, _ = run(place, SEARCHES, *options, "-c", f"sandbox.mode={sandbox}")
        assert "KEPT-SECRET" not in seen
