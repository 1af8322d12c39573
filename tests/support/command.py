"""The real command, as a person or a script runs it, with a home of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).parent / "ctxagent")


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

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command to its end. Without `stdin` there is none to read from."""
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.project,
            env=env or self.environ(),
            text=True,
            capture_output=True,
            timeout=100,
            **({"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}),
        )

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
