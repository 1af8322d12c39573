"""Run a script of this package on data that nobody vouches for, in a process of its own.

The limit is the time that it computes, so that a busy machine does not change what can be read. The
script sets its own limits (`CPU_SECONDS` in its environment) and imports nothing of the package.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

WAIT_FACTOR = 6  # how much longer than it may compute a script is waited for


def run_isolated(
    script: str, arguments: Sequence[str], source: BinaryIO | bytes, seconds: int
) -> tuple[bytes, str]:
    """Return what a script has written, and why it failed, "" if it has not. Blocks."""
    command = [sys.executable, "-I", script, *arguments]
    given: dict[str, Any] = {"input": source} if isinstance(source, bytes) else {"stdin": source}
    path = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    env = {**path, "CPU_SECONDS": str(seconds)}
    late = f"it takes more than {seconds} s"
    try:
        done = subprocess.run(
            command, **given, capture_output=True, timeout=WAIT_FACTOR * seconds, env=env
        )
    except subprocess.TimeoutExpired as expired:
        return expired.stdout or b"", late
    if done.returncode == -signal.SIGXCPU:
        return done.stdout, late
    if not done.returncode:
        return done.stdout, ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return done.stdout, said[0] if said else f"it ended with {done.returncode}"
