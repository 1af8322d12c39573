"""Sockets of other programs, and system calls that lead out of a sandbox. Each attempt is made
inside and outside; outside it must succeed, or it proves nothing.
"""

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path

import pytest

from ctxagent.agent.security import landlock, seccomp
from ctxagent.agent.security.bubblewrap import find_bubblewrap
from ctxagent.tools.base import Context
from ctxagent.tools.bash import BashParams, BashTool

from ...support.machine import needs_bwrap
from ..test_sandbox import OUT, WHO, Field, as_user, place, texts_of  # noqa: F401

_KNOWN = seccomp._MACHINES.get(os.uname().machine)
needs_filter = pytest.mark.skipif(not _KNOWN, reason="there is no filter for this machine")
CALLS = {name: str(number) for name, number in _KNOWN.calls.items()} if _KNOWN else {}

CONNECT = "perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => shift)' "
NEW_USER = 0x1000_0000

# Perl programs that exit with 0 if their attempt succeeded.
SYSCALLS = {
    "a key is left for others": (
        "($t, $d, $p) = qw(user box x); syscall {add_key}, $t, $d, $p, 1, -3"
    ),
    "the keys of the session": "syscall {keyctl}, 0, -3, 1",
    "another process is traced": (
        "$p = fork; sleep 9 unless $p; $r = syscall {ptrace}, 16, $p, 0, 0; kill 9, $p; $r"
    ),
    "another's memory is read": (
        "$p = fork; sleep 9 unless $p; $b = 'x' x 8; $i = pack 'PQ', $b, 8; "
        "$r = syscall {process_vm_readv}, $p, $i, 1, $i, 1, 0; kill 9, $p; $r"
    ),
    "io_uring": '$b = "\\0" x 120; syscall {io_uring_setup}, 1, $b',
    "bpf": '$b = pack "L4x112", 2, 4, 4, 1; syscall {bpf}, 0, $b, 128',
    "a performance counter": (
        '$b = pack "LLQx96", 1, 112, 0; vec($b, 40 * 8 + 5, 1) = 1; '
        "syscall {perf_event_open}, $b, 0, -1, -1, 0"
    ),
    "userfaultfd": "syscall {userfaultfd}, 1",
    "a user namespace": f"syscall {{unshare}}, {NEW_USER}",
    "a child in a user namespace": (
        f"$r = syscall {{clone}}, {NEW_USER | 17}, 0, 0, 0, 0; exit 0 if !$r; $r"
    ),
    "a child in one, by the newer call": (
        f'$b = pack "Q11", {NEW_USER}, 0, 0, 0, 17; $r = syscall {{clone3}}, $b, 88; '
        "exit 0 if !$r; $r"
    ),
    "a file that runs as its owner": 'open F, ">f1"; (chmod 04755, "f1") - 1',
    "one made so": 'sysopen(F, "f2", 0101, 04755) ? 0 : -1',
    "one made so, by the newer call": (
        '$n = "f3"; $h = pack "QQQ", 0101, 04755, 0; syscall {openat2}, -100, $n, $h, 24'
    ),
    "one changed by the newer call": (
        'open F, ">f4"; $n = "f4"; syscall {fchmodat2}, -100, $n, 04755, 0'
    ),
    "a node made so": '$n = "f5"; syscall {mknodat}, -100, $n, 0104755, 0',
    "a socket of a family nobody needs": "socket(S, 17, 3, 0) ? 0 : -1",
}


def attempt(program: str) -> str:
    filled = program.format(**CALLS)
    body, _, result = filled.rpartition(";")
    return f"perl -e '{body}; $! = 0; exit !(({result}) >= 0)' && echo {OUT}"


def outside(place: Field, command: str) -> str:  # noqa: F811
    """The output of the command without a sandbox."""
    context = Context(place.cwd, env=place.environ)
    return asyncio.run(BashTool().run(BashParams(command=command), context)).text


@needs_bwrap
@needs_filter
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", SYSCALLS)
def test_calls_that_lead_out(place: Field, who: str, name: str) -> None:  # noqa: F811
    command = attempt(SYSCALLS[name])
    told = as_user(who, place.root, texts_of, place, command)
    assert OUT not in told[0]
    told = as_user(who, place.root, outside, place, command)
    if OUT not in told:
        pytest.skip(f"not even outside: {name}: {told}")


@contextmanager
def listening(path: str, cwd: Path) -> Iterator[None]:
    """Another program's server, bound to this name in this folder."""
    with socket.socket(socket.AF_UNIX) as server:
        with chdir(cwd):
            server.bind(path)
        server.listen()
        yield


@needs_bwrap
@needs_filter
@pytest.mark.parametrize("who", WHO)
def test_foreign_sockets_are_unreachable(place: Field, who: str) -> None:  # noqa: F811
    """Bound by a relative name, hard-linked, renamed and abstract: the kernel's list does not show
    where they are.
    """
    folder = place.root / "outside"
    abstract = f"box-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        stack.enter_context(listening("relative", folder))
        for name in ("first", "before"):
            stack.enter_context(listening(str(folder / name), folder))
        stack.enter_context(listening(f"\0{abstract}", folder))
        (folder / "linked").hardlink_to(folder / "first")
        (folder / "before").rename(folder / "renamed")
        reach = [
            *(f"{CONNECT}{folder}/{name}" for name in ("relative", "linked", "renamed")),
            CONNECT.replace("shift", f"qq(\\0{abstract})"),
        ]
        reach = [f"{command} && echo {OUT}" for command in reach]
        place.network = False
        told = as_user(who, place.root, texts_of, place, *reach)
        assert [text for text in told if OUT in text] == []
        told = [as_user(who, place.root, outside, place, command) for command in reach]
        assert told == [OUT] * len(reach)


@needs_bwrap
@pytest.mark.skipif(landlock.version() < 6, reason="this kernel's Landlock knows no sockets")
@pytest.mark.parametrize("who", WHO)
def test_an_abstract_socket_with_the_network_on(place: Field, who: str) -> None:  # noqa: F811
    name = f"box-{secrets.token_hex(4)}"
    reach = CONNECT.replace("shift", f"qq(\\0{name})") + f" && echo {OUT}"
    with listening(f"\0{name}", place.root):
        assert OUT not in as_user(who, place.root, texts_of, place, reach)[0]
        assert as_user(who, place.root, outside, place, reach) == OUT


def codes_of_namespaces() -> list[int]:
    """The exit codes of creating a user namespace in bubblewrap, and in bubblewrap without its
    protection; none if bubblewrap cannot start like this.
    """
    command = find_bubblewrap("/", network=True).command
    other = [word for word in command if word != "--disable-userns"]
    if len(other) == len(command):
        return []
    attempt = ["--", "unshare", "--user", "true"]
    return [subprocess.run([*words, *attempt]).returncode for words in (command, other)]


@needs_bwrap
@pytest.mark.skipif(os.geteuid() != 0, reason="the root alone can be another user")
def test_user_namespaces_without_the_filter(place: Field) -> None:  # noqa: F811
    """For an ordinary user bubblewrap itself prevents them, if it can (from 0.8 on)."""
    codes = as_user("a plain user", place.root, codes_of_namespaces)
    if not codes:
        pytest.skip("this bubblewrap cannot")
    assert codes[0] != 0
    assert codes[1] == 0


@needs_bwrap
@needs_filter
def test_a_pair_of_sockets_stays(place: Field) -> None:  # noqa: F811
    """Programs use socket pairs to talk to their children, also without the network."""
    place.network = False
    pair = "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) and print q(pair)'"
    assert place.run(pair)[0].text == "pair"
