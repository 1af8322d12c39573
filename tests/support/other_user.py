"""Run functions as another user; this requires root.

A new single-threaded interpreter imports what the functions need, because another user may be
unable to read the interpreter's folders. It forks for each call, and the child changes to that
user. The test processes themselves have threads and must not fork: a child could deadlock on a lock
that another thread held.
"""

import atexit
import importlib
import os
import pkgutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection, Pipe
from typing import Any

MODULE = "ctxagent.tests.support.other_user"
PACKAGES = ("ctxagent.agent.permissions", "ctxagent.agent.security", "ctxagent.tools")
LATE_IMPORTS = ("encodings.idna",)  # modules that the standard library imports on demand
_LOCK = threading.Lock()  # held from a request to its answer


def as_other_user(user: int, work: Callable[..., Any], *given: Any) -> Any:
    """Return the result of a module's function called with `given` as the user with this ID. Raises
    AssertionError with the traceback if it raises.
    """
    with _LOCK:
        _channel().send((user, dict(os.environ), work, given))
        is_done, result = _channel().recv()
    if not is_done:
        raise AssertionError(f"as user {user}: {result}")
    return result


@cache
def _channel() -> "Connection[Any, Any]":
    """Start the forking process once; return the connection to it."""
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {MODULE} import serve; serve({theirs.fileno()})"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    atexit.register(process.kill)
    return ours


def serve(number: int) -> None:
    """Fork for each request; the child answers it."""
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    channel: Connection[Any, Any] = Connection(number)
    while True:
        try:
            user, environ, work, given = channel.recv()  # imports the module of the function
        except EOFError:
            return
        child = os.fork()
        if not child:
            channel.send(_done_as(user, environ, work, given))
            os._exit(0)
        if status := os.waitpid(child, 0)[1]:
            channel.send((False, f"it ended with status {status}"))


def _done_as(
    user: int, environ: dict[str, str], work: Callable[..., Any], given: tuple[Any, ...]
) -> tuple[bool, Any]:
    """Change to a user permanently; return True and the result of the work, or False and the
    traceback.
    """
    try:
        os.environ.clear()
        os.environ.update(environ)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        return True, work(*given)
    except BaseException:  # the parent reports every error
        return False, traceback.format_exc()
