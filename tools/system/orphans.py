"""Find and end the processes that a killed agent's commands have left running.

Each carries the name of its call in its environment, next to the mark of its process tree.
"""

import hashlib
import os
import signal
import time

from . import process_table
from .process import GRACE_CENTISECONDS, TREE_VARIABLE, Tree, send_signal

KILL_ROUNDS = 25  # rounds of SIGKILL, since processes may fork in between


def call_name(session: str, number: int, id: str) -> str:
    """Return the name of a call: its session, the number of the next log entry at its start, and a
    digest of its ID.
    """
    return f"{session}/{number}-{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:16]}"


def parts(name: str) -> tuple[str, int]:
    """Return the session and the number in a name."""
    session, _, rest = name.rpartition("/")
    number, _, _ = rest.partition("-")
    return session, int(number) if number.isdecimal() else 0


def names(session: str) -> set[str]:
    """Return the names of the calls of a session and its subagents that still have processes."""
    found = set[str]()
    for pid in process_table.TABLE.numbers():
        found |= _names(process_table.TABLE.environment(pid))
    return {name for name in found if name.startswith(f"{session}/")}


def end(name: str) -> bool:
    """End all processes of a call: send SIGTERM, wait a moment, send SIGKILL. Blocks.

    Returns True if there were any. A tree that includes this process is left alone.
    """
    tree = Tree(name, 0, None)
    pids = tree.members()
    if not pids or os.getpid() in pids:
        return False
    send_signal(pids, signal.SIGTERM)
    for _ in range(GRACE_CENTISECONDS):
        if not tree.is_alive():
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
