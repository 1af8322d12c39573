"""Commands built to be slow to judge: the cost of judging grows linearly with their length."""

from cProfile import Profile
from pathlib import Path

import pytest

from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.shell import parser
from ctxagent.tools.bash import BashParams, BashTool

from ...support.command import Place
from ...support.server.loopback import Say, Server
from ...support.terminal.screen import Terminal

# Each is repeated.
PIECES = [
    "find . -exec ", "find . -exec ls \\; ", "-exec ", "sudo ", "env ", "env -S ", "env -S ls ",
    "xargs ", "xargs -n 1 ", "timeout 5 ", "eval ", "eval echo ", "bash -c ", 'sh -c "sh -c ',
    "sh -c 'ls' ", "sh <<< 'sh <<< ' ", "git -x a ", "watch ", "ssh h ", "parallel ", "coproc ",
    "(", "{ ", "$(", "`", "<(", "${a:-", "if true; then ", "case a in a) ", "! ", "'", '"', '"$(',
    "[[ ", "(( ", "a | ", "ls; ", "git log; ", "cd a; ", "cat <<A\n", "for f in *; do echo $f; ",
    "echo $x ", "echo 'a b' | sh; ", "cat */*/*/* ", "wc $(git ls-files) ", ">a ", "f() { ",
]  # fmt: skip


def cost(project: Path, command: str) -> int:
    """Count the function calls of a judgement."""
    approval = Approval(cwd=project, deny=["Bash(rm -rf:*)", "Read(.env)"], ask=["Bash(git push)"])
    params = BashParams.model_validate({"command": command})
    parser.parse.cache_clear()
    with Profile(builtins=False) as counted:
        approval.judge(BashTool(), params)
    return sum(entry.callcount for entry in counted.getstats())


@pytest.mark.variants
@pytest.mark.parametrize("piece", PIECES)
def test_four_times_the_length_is_no_more_than_that(tmp_path: Path, piece: str) -> None:
    short, long = (cost(tmp_path, piece * (size // len(piece))) for size in (1_000, 4_000))
    assert long < 8 * short + 12_500


def test_without_its_bounds_each_piece_doubles_the_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(set[object]):
        def __contains__(self, other: object) -> bool:
            return False

    bounded = cost(tmp_path, "find . -exec " * 12)
    monkeypatch.setattr(parser, "_ParseCost", lambda: _Unbounded())

    class _Unbounded:
        added = Forgetful()

        def allows(self, words: int = 0, script_bytes: int = 0) -> bool:
            return True

    assert cost(tmp_path, "find . -exec " * 12) > 20 * bounded


def test_files_of_a_deny_rule_are_still_found(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, mode="bypass", deny=["Bash(rm -rf:*)"])
    for head in ("find . -exec ", "env -S ls ", "sudo ", "a; "):
        command = f"{head * (2_000 // len(head))} echo; rm -rf x"
        params = BashParams.model_validate({"command": command})
        assert approval.judge(BashTool(), params).action == "deny", head


def test_a_person_is_asked_and_can_interrupt(tmp_path: Path) -> None:
    place = Place(tmp_path)
    steps = [Say(tools=[("Bash", {"command": "find . -exec " * 40 + "ls"})]), Say("As you wish.")]
    with Server(steps) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("[y]es")
        terminal.press("esc")
        terminal.see("nterrupted")
        terminal.type("again\r")
        terminal.see("As you wish.")
        terminal.type("/quit\r")
        terminal.leave()
    assert server.rejected == []
