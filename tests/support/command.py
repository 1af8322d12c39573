"""The real command, as a person or a script runs it, with a home of its own."""

import json
import os
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
AS_MODULE = (sys.executable, "-m", "ctxagent")  # which PYTHONPATH counts for
PATIENCE = 400.0  # seconds, a bound for what never ends; nothing is measured with it
SOON = 30.0  # the same for what was killed: shorter than anything here would run by itself


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
        """A small environment; `more` adds to it."""
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
        """Start the command; `options` are those of `subprocess.Popen`."""
        options = {"cwd": self.project, "stdin": subprocess.DEVNULL, "text": True, **options}
        env = self.environ() if env is None else env
        begin = starter.Popen if command == (COMMAND,) else subprocess.Popen
        return begin([*command, *arguments], env=env, **options)

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None,
        stdin: str | bytes | int | None = None, **options: Any,
    ) -> "subprocess.CompletedProcess[Any]":  # fmt: skip
        """Run the command to its end. `stdin` is a text or a descriptor; without it there is none
        to read from."""
        text = stdin if isinstance(stdin, str | bytes) else None
        source = subprocess.DEVNULL if stdin is None else stdin if text is None else PIPE
        options = {"stdin": source, "stdout": PIPE, "stderr": PIPE, **options}
        with self.start(*arguments, env=env, **options) as process:
            try:
                out, err = process.communicate(text, timeout=PATIENCE)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def logs(self) -> list[Path]:
        return sorted(self.state.glob("projects/*/sessions/*/log.jsonl"))

    def entries(self) -> list[dict[str, Any]]:
        """All entries of the only session."""
        (log,) = self.logs()
        return [json.loads(line) for line in log.read_text().splitlines()]


def running(words: str) -> list[int]:
    """The processes that have these words in their command line, by their numbers here."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if words.encode() in line.replace(b"\0", b" "):
            found.append(int(path.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs: neither gone, nor dead and waiting for somebody to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def gone(*pids: int) -> bool:
    """Whether these processes end: what was killed goes as soon as the machine has time for it."""
    return comes(lambda: not any(map(alive, pids)))


def comes(what: Callable[[], bool], seconds: float = SOON) -> bool:
    """Whether something comes to be so."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True
