"""A session of a gigabyte goes on: how long that takes, and how much memory, against one of 10 MB.

The log is a real history with masks and summaries, written over and over. The real command says
"hi" in it, headless, to the strict server of the tests. Measured are: the first time, when nothing
is kept beside the log; the next time; after a kill, which leaves the log longer than what is kept
says and a torn line at its end; and the opening of the session alone, in a process of its own.
Exit code 1 when a request is refused, or when going on with the long log takes a second more than
with the short one, or 200 MB more.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import measure
from serving import environ

from ctxagent.agent.record.entries import User
from ctxagent.agent.record.index import Index
from ctxagent.agent.record.log import line_of
from ctxagent.agent.record.sessions import Project
from ctxagent.agent.resumption import NAME
from ctxagent.tests.support.longlog import history, lengthen
from ctxagent.tests.support.server import Say, Server

SIZES = {"10 MB": 10 << 20, "1 GB": 1 << 30}
SECONDS, MEGABYTES = 1.0, 200.0  # that the long one may take more
OPEN = """
import sys, time
from pathlib import Path
from ctxagent.agent.resumption import go_on
started = time.perf_counter()
log, standing, resumption = go_on(Path(sys.argv[1]))
took = time.perf_counter() - started
resumption.leave(log)
log.close()
told = Path("/proc/self/status").read_text().split()
print(took, int(told[told.index("VmHWM:") + 1]) / 1024)
"""


class Session:
    """One log of so many bytes, and the command that goes on with it."""

    def __init__(self, folder: Path, url: str, size: int) -> None:
        folder.mkdir()
        self.cwd, self.env = folder / "project", environ(str(folder), url)
        self.cwd.mkdir()
        base = history(folder / "base")
        project = Project(Path(self.env["CTXAGENT_STATE_DIR"]), self.cwd)
        self.log = project.new()
        self.count = lengthen(base, self.log, size)
        self.index = Index(project.folder)

    def rows(self) -> dict[str, dict[str, float]]:
        found = {"nothing kept": self.says()}
        found["the next time"] = self.says()
        self.index.catch_up()  # for what follows, as it is where a session has grown to this
        found["again, all of it indexed"] = self.says()
        found["opened alone"] = self.opened()
        self.kill()
        found["opened alone, after a kill"] = self.opened()
        self.kill()
        found["after a kill"] = self.says()
        kept = self.log.with_name(NAME)
        found["what is kept"] = {"MB": kept.stat().st_size / 1e6 if kept.exists() else 0.0}
        return found

    def says(self) -> dict[str, float]:
        return _used(
            [measure.COMMAND, "--resume", self.log.parent.name, "-p", "hi"], self.env, self.cwd
        )

    def opened(self) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, str(self.log)], check=True, capture_output=True, text=True
        )
        took, most = map(float, done.stdout.split())
        return {"wall_s": took, "peak_MB": most}

    def kill(self) -> None:
        """Leave the log as one does who is killed while it writes."""
        with self.log.open("ab") as file:
            file.write(line_of(User(seq=self.count + 10_000, content="go on")) + b'{"v": 1, "se')
        self.count += 1


def _used(command: Sequence[str], env: dict[str, str], cwd: Path) -> dict[str, float]:
    """Seconds and the most memory of a command."""
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return {
        "wall_s": time.perf_counter() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_MB": usage.ru_maxrss / 1024,
    }


def main() -> int:
    rows: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, Server(lambda body: Say("Hello.")) as server:
        for name, size in SIZES.items():
            rows[name] = Session(Path(folder) / name, server.url, size).rows()
        rejected = len(server.rejected)
    flat = {f"{name}: {what}": row for name, of in rows.items() for what, row in of.items()}
    measure.report("a session goes on", flat)
    print(json.dumps({"rejected": rejected}))
    short, long = rows.values()
    slow = [
        what
        for what in ("the next time", "again, all of it indexed", "after a kill")
        if long[what]["wall_s"] - short[what]["wall_s"] > SECONDS
        or long[what]["peak_MB"] - short[what]["peak_MB"] > MEGABYTES
    ]
    return 1 if slow or rejected else 0


if __name__ == "__main__":
    sys.exit(main())
