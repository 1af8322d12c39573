"""Measure how long a session of one gigabyte takes to resume, and its memory, compared with 10 MB.

The log is a real history with masks and summaries, repeated. The real command sends "hi" in it,
headless, to the strict server of the tests. Measured are: the first start, without caches next to
the log; the next start; the start after a kill, with entries that the caches lack and an incomplete
last line; and opening the session alone, in a separate process. In a session of 200 MB, the first
commands are measured too, each without caches next to the log.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
from serving import environ

from ctxagent.agent.loop.resume import CACHE_NAME
from ctxagent.agent.session.entries import User
from ctxagent.agent.session.log import encode_line
from ctxagent.agent.session.search import SearchIndex
from ctxagent.agent.session.store import Project
from ctxagent.tests.support.server.loopback import Say, Server
from ctxagent.tests.support.sessions.longlog import history, lengthen

SIZES: dict[str, dict[str, Any]] = {
    "full": {"short": 10, "middle": 200, "long": 1 << 10},
    "quick": {"short": 2, "middle": 10, "long": 20},
    "tiny": {"short": 1, "middle": 1, "long": None},
}
AGAIN = ("with caches", "with caches and index", "after a kill")
OPEN = """
import sys, time
from pathlib import Path
from ctxagent.agent.loop.resume import resume_session
started = time.perf_counter()
log, standing, resumption = resume_session(Path(sys.argv[1]))
took = time.perf_counter() - started
resumption.save_at_close(log)
log.close()
told = Path("/proc/self/status").read_text().split()
print(took, int(told[told.index("VmHWM:") + 1]) / 1024)
"""


class Session:
    """One log of a given size in bytes, and the command that resumes it."""

    def __init__(self, folder: Path, url: str, size: int) -> None:
        folder.mkdir()
        self.cwd, self.env = folder / "project", environ(str(folder), url)
        self.cwd.mkdir()
        base = history(folder / "base")
        project = Project(Path(self.env["CTXAGENT_STATE_DIR"]), self.cwd)
        self.log = project.new_log()
        self.count = lengthen(base, self.log, size)
        self.index = SearchIndex(project.folder)

    def rows(self, *, again: bool) -> dict[str, dict[str, float]]:
        found = {"without caches": self.run_headless()}
        if not again:
            return found
        found["with caches"] = self.run_headless()
        self.index.catch_up()  # a session that grew to this size has a complete index
        found["with caches and index"] = self.run_headless()
        found["opened alone"] = self.opened()
        self.kill()
        found["opened alone, after a kill"] = self.opened()
        self.kill()
        found["after a kill"] = self.run_headless()
        kept = self.log.with_name(CACHE_NAME)
        found["the cache"] = {"MB": kept.stat().st_size / 1e6 if kept.exists() else 0.0}
        return found

    def run_headless(self) -> dict[str, float]:
        return self.measured("--resume", self.log.parent.name, "-p", "hi")

    def first_commands(self) -> dict[str, dict[str, float]]:
        """Measure each command without caches next to the log."""
        session = self.log.parent.name
        commands = (
            ("recover", "1"),
            ("recover", "PAY-4711"),
            ("doctor", session),
            ("--resume", session, "-p", "hi"),
        )
        rows = {}
        for command in commands:
            for folder in (self.log.parent, self.index.folder):
                drop_all_but(self.log, folder)
            rows[" ".join(command).replace(session, "SESSION")] = self.measured(*command)
        return rows

    def measured(self, *command: str) -> dict[str, float]:
        return measure.run_command([measure.COMMAND, *command], env=self.env, cwd=self.cwd)

    def opened(self) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, str(self.log)], check=True, capture_output=True, text=True
        )
        took, most = map(float, done.stdout.split())
        return {"wall_s": took, "peak_MB": most}

    def kill(self) -> None:
        """Leave the log as after a kill during a write."""
        with self.log.open("ab") as file:
            file.write(
                encode_line(User(seq=self.count + 10_000, content="go on")) + b'{"v": 1, "se'
            )
        self.count += 1


def drop_all_but(kept: Path, folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not kept.is_relative_to(path):
            shutil.rmtree(path)
        elif path.is_file() and path != kept:
            path.unlink()


def main(short: int, middle: int, long: int | None) -> Iterator[measure.Table]:
    """Sizes are in MB. Without a long session, only the first start of the short session is
    measured.
    """
    taken = []
    with tempfile.TemporaryDirectory() as folder, Server(lambda body: Say("Hello.")) as server:
        session = Session(Path(folder) / "first", server.url, middle << 20)
        yield measure.Table(f"first commands, {middle:,} MB", session.first_commands())
        for size in filter(None, (short, long)):
            session = Session(Path(folder) / f"{size}", server.url, size << 20)
            taken.append(session.rows(again=long is not None))
            yield measure.Table(f"a session of {size:,} MB, resumed", taken[-1])
    rows = {
        f"{what}: more": {key: taken[1][what][key] - value for key, value in figures.items()}
        for what, figures in taken[0].items()
        if what in AGAIN
    }
    requests = {"requests": {"rejected": float(len(server.rejected))}}
    yield measure.Table("resuming a long session", rows | requests)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
