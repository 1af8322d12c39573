"""Run the real command, as a user or a script does, in its own home."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from . import starter

COMMAND = str(Path(sys.executable).parent / "ctxagent")
AS_MODULE = (sys.executable, "-m", "ctxagent")  # this form reads PYTHONPATH
PATIENCE = 400.0  # timeout in seconds for hanging processes, not a measurement
SOON = 30.0  # timeout in seconds for killed processes, which would all run longer than this


@dataclass
class Place:
    """A project folder, a home and a state directory below `root`."""

    root: Path

    def __post_init__(self) -> None:
        self.project.mkdir(parents=True, exist_ok=True)
        (self.root / "home").mkdir(exist_ok=True)

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def state(self) -> Path:
        return self.root / "state"

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return a minimal environment; `more` adds variables."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "CTXAGENT_STATE_DIR": str(self.state),
            "LANG": "C.UTF-8",
            **(more or {}),
        }

    def server(self, url: str) -> dict[str, str]:
        return self.environ({"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test-key-1"})

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None,
        command: Sequence[str] = (COMMAND,), **options: Any,
    ) -> "subprocess.Popen[Any]":  # fmt: skip
        """Start the command; `options` are passed to `subprocess.Popen`."""
        options = {"cwd": self.project, "stdin": subprocess.DEVNULL, "text": True, **options}
        env = self.environ() if env is None else env
        begin = starter.Popen if command == (COMMAND,) else subprocess.Popen
        return begin([*command, *arguments], env=env, **options)

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None,
        stdin: str | bytes | int | None = None, patience: float = PATIENCE, **options: Any,
    ) -> "subprocess.CompletedProcess[Any]":  # fmt: skip
        """Run the command to its end, at most `patience` seconds. `stdin` is a text or a
        descriptor; the default is empty input.
        """
        text = stdin if isinstance(stdin, str | bytes) else None
        source = subprocess.DEVNULL if stdin is None else stdin if text is None else PIPE
        options = {"stdin": source, "stdout": PIPE, "stderr": PIPE, **options}
        with self.start(*arguments, env=env, **options) as process:
            try:
                out, err = process.communicate(text, timeout=patience)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def logs(self) -> list[Path]:
        return sorted(self.state.glob("projects/*/sessions/*/log.jsonl"))

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries of the only session."""
        (log,) = self.logs()
        return [json.loads(line) for line in log.read_text().splitlines()]


def running(words: str) -> list[int]:
    """Return the IDs of processes whose command line contains `words`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if words.encode() in line.replace(b"\0", b" "):
            found.append(int(path.parent.name))
    return found


def end(words: str) -> None:
    """End what a failed test left behind, so that the next one does not find it."""
    for pid in running(words):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Return True if a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def gone(*pids: int) -> bool:
    """Wait for the end of processes; return False on timeout."""
    return comes(lambda: not any(map(alive, pids)))


def comes(what: Callable[[], bool], seconds: float = SOON) -> bool:
    """Wait until `what` returns True; return False on timeout."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True
