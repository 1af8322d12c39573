"""Starts of the command that need not import its libraries again.

A process of each worker imports the libraries that the command uses, and none of the program. For
a start it forks; the child takes over the arguments, the environment, the folder and the standard
streams, and runs `main` of the program, whose modules it imports anew. It is a child of the worker,
as any process that the worker starts.

`starts` says which starts may be made so. Those of tests that start `COMMAND` in another way, under
`env`, in tmux or in a shell, are whole.
"""

import atexit
import ctypes
import fcntl
import importlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from ptyprocess import PtyProcess

PROGRAM = "ctxagent"
LIBRARIES = (
    "asyncio", "concurrent.futures", "difflib", "email", "git", "httpx2", "logging", "markdown_it",
    "pathspec", "prompt_toolkit.shortcuts", "prompt_toolkit.input.vt100",
    "prompt_toolkit.output.vt100", "pydantic.types", "pygments.lexers", "rich.console",
    "rich.markdown", "sqlite3", "tiktoken", "tomlkit", "tree_sitter", "tree_sitter_bash",
    "xml.etree", "zipfile",
)  # fmt: skip
BASIC = {"LANG": "C.UTF-8"}  # what the interpreter reads when it begins, the same in each start
KNOWN = ("HOME", "TERM", "COLORTERM", "EDITOR", "VISUAL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
CLONE_PARENT = 0x8000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}


def starts(env: Mapping[str, str]) -> bool:
    """Whether a start in this environment is the same with the libraries imported before: no
    variable is there that the interpreter or a library would read at its import."""
    others = {
        name for name in env
        if name not in KNOWN and not name.startswith(f"{PROGRAM.upper()}_")
    }  # fmt: skip
    same = {**BASIC, "PATH": os.environ["PATH"]}
    return others == set(same) and all(env[n] == same[n] for n in same) and _can_fork()


def start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int], *,
    terminal: bool = False,
) -> int:  # fmt: skip
    """Start the command with these descriptors as standard streams, with `terminal` in a session of
    its own whose terminal they are. Return the process's number."""
    asked = {"command": list(command), "cwd": str(cwd), "env": dict(env), "terminal": terminal}
    channel = _channel()
    socket.send_fds(channel, [json.dumps(asked).encode()], list(streams))
    return int(channel.recv(100))


def run(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], patience: float
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` with the output captured, and nothing to read from."""
    out, err, null = os.pipe(), os.pipe(), os.open(os.devnull, os.O_RDONLY)
    pid = start(command, cwd, env, [null, out[1], err[1]])
    for each in (null, out[1], err[1]):
        os.close(each)
    bound = threading.Timer(patience, os.kill, (pid, signal.SIGKILL))
    bound.start()
    with open(out[0]) as output, open(err[0]) as errors, ThreadPoolExecutor(1) as beside:  # noqa: PTH123
        told = beside.submit(errors.read)
        said = output.read()
        _, status = os.waitpid(pid, 0)
    bound.cancel()
    code = os.waitstatus_to_exitcode(status)
    return subprocess.CompletedProcess(list(command), code, said, told.result())


def in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int]
) -> PtyProcess:
    """As `PtyProcess.spawn`, in a new terminal of `size` rows and columns."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, size)
    pid = start(command, cwd, env, [theirs] * 3, terminal=True)
    os.close(theirs)
    return PtyProcess(pid, ours)


def _can_fork() -> bool:
    return sys.platform == "linux" and platform.machine() in SYS_CLONE


@cache
def _channel() -> socket.socket:
    """The process that forks, started when it is first needed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import _serve; _serve({theirs.fileno()})"],
        env={**BASIC, "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(number: int) -> None:
    """Fork for each request, and answer with the number of the child, which goes on from here."""
    _import_libraries()
    with socket.socket(fileno=number) as channel:
        while True:
            message, streams, _, _ = socket.recv_fds(channel, 1 << 20, 3)
            if not message:
                return
            pid = _fork_sibling()
            if not pid:
                break
            for each in streams:
                os.close(each)
            channel.send(str(pid).encode())
    asked = json.loads(message)
    _take_over(asked, streams)
    from ctxagent.agent.cli.main import main

    main()


def _import_libraries() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    from ctxagent.agent.models import lazy_sdk

    lazy_sdk.load()
    for name in [name for name in sys.modules if name.partition(".")[0] == PROGRAM]:
        del sys.modules[name]


def _fork_sibling() -> int:
    """Fork; the child is one of this process's own parent, who can wait for it. 0 in the child."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    flags = CLONE_PARENT | signal.SIGCHLD
    pid = ctypes.PyDLL(None).syscall(SYS_CLONE[platform.machine()], flags, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return int(pid)


def _take_over(asked: dict, streams: Sequence[int]) -> None:
    """Be what an interpreter is that has just begun."""
    if asked["terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for target, each in enumerate(streams):
        os.dup2(each, target)
    os.closerange(3, max(streams) + 1)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = asked["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        new = open(old.fileno(), mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
