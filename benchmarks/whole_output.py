"""Measure the memory of the real command for an output of 100 MB and for finding its lines again.

A scripted model runs a command that prints the output; the continued session recalls a line by its
text and by its ref. Each row has the peak memory and the seconds of one process. `missing` is the
number of output lines that are not in the file.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
from measure import Rows, Table

COMMAND = Path(sys.executable).parent / "ctxagent"
SIZES: dict[str, dict[str, Any]] = {
    "full": {"megabytes": 100},
    "quick": {"megabytes": 100},
    "tiny": {"megabytes": 5},
}
LINE = "line {:09} of the output\n"


def main(megabytes: int) -> Iterator[Table]:
    count = megabytes * 1_000_000 // len(LINE.format(0))
    with tempfile.TemporaryDirectory() as root:
        session = Folder(Path(root))
        printing = f"seq -f 'line %09.0f of the output' 0 {count - 1}"
        session.play("the command", "Bash", {"command": printing})
        words = LINE.format(count // 2).strip()
        session.play("Recall by words", "Recall", {"query": words}, "--continue")
        log = session.log
        entries = map(json.loads, log.read_text("utf-8").splitlines())
        ref = next(entry["seq"] for entry in entries if entry["kind"] == "tool_result")
        given = {"ref": f"#{ref}", "offset": (count - 1) * len(LINE.format(0))}
        session.play("Recall by ref", "Recall", given, "--continue")
        session.run("search", "sessions", "search", words)
        for format in ("md", "html", "json"):
            id = log.parent.name
            session.run(f"export {format}", "sessions", "export", id, "--format", format)
        (file,) = (log.parent / "offloaded").glob("*_Bash_*")
        with file.open() as lines:
            right = sum(line.strip() == LINE.format(n).strip() for n, line in enumerate(lines))
    session.rows["the command"]["missing"] = count - right
    yield Table("a whole output", session.rows)


class Folder:
    """A project, a home and the sessions in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows: Rows = {}
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
        assert process.returncode == 0, what
        self.rows[what] = {"peak_mb": usage.ru_maxrss / 1024, "seconds": seconds}


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
