"""Work done as another user, which only the root can have done.

A fresh interpreter with one thread imports what the work needs, as another user may not be able to
read the interpreter's own folders. It forks for each piece of work, and the child becomes that
user. The tests' own processes have threads, so they must not fork: a child would wait for ever for
a lock that another thread held.
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
LATE_IMPORTS = ("encodings.idna",)  # by the standard library, when they are needed
_LOCK = threading.Lock()  # held from a request to its answer


def as_other_user(user: int, work: Callable[..., Any], *given: Any) -> Any:
    """Return what a function of a module gives, called with `given` as the user of this number.

    Raises AssertionError with the traceback if it raises.
    """
    with _LOCK:
        _channel().send((user, dict(os.environ), work, given))
        is_done, result = _channel().recv()
    if not is_done:
        raise AssertionError(f"as user {user}: {result}")
    return result


@cache
def _channel() -> "Connection[Any, Any]":
    """Start the process that forks, once, and return the connection to it."""
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
    """Become a user, for good, and return whether the work was done, and its result or error."""
    try:
        os.environ.clear()
        os.environ.update(environ)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        return True, work(*given)
    except BaseException:  # all of it is for the parent to see
        return False, traceback.format_exc()
