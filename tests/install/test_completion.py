"""The completion files, in the shells that they are for."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.tests.support.command import COMMAND, PATIENCE, Place
from ctxagent.tests.support.terminal.screen import Child

from ..support.machine import program, skip_without

pytestmark = pytest.mark.slow
SHARE = Path(__file__).parents[2] / "share"
BASH = SHARE / "bash-completion" / "completions" / "ctxagent"
ZSH = SHARE / "zsh" / "site-functions" / "_ctxagent"
FISH = SHARE / "fish" / "vendor_completions.d" / "ctxagent.fish"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command, and a home without settings."""
    found = Place(tmp_path).environ({"TERM": "dumb", "ZDOTDIR": str(tmp_path)})
    return {**found, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"}


def printed(environ: dict[str, str], *command: str) -> str:
    skip_without(command[0])
    return subprocess.run(
        command, env=environ, check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sess", "sessions"),
        ("sessions exp", "export"),
        ("--permission-mode acc", "accept-edits"),
        ("demo --ke", "--keep"),
    ],
)
def test_bash(environ: dict[str, str], words: str, completed: str) -> None:
    script = (
        f'. "{BASH}"; COMP_WORDS=(ctxagent {words}) COMP_CWORD={len(words.split())};'
        "complete -p ctxagent; _ctxagent_completion ctxagent; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    assert printed(environ, "bash", "--norc", "-c", script).splitlines()[1:] == [completed]


def test_fish(environ: dict[str, str]) -> None:
    script = f'source "{FISH}"; complete -C "ctxagent sess"; complete -C "ctxagent sessions exp"'
    lines = printed(environ, "fish", "--no-config", "-c", script).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["sessions", "export"]


@pytest.fixture
def zsh(environ: dict[str, str]) -> Iterator[Child]:
    """A zsh that finds the file as one of its functions."""
    skip_without("zsh")
    shell = Child(
        "zsh", ["-f", "-i"], env=environ, encoding="utf-8", dimensions=(24, 80), timeout=PATIENCE
    )
    shell.sendline(
        f'fpath=("{ZSH.parent}" $fpath); autoload -Uz compinit; compinit -D; print go""on'
    )
    shell.expect("goon")
    yield shell
    shell.close(force=True)


def test_zsh(zsh: Child) -> None:
    zsh.send("ctxagent sess\t")
    zsh.expect("sessions ")  # by the file itself
    zsh.send("exp\t")
    zsh.expect("export ")  # by what it has defined
    zsh.sendline("--help")
    zsh.expect("Usage: ctxagent sessions export")


@pytest.mark.parametrize("file", [BASH, ZSH])
def test_where_the_command_is_not_found_nothing_is_said(
    tmp_path: Path, environ: dict[str, str], file: Path
) -> None:
    name = "zsh" if file == ZSH else "bash"
    skip_without(name)
    shell = program(name) or name
    environ["PATH"] = str(tmp_path)
    done = subprocess.run(
        [shell, "-c", f'. "{file}"; true'], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
