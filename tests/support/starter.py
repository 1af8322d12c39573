"""Quick starts of the command, which import nothing again.

Each worker has one process that has imported the command's libraries and modules, of which none
reads its environment while it is imported, and has made the schemas of the tools. To start the
command that process forks. The child takes over the arguments, environment, folder and standard
streams, and runs the program's `main`. It is a child of the worker, like any process that the
worker starts.

`can_start` says for which environments this is the same as a whole start. Tests that start
`COMMAND` themselves, in tmux, in a shell or by `subprocess`, have whole starts.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from ptyprocess import PtyProcess

PROGRAM = "ctxagent"
MODULE = f"{PROGRAM}.tests.support.starter"  # this one, from wherever the tests are run
LIBRARIES = (
    "anyio._backends._asyncio", "asyncio", "concurrent.futures", "difflib", "email", "git",
    "httpcore2", "httpx2", "importlib.readers", "logging", "markdown_it", "mcp.client.session",
    "pathspec", "prompt_toolkit.shortcuts", "prompt_toolkit.input.vt100",
    "prompt_toolkit.output.vt100", "pydantic.types", "pygments.lexers", "rich.console",
    "rich.markdown", "sqlite3", "tiktoken", "tomlkit", "tree_sitter", "tree_sitter_bash",
    "truststore", "xml.etree", "zipfile",
)  # fmt: skip
BASIC = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"]}  # read by the interpreter and at imports
# What is read later than that, besides the program's own variables.
LATER = (
    "HOME", "TMPDIR", "TERM", "COLORTERM", "EDITOR", "VISUAL", "TIKTOKEN_CACHE_DIR",
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
)  # fmt: skip
CLONE_PARENT = 0x8000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_LOCK = threading.Lock()  # held from a request to its answer


def can_start(env: Mapping[str, str]) -> bool:
    """Return whether nothing in this environment is read before the libraries are imported."""
    early = {
        name: value for name, value in env.items()
        if name not in LATER and not name.startswith(f"{PROGRAM.upper()}_")
    }  # fmt: skip
    return early == BASIC and sys.platform == "linux" and platform.machine() in SYS_CLONE


def start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int], *,
    terminal: bool = False,
) -> int:  # fmt: skip
    """Start the command with these descriptors as standard streams and return its process id.

    With `terminal` they are the terminal of a session of its own.
    """
    asked = {"command": list(command), "cwd": str(cwd), "env": dict(env), "terminal": terminal}
    message = json.dumps(asked, ensure_ascii=False).encode(errors="surrogateescape")
    with _LOCK:
        socket.send_fds(_channel(), [message], list(streams))
        return int(_channel().recv(100))


def run(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    patience: float,
    stdin: str | int | None,
) -> "subprocess.CompletedProcess[str]":
    """Do what `subprocess.run` does, with the output captured; `stdin` is a text, a descriptor, or
    None for nothing to read from."""
    out, err = os.pipe(), os.pipe()
    if isinstance(stdin, str):
        source, sink = os.pipe()
    else:
        source = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        sink = None
    pid = start(command, cwd, env, [source, out[1], err[1]])
    for each in (source, out[1], err[1]):
        os.close(each)
    bound = threading.Timer(patience, os.kill, (pid, signal.SIGKILL))
    bound.start()
    try:
        with open(out[0]) as output, open(err[0]) as errors, ThreadPoolExecutor(2) as beside:  # noqa: PTH123
            told = beside.submit(errors.read)
            if sink is not None:
                beside.submit(_write, sink, str(stdin))
            said = output.read()
            _, status = os.waitpid(pid, 0)
    finally:
        bound.cancel()
    code = os.waitstatus_to_exitcode(status)
    return subprocess.CompletedProcess(list(command), code, said, told.result())


def _write(number: int, text: str) -> None:
    with suppress(BrokenPipeError), open(number, "w") as file:
        file.write(text)


def in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int]
) -> PtyProcess:
    """Do what `PtyProcess.spawn` does, in a new terminal of `size` rows and columns."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, size)
    pid = start(command, cwd, env, [theirs] * 3, terminal=True)
    os.close(theirs)
    return PtyProcess(pid, ours)


def program_in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int]
) -> PtyProcess:
    """Start any program in a new terminal, without a fork of this process, which has threads.

    A session's first process gets the first terminal that it opens as its own.
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
    """Start the process that forks, once, and return the socket to it."""
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
        """End it without waiting; a forked child leaves its parent's alone."""
        if os.getpid() == owner:
            process.kill()

    atexit.register(end)
    return ours


def _serve(number: int) -> None:
    """Fork for each request and answer with the child's process id; the child runs the command."""
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
    """End the child as an interpreter does that exits, but keep its memory as it is.

    To free all modules takes twenty times as long as the fork: it copies each page that the child
    shares with its parent.
    """
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the interpreter says so and has a code for it
            raise end from None
    if not isinstance(end.code, int | None):
        raise end  # the interpreter prints it
    os._exit(end.code or 0)


def _import_all() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    for part in (f"{PROGRAM}.agent", f"{PROGRAM}.tools"):
        package = importlib.import_module(part)
        for module in pkgutil.walk_packages(package.__path__, f"{part}."):
            importlib.import_module(module.name)
    from ctxagent.agent.assembly import base_tools
    from ctxagent.agent.models.messages import lazy_sdk

    lazy_sdk.load()
    for tool in base_tools():
        tool.schema()  # kept for all tools with these parameters
    gc.freeze()  # what is shared by all children is not looked through in each


def _fork_sibling() -> int:
    """Fork a child of this process's parent, who can then wait for it; return 0 in the child."""
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
    """Make this process what an interpreter is that has just begun."""
    if asked["terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for target, each in enumerate(streams):
        os.dup2(each, target)
    os.closerange(3, max(streams) + 1)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None  # the folder is looked for again
    sys.argv = asked["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        new = open(old.fileno(), mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
