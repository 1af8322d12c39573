"""Fast starts of the command, without repeated imports.

Each test worker has one process that has imported the command's libraries and modules, none of
which reads its environment during import, and has built the tools' schemas. To start the command,
this process forks. The child takes over the arguments, environment, folder and standard streams,
and runs the program's `main`. It is a child of the worker, like any process that the worker starts.

`can_start` decides for which environments this equals a full start. Tests that start `COMMAND` in
tmux, in a shell or with `subprocess` make full starts, which take ten times as long.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

from ptyprocess import PtyProcess

from ctxagent.agent.models.providers import variables

PROGRAM = "ctxagent"
MODULE = f"{PROGRAM}.tests.support.starter"  # this module, for any working directory
LIBRARIES = (
    "anyio._backends._asyncio", "asyncio", "concurrent.futures", "difflib", "email",
    "httpcore2", "httpx2", "importlib.readers", "logging", "markdown_it", "mcp.client.session",
    "prompt_toolkit.shortcuts", "prompt_toolkit.input.vt100",
    "prompt_toolkit.output.vt100", "pydantic.types", "pygments.lexers", "rich.console",
    "rich.markdown", "sqlite3", "tiktoken", "tomlkit", "tree_sitter", "tree_sitter_bash",
    "truststore", "xml.etree", "zipfile",
)  # fmt: skip
BASIC = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"]}  # read at start-up and during imports
# Variables that are read only later, in addition to the program's own.
LATER = {
    "HOME",
    "TMPDIR",
    "TERM",
    "COLORTERM",
    "EDITOR",
    "VISUAL",
    "TIKTOKEN_CACHE_DIR",
    *variables(),
}
CLONE_PARENT, CLONE_NEWNS, CLONE_NEWUSER = 0x8000, 0x20000, 0x10000000
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION = 0x20080522
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_LOCK = threading.Lock()  # held from a request to its answer


def can_start(env: Mapping[str, str]) -> bool:
    """Return True if no variable of this environment is read before the libraries are imported."""
    early = {
        name: value for name, value in env.items()
        if name not in LATER and not name.startswith(f"{PROGRAM.upper()}_")
    }  # fmt: skip
    return early == BASIC and sys.platform == "linux" and platform.machine() in SYS_CLONE


def start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int], *,
    session: bool = False, terminal: bool = False, inside: int | None = None,
) -> int:  # fmt: skip
    """Start the command with these descriptors as standard streams; return its process ID.

    With `session`, it leads a new session. With `terminal`, the streams are its terminal. `inside`
    is the ID of a process whose user and mount namespaces the command shares.
    """
    asked = {
        "command": list(command), "cwd": str(cwd), "env": dict(env),
        "session": session, "terminal": terminal, "inside": inside,
    }  # fmt: skip
    message = json.dumps(asked, ensure_ascii=False).encode(errors="surrogateescape")
    with _LOCK:
        socket.send_fds(_channel(), [message], list(streams))
        return int(_channel().recv(100))


class Popen(subprocess.Popen[Any]):
    """A `subprocess.Popen` of the command, with a fast start if `can_start` allows it."""

    def __init__(self, *arguments: Any, inside: int | None = None, **options: Any) -> None:
        self._inside = inside  # as for `start`
        super().__init__(*arguments, **options)

    def _execute_child(self, *arguments: Any) -> None:
        given = signature(super()._execute_child).bind(*arguments).arguments
        if not can_start(given["env"]):
            assert self._inside is None, "only a quick start enters namespaces"
            super()._execute_child(*arguments)
            return
        inside = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if each == -1 else each for number, each in enumerate(inside)]
        self.pid = start(
            given["args"], given["cwd"], given["env"], streams,
            session=given["start_new_session"], inside=self._inside,
        )  # fmt: skip
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))


def in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int]
) -> PtyProcess:
    """Start the command in a new terminal of `size` rows and columns, like `PtyProcess.spawn`."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, size)
    pid = start(command, cwd, env, [theirs] * 3, terminal=True)
    os.close(theirs)
    return PtyProcess(pid, ours)


def program_in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int]
) -> PtyProcess:
    """Start any program in a new terminal, without forking this process, which has threads.

    The first terminal that a session leader opens becomes its controlling terminal.
    """
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, size)
    shell = ("/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", str(cwd))
    pid = os.posix_spawn(
        shell[0],
        [*shell, *command],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
    )
    os.close(theirs)
    return PtyProcess(pid, ours)


@cache
def _channel() -> socket.socket:
    """Start the forking process once; return the socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {MODULE} import _serve; _serve({theirs.fileno()})"],
        env=BASIC,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    owner = os.getpid()

    def end() -> None:
        """Kill the process without waiting; a forked child must not kill its parent's."""
        if os.getpid() == owner:
            process.kill()

    atexit.register(end)
    return ours


def _serve(number: int) -> None:
    """Fork for each request and answer with the child's process ID; the child runs the command."""
    _import_all()
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
    asked = json.loads(message.decode(errors="surrogateescape"))
    _take_over(asked, streams)
    from ctxagent.agent.cli.main import main

    try:
        main()
    except SystemExit as end:
        _leave(end)


def _leave(end: SystemExit) -> None:
    """End the child as an exiting interpreter does, but without freeing its memory.

    Freeing all modules takes twenty times as long as the fork, because it copies every page that
    the child shares with its parent.
    """
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # let the interpreter report it with its exit code
            raise end from None
    if not isinstance(end.code, int | None):
        raise end  # the interpreter prints it
    os._exit(end.code or 0)


def _enter(process: int) -> None:
    """Join the user and mount namespaces of another process, without capabilities."""
    library = ctypes.CDLL(None, use_errno=True)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    namespaces = os.pidfd_open(process)
    for failed in (
        library.setns(namespaces, CLONE_NEWUSER | CLONE_NEWNS),
        library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        library.capset(header, none),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(namespaces)


def _import_all() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    for part in (f"{PROGRAM}.agent", f"{PROGRAM}.tools"):
        package = importlib.import_module(part)
        for module in pkgutil.walk_packages(package.__path__, f"{part}."):
            importlib.import_module(module.name)
    from ctxagent.agent.assembly import base_tools
    from ctxagent.agent.models.messages import sdk_transport

    sdk_transport.load()
    for tool in base_tools():
        tool.schema()  # cached by parameter class
    gc.freeze()  # keeps children from scanning shared objects


def _fork_sibling() -> int:
    """Fork a child of this process's parent, so that the parent can wait for it; return 0 in the
    child.
    """
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
    """Give this process the state of a newly started interpreter."""
    if asked["inside"] is not None:
        _enter(asked["inside"])
    if asked["session"] or asked["terminal"]:
        os.setsid()
    if asked["terminal"]:
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for target, each in enumerate(streams):
        os.dup2(each, target)
    os.closerange(3, max(streams) + 1)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None  # determined again when needed
    sys.argv = asked["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        new = open(old.fileno(), mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        new.reconfigure(line_buffering=new.isatty() or name == "stderr")
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
