"""Find and end the processes that a killed agent's commands have left running.

They are found by the name that each carries in its environment, next to the mark of its tree.
"""

import hashlib
import os
import signal
import time

from . import process_table
from .process import GRACE_CENTISECONDS, TREE_VARIABLE, Tree, send_signal

KILL_ROUNDS = 25  # of killing: what forks may have forked in between


def call_name(session: str, number: int, id: str) -> str:
    """Return the name of a call: its session, the number of the entry that came next when it began,
    and a digest of its id."""
    return f"{session}/{number}-{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:16]}"


def parts(name: str) -> tuple[str, int]:
    """Return the session and the number in a name."""
    session, _, rest = name.rpartition("/")
    number, _, _ = rest.partition("-")
    return session, int(number) if number.isdecimal() else 0


def names(session: str) -> set[str]:
    """Return the names of the calls of a session and its subagents that still run something."""
    found = set[str]()
    for pid in process_table.TABLE.numbers():
        found |= _names(process_table.TABLE.environment(pid))
    return {name for name in found if name.startswith(f"{session}/")}


def end(name: str) -> bool:
    """End all that runs of a call, blocking: ask, wait a moment, kill what is left.

    Returns whether there was any. A tree that this process belongs to is left alone.
    """
    tree = Tree(name, 0, None)
    pids = tree.members()
    if not pids or os.getpid() in pids:
        return False
    send_signal(pids, signal.SIGTERM)
    for _ in range(GRACE_CENTISECONDS):
        if not tree.stands():
            return True
        time.sleep(0.01)
    for _ in range(KILL_ROUNDS):
        if not (pids := tree.members()):
            break
        send_signal(pids, signal.SIGKILL)
        time.sleep(0.002)
    return True


def _names(environ: bytes) -> set[str]:
    begins = f"{TREE_VARIABLE}=".encode()
    values = (row[len(begins) :] for row in environ.split(b"\0") if row.startswith(begins))
    return {name for value in values for name in value.decode("ascii", "replace").split(":")}
