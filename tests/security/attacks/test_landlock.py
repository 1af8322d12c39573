"""Commands without bubblewrap: what Landlock alone blocks and what it does not. Each attempt
succeeds without Landlock.
"""

import asyncio
import os
import secrets
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from ctxagent.agent.security.bubblewrap import Bubblewrap, state_of
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.tools.base import Context
from ctxagent.tools.bash import BashParams, BashTool

from ...support.machine import needs_landlock
from ..test_sandbox import OUT, PLAIN, SECRET, WHO, Field, as_user, place  # noqa: F401
from .test_sockets import CONNECT, SYSCALLS, attempt, listening

ABSENT = "bwrap is not installed. Install it."

ATTEMPTS = {
    "write outside": "echo x > $R/outside/new",
    "write to the home": "echo x > $HOME/.bashrc",
    "through a link": "ln -sfn $R/outside link; echo x > link/new",
    "a file cut off": "perl -e 'exit !truncate(shift, 0)' $R/outside/file",
    "a file given a second name": "ln $R/outside/file second && echo x >> second",
    "a secret": "cat $HOME/.ssh/id",
    "what is nobody's business": "cat $HOME/notes/plain",
    "a cache that a shell reads": "mkdir -p $HOME/.cache && echo x > $HOME/.cache/p10k.zsh",
    "secrets found": f"grep -rqs {SECRET} $HOME/.ssh $HOME/.aws $HOME/.netrc",
    "a secret with a second name": "ln $HOME/.ssh/id mine && cat mine",
    "a secret through a process": "cat /proc/self/root$HOME/.ssh/id",
    "the environment of others": "grep -qs MARK={mark} /proc/{pid}/environ",
    "the folder of others": "ls /proc/{pid}/cwd/",
    "others ended": "kill -USR1 {pid}",
    "another session": "cat $R/state/projects/p/sessions/other/log.jsonl",
    "new privileges": "grep -q 'NoNewPrivs:.0' /proc/self/status",
    "a preloaded library": "LD_PRELOAD=$R/home/.ssh/id cat $HOME/.ssh/id",
    "a terminal": "ls /dev/pts/",
    "passwords": "grep -q : /etc/shadow",
    "a file moved away": "mv $R/outside/file $R/outside/moved",
    "a file removed": "rm $R/outside/moved",
}


def context_of(place: Field, confined: bool) -> Context:  # noqa: F811
    """A context with commands under Landlock alone, or without confinement."""
    context = place.context()
    context.env = {**context.env, "R": str(place.root)}
    assert isinstance(context.sandbox, Sandbox)
    context.sandbox._bubblewrap = Bubblewrap(absent=ABSENT)
    return context if confined else replace(context, sandbox=None)


def run(place: Field, *commands: str, confined: bool = True) -> list[str]:  # noqa: F811
    """The output of the commands, one after another."""

    async def scene() -> list[str]:
        context = context_of(place, confined)
        tool = BashTool()
        return [(await tool.run(BashParams(command=each), context)).text for each in commands]

    return asyncio.run(scene())


def told_by(who: str, place: Field, *commands: str, confined: bool = True) -> list[str]:  # noqa: F811
    told: list[str] = as_user(who, place.root, partial(run, confined=confined), place, *commands)
    return told


@pytest.mark.slow
@needs_landlock
@pytest.mark.parametrize("who", WHO)
def test_landlock_blocks_every_attempt(place: Field, who: str) -> None:  # noqa: F811
    """No attempt succeeds. Without confinement each one does, unless the kernel forbids it to
    everybody.
    """
    mark = secrets.token_hex(8)
    sleeper = ["sh", "-c", "trap : USR1; while :; do sleep 0.1; done"]
    user = {} if who == "us" else {"user": PLAIN, "group": PLAIN, "extra_groups": []}
    environ = {"MARK": mark, "PATH": place.path}
    with subprocess.Popen(sleeper, env=environ, cwd="/", **user) as other:  # type: ignore[call-overload]
        try:
            commands = [
                f"( {text.replace('{mark}', mark).replace('{pid}', str(other.pid))} ) && echo {OUT}"
                for text in ATTEMPTS.values()
            ]
            told = dict(zip(ATTEMPTS, told_by(who, place, *commands), strict=True))
            assert [name for name, text in told.items() if OUT in text] == []
            assert SECRET not in "".join(told.values())
            told = dict(zip(ATTEMPTS, told_by(who, place, *commands, confined=False), strict=True))
        finally:
            other.kill()
    kept = {name for name, text in told.items() if OUT not in text}
    assert kept <= {"passwords", "a terminal"}, kept


@pytest.mark.slow
@needs_landlock
@pytest.mark.parametrize("who", WHO)
def test_sockets_and_calls(place: Field, who: str) -> None:  # noqa: F811
    """Unix sockets are refused with and without the network, ports only without it. The system call
    filter is the same as under bubblewrap.
    """
    abstract = f"box-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        stack.enter_context(listening("s", place.root / "outside"))
        stack.enter_context(listening(f"\0{abstract}", place.root))
        by_port = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo {OUT}"
        by_path = f"{CONNECT}{place.root}/outside/s && echo {OUT}"
        by_name = CONNECT.replace("shift", f"qq(\\0{abstract})") + f" && echo {OUT}"
        ways = [by_path, by_name, by_port]
        assert told_by(who, place, *ways, confined=False) == [OUT] * 3
        assert [OUT in text for text in told_by(who, place, *ways)] == [False, False, True]
        place.network = False
        assert [OUT in text for text in told_by(who, place, *ways)] == [False] * 3
    calls = dict(zip(SYSCALLS, told_by(who, place, *map(attempt, SYSCALLS.values())), strict=True))
    assert [name for name, text in calls.items() if OUT in text] == []


@pytest.mark.slow
@needs_landlock
@pytest.mark.parametrize("who", WHO)
def test_ordinary_work_succeeds_in_landlock(place: Field, who: str) -> None:  # noqa: F811
    """Project files and commits, temporary files, programs and their settings, pipes, devices and
    exit codes work.
    """
    (place.root / "tmp" / "tmux-0").mkdir(parents=True)
    place.temporary = (str(place.root / "tmp"),)
    assert told_by(
        who,
        place,
        "echo a > a && mkdir -p d/e && mv a d/e && git add . && git commit -qm one && echo ok",
        "git log --format=%s; git status --short | wc -l",
        "echo x | tee /dev/stderr > /dev/null",
        f"cat {place.root}/state/projects/p/sessions/own/log.jsonl",
        "perl -e 'print 1' && ls /usr/bin | grep -cx env; exit 3",
        "kill -KILL $$",
        "(sleep 60 & kill $!; wait $!; echo $?)",
        "mktemp -p $R/tmp >/dev/null && echo made",
    ) == [
        "ok",
        "one\n0",
        "x",
        SECRET,
        "11\n[exit 3]",
        "[killed by SIGKILL]",
        "143",
        "made",
    ]


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="powers are those of the root")
def test_the_powers_of_the_root(place: Field) -> None:  # noqa: F811
    (powers,) = run(place, "grep CapEff /proc/self/status")
    assert int(powers.split()[1], 16) & 0x8280004 == 0  # SYS_ADMIN, SYS_PTRACE, NET_RAW and so on


@needs_landlock
def test_landlock_leaves_documented_gaps(place: Field) -> None:  # noqa: F811
    """Documented gaps: modes and times of files outside, the existence of a file, and read-only
    files in a writable folder.
    """
    assert run(
        place,
        "chmod 600 $R/outside/file && stat -c %a $R/outside/file",
        "test -e $HOME/.ssh/id && echo there",
        "git config a.b c && git config a.b",
    ) == ["600", "there", "c"]


@needs_landlock
def test_the_model_reads_why(place: Field) -> None:  # noqa: F811
    for command in ("echo x > $R/outside/new", f"{CONNECT}/s || perl -e '$! = 97; die qq($!)'"):
        (text,) = run(place, command)
        assert "It ran in the sandbox: only the project" in text
        assert "call it again with unsandboxed" in text


@needs_landlock
def test_it_is_not_enough_where_a_sandbox_is_required(place: Field) -> None:  # noqa: F811
    """Nor for commands that run without asking. Otherwise it confines, and every status text says
    so.
    """
    sandbox = context_of(place, True).sandbox
    assert sandbox is not None
    assert (sandbox.absent, sandbox.partial) == ("", ABSENT)
    assert sandbox.unasked_absent == ABSENT
    assert sandbox.describe().startswith("Landlock only, which is weaker")
    assert state_of(sandbox) == "partial"
    sandbox.required = True
    assert (sandbox.absent, sandbox.partial) == (ABSENT, "")
    assert state_of(sandbox) == "none"
