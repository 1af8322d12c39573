"""Kills: the real command at work, killed at a chosen or a random moment, and gone on with.

    with Chain(folder, seed=1) as chain:
        for aim in aims(chain.random, 10):
            chain.kill(aim)
        chain.end()
    assert chain.figures.faults() == []

Each run resumes the session that the one before was killed in, and is itself killed; so a start of
the command serves two ends. After each kill everything that was on disk is compared with what was
there before, and the next requests with what they must say; `Figures` counts what went wrong.
"""

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxagent.agent.session.entries import Note
from ctxagent.agent.session.log import Log

from .. import starter
from ..command import COMMAND, Place
from ..server.loopback import Body, Server, Step
from ..terminal.screen import Terminal
from .errands import Errands
from .inquest import Inquest

LONGEST = 200.0  # seconds that a run may take to come to where it is to be killed
WINDOW = 32_000
STEP = 0.002  # seconds between two looks at what is waited for
LONG = 1_200_000  # bytes of log, from which on a resume does not begin at its beginning
TORN = 0.2  # of the kills after which a torn line is put at the end of the log


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a run is killed: `within` so many seconds after the happening `on`, which is "start",
    "grown" (the log has one more line) or a line of the pipe; at one of the first `most` of them.
    `first` are the calls that the model begins with, `options` those of the command."""

    phase: str
    on: str
    within: float
    most: int = 1
    first: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    terminal: bool = False


def _set(*settings: str) -> tuple[str, ...]:
    return tuple(part for setting in settings for part in ("-c", setting))


AIMS = (
    Aim("opening", "start", 1.5),
    Aim("streaming", "asked turn", 0.1, most=3),
    Aim("tool running", "begun", 0.08, most=3, first=("effect", "effect")),
    Aim("result", "ended", 0.02, most=3, first=("effect", "effect", "effect")),
    Aim("appending", "grown", 0.004, most=9, first=("effect",)),
    Aim("masking", "told", 0.06, most=3, first=("large", "large", "large"),
        options=_set("microcompact.when=every-call", "microcompact.keep=0",
                     "microcompact.above=100", "truncate.at=1%")),
    Aim("offloading", "told", 0.03, most=2, first=("large", "large"),
        options=_set("demote.above=500")),
    Aim("summarising", "asked summary", 0.7, options=_set("compact.at=2%", "compact.keep_tokens=0",
                                                         "compact.prepare_at=off")),
    Aim("background summary", "asked summary", 0.2,
        options=_set("compact.prepare_at=2%", "compact.keep_tokens=0")),
    Aim("subagents", "asked agent", 0.1, most=4, first=("task", "task")),
    Aim("checkpoint", "grown", 0.12, most=3, options=_set("checkpoint.at=1%")),
    Aim("index", "asked turn", 0.15, most=3, first=("recall", "recall")),
    Aim("jobs", "asked turn", 0.1, most=3, first=("job", "effect")),
    Aim("anywhere", "start", 3.0),
    Aim("terminal", "begun", 0.08, first=("effect",), terminal=True),
)  # fmt: skip


def aims(chance: random.Random, count: int) -> Iterator[Aim]:
    """So many, each kind as often as the others."""
    for n in range(count):
        if n % len(AIMS) == 0:
            order = chance.sample(AIMS, len(AIMS))
        yield order[n % len(AIMS)]


class Victim:
    """A run of the command, headless or in a terminal. `fds` have something to read when it has
    something to show."""

    def __init__(
        self, place: Place, arguments: Sequence[str], env: dict[str, str], aim: Aim
    ) -> None:
        self.terminal: Terminal | None = None
        if aim.terminal:
            self.terminal = Terminal(*arguments, cwd=place.project, env=env)
            self.terminal.see("❯")
            self.terminal.type("go on\r")
            self.pid = self.terminal.child.pid
        else:
            whole = aim.on == "start"  # the imports too are what is killed
            with (place.root / "stderr").open("ab") as errors:
                self._process = (subprocess.Popen if whole else starter.Popen)(
                    [COMMAND, "-p", "go on", *arguments], cwd=place.project, env=env,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                )  # fmt: skip
            self.pid = self._process.pid
        self._handle = os.pidfd_open(self.pid)
        self.fds = [self._handle]
        if self.terminal is not None:
            self.fds.append(self.terminal.child.child_fd)

    def has_ended(self, ready: Sequence[int]) -> bool:
        """Whether it is over; `ready` are those of its `fds` that can be read."""
        if self.terminal is not None and self.terminal.child.child_fd in ready:
            with contextlib.suppress(AssertionError):  # its end is seen by the handle
                self.terminal._read()
        return self._handle in ready

    def kill(self) -> int:
        """SIGKILL, if it still runs; what it ended with."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        if self.terminal is None:
            return self._process.wait()
        self.terminal.child.wait()
        self.terminal.child.close()
        return self.terminal.child.exitstatus or -(self.terminal.child.signalstatus or 0)


class Chain:
    """One session, killed again and again. `disturbed` puts faults into the server's answers."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        disturbed: Callable[[Callable[[Body], Step]], Callable[[Body], Step]] | None = None,
    ) -> None:
        self.place = Place(folder)
        (folder / "tmp").mkdir()
        self.random = random.Random(seed)
        self.errands = Errands(self.place.project, seed)
        self.may_fail = disturbed is not None
        self.server = Server(disturbed(self.errands) if disturbed else self.errands, bound=True)
        self.inquest = Inquest(self.place, self.server)
        self.figures = self.inquest.figures
        self._heard = b""

    def __enter__(self) -> "Chain":
        git = ["git", "-c", "init.defaultBranch=main", "init", "-q"]
        subprocess.run(git, cwd=self.place.project, env=self.place.environ(), check=True)
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__(*exc)
        self.errands.close()
        for pid in self.left_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def env(self) -> dict[str, str]:
        return {**self.place.server(self.server.url), "TMPDIR": str(self.place.root / "tmp")}

    def kill(self, aim: Aim) -> None:
        """One run, killed where the aim says, if it comes to that; and all that is checked."""
        self.errands.first = list(aim.first)
        self._hear()
        asked, before = len(self.server.requests), self.inquest.log()
        arguments = ("--permission-mode", "bypass", "--context-window", str(WINDOW), *aim.options)
        resumed = ("--resume", before.parent.name) if before else ()
        victim = Victim(self.place, [*arguments, *resumed], self.env, aim)
        self.figures.counts["resumes"] += before is not None
        reached = self._until(victim, aim)
        if reached:
            delay = aim.within * self.random.random() ** 1.5
            self._wait(victim, time.monotonic() + delay)
        code = victim.kill()
        if code == -signal.SIGKILL:
            self.figures.kills[aim.phase] += 1
        else:
            self.figures.counts["ended"] += 1
        if code > 0 and not self.may_fail:
            said = victim.terminal.text() if victim.terminal else self.errors()
            self.figures.fault("broken", f"{aim.phase}: ended with {code}: {said[-600:]}")
        self.inquest.look(self.server.requests[asked:])
        if log := self.inquest.log():
            self._lengthen(log)
            self._tear(log)

    def _lengthen(self, path: Path) -> None:
        """Make a log long, once."""
        if path.stat().st_size < LONG:
            log = Log.open(path)
            for _ in range(12):
                log.append(Note(topic="phase", text="errands", data={"said": "x" * (LONG // 12)}))
            log.close()
            self.inquest.look([])

    def _tear(self, path: Path) -> None:
        """Now and then, leave what a kill in the middle of a write leaves."""
        whole = path.read_bytes()
        if whole.endswith(b"\n") and self.random.random() < TORN:
            last = whole[whole.rindex(b"\n", 0, -1) + 1 :]
            with path.open("ab") as file:
                file.write(last[: self.random.randrange(1, len(last))])

    def errors(self) -> str:
        path = self.place.root / "stderr"
        return path.read_text() if path.exists() else ""

    def _until(self, victim: Victim, aim: Aim) -> bool:
        """Wait for what the aim is on; False when the run ended before."""
        count = self.random.randint(1, aim.most)
        if aim.on == "start":
            return True
        if aim.on == "grown":
            begin = self.inquest.size()
            return self._wait(
                victim, time.monotonic() + LONGEST, lambda: self.inquest.lines(begin) >= count
            )
        seen = [0]

        def happened() -> bool:
            seen[0] += sum(line.startswith(aim.on) for line in self._hear())
            return seen[0] >= count

        return self._wait(victim, time.monotonic() + LONGEST, happened)

    def _wait(
        self, victim: Victim, until: float, happened: Callable[[], bool] | None = None
    ) -> bool:
        """Wait for something to happen, or until a moment; False when the run ended before."""
        watched = [*victim.fds, self.errands.pipe] if happened else victim.fds
        while (left := until - time.monotonic()) > 0:
            if happened and happened():
                return True
            ready, _, _ = select.select(watched, [], [], min(STEP, left))
            if victim.has_ended(ready):
                return happened is not None and happened()
        return True

    def _hear(self) -> list[str]:
        """What has happened since the last time."""
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self.errands.pipe, 65_536)
        *lines, self._heard = self._heard.split(b"\n")
        return [line.decode() for line in lines]

    # What comes in the end

    def end(self) -> None:
        """A last run that nobody kills, and what must hold after all."""
        self.errands.ending = True
        log, found = self.inquest.log(), self.figures
        assert log is not None
        asked = len(self.server.requests)
        done = self.place.run(
            "-p", "finish", "--resume", log.parent.name, "--output-format", "json",
            "--permission-mode", "bypass", "--context-window", str(WINDOW), env=self.env,
        )  # fmt: skip
        if done.returncode and not self.may_fail:
            found.fault("broken", f"the last run: {done.stdout[-300:]}{done.stderr[-300:]}")
        self.inquest.look(self.server.requests[asked:])
        calls = self.inquest.calls()
        if done.returncode == 0 and (said := json.loads(done.stdout)["calls"]) != calls:
            found.fault("broken", f"the result counts {said} calls, the logs {calls}")
        self.inquest.close(log, self.server.requests[asked:])
        if "Traceback" in (errors := self.errors()):
            found.fault("broken", errors[errors.index("Traceback") :][-1_000:])
        until = time.monotonic() + self.inquest.patience
        while (left := self.left_running()) and time.monotonic() < until:
            os.sched_yield()
        if left:
            found.fault("broken", f"{len(left)} processes are left running: {left}")

    def left_running(self) -> list[int]:
        """The processes that descend from a run of ours: they have its state folder in their
        environment."""
        mark = f"CTXAGENT_STATE_DIR={self.place.state}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
        return found
