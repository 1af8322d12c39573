"""Print how much memory the real command takes for an output of 100 MB, and to find it again.

Usage: .venv/bin/python benchmarks/whole_output.py [MB]

A scripted model runs a command that prints MB megabytes, and a session that goes on recalls a line
by its words and by its ref. Each row has the peak memory and the seconds of one process. The last
line has how many lines of the output are in the file.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).parent / "ctxagent"
LINE = "line {:09} of the output\n"


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    count = size * 1_000_000 // len(LINE.format(0))
    with tempfile.TemporaryDirectory() as root:
        session = Folder(Path(root))
        printing = f"seq -f 'line %09.0f of the output' 0 {count - 1}"
        session.play(f"a command prints {size} MB", "Bash", {"command": printing})
        words = LINE.format(count // 2).strip()
        session.play("Recall by words", "Recall", {"query": words}, "--continue")
        log = session.log
        ref = next(e["seq"] for e in map(json.loads, log.open()) if e["kind"] == "tool_result")
        given = {"ref": f"#{ref}", "offset": (count - 1) * len(LINE.format(0))}
        session.play("Recall by ref, at the end", "Recall", given, "--continue")
        session.run("sessions search", "sessions", "search", words)
        for format in ("md", "html", "json"):
            id = log.parent.name
            session.run(f"export as {format}", "sessions", "export", id, "--format", format)
        (file,) = (log.parent / "offloaded").iterdir()
        with file.open() as lines:
            right = sum(line == LINE.format(n) for n, line in enumerate(lines))
        print(f"{right:,} of {count:,} lines are in the file")


class Folder:
    """A project, a home and the sessions below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("project", "home"):
            (root / name).mkdir()

    @property
    def log(self) -> Path:
        (log,) = self.root.glob("state/projects/*/sessions/*/log.jsonl")
        return log

    def play(self, what: str, tool: str, given: dict[str, Any], *more: str) -> None:
        steps = [{"text": "", "tools": [{"name": tool, "input": given}]}, {"text": "Done."}]
        path = self.root / "steps.json"
        path.write_text(json.dumps({"steps": steps}))
        model = ("--model", f"scripted:{path}", "--permission-mode", "bypass")
        self.run(what, "-p", "go", *model, *more)

    def run(self, what: str, *arguments: str) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "CTXAGENT_STATE_DIR": str(self.root / "state"),
            "LANG": "C.UTF-8",
        }
        started = time.perf_counter()
        process = subprocess.Popen(
            [COMMAND, *arguments], cwd=self.root / "project", env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        peak = usage.ru_maxrss / 1024
        print(f"{what:<28}{peak:>6.0f} MB{seconds:>7.1f} s   exit {process.returncode}")


if __name__ == "__main__":
    main()
