"""`make test LOAD=16`: the processes that compute meanwhile, and their end."""

import subprocess
import sys

import psutil

from ..support.command import comes, gone

LOAD = [sys.executable, "-m", "ctxagent.tests.support.load"]


def test_the_exit_code_is_that_of_the_command() -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    assert subprocess.run([*LOAD, "2", *command]).returncode == 3


def test_nothing_computes_on_when_it_is_killed() -> None:
    load = psutil.Popen([*LOAD, "2", "cat"], stdin=subprocess.PIPE)
    assert comes(lambda: len(load.children()) == 3)
    started = [each.pid for each in load.children()]
    load.kill()
    load.wait()
    load.stdin.close()  # ends the command
    assert gone(*started)
