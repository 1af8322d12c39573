"""Kill tests: the real command is killed during its work, at a chosen or a random moment, and
resumed.

    with Chain(folder, seed=1) as chain:
        for aim in aims(chain.random, 10):
            chain.kill(aim)
        chain.end()
    assert chain.figures.faults() == []

Each run resumes the session in which the previous run was killed and is killed itself, so one start
of the command tests both. After each kill, everything on disk is compared with its earlier state,
and the next requests with their expected content; `Figures` counts the violations.
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

LONGEST = 200.0  # timeout in seconds until the moment of the kill
WINDOW = 32_000
STEP = 0.002  # seconds between polls
LONG = 1_200_000  # bytes of log above which a resume does not read from the beginning
TORN = 0.2  # probability of adding an incomplete line after a kill


@dataclass(frozen=True, slots=True)
class Aim:
    """The moment of a kill: at most `within` seconds after the event `on`, which is "start",
    "grown" (the log has one more line) or a line of the pipe; one of the first `most` events is
    chosen. `first` are the first calls of the model, `options` those of the command.
    """

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
        options=_set("clear.when=every-call", "clear.keep=0",
                     "clear.above=100", "truncate.at=1%")),
    Aim("offloading", "told", 0.03, most=2, first=("large", "large"),
        options=_set("move.above=500")),
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
    """Yield `count` aims, with all kinds equally often."""
    for n in range(count):
        if n % len(AIMS) == 0:
            order = chance.sample(AIMS, len(AIMS))
        yield order[n % len(AIMS)]


class Victim:
    """A run of the command, headless or in a terminal. `fds` become readable when it has output or
    has ended.
    """

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
            whole = aim.on == "start"  # kills during imports count too
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
        """Return True if it has ended; `ready` are the readable descriptors of `fds`."""
        if self.terminal is not None and self.terminal.child.child_fd in ready:
            with contextlib.suppress(AssertionError):  # the handle reports its end
                self.terminal._read()
        return self._handle in ready

    def kill(self) -> int:
        """Send SIGKILL if it still runs; return its exit status."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)
        if self.terminal is None:
            return self._process.wait()
        self.terminal.child.wait()
        self.terminal.child.close()
        return self.terminal.child.exitstatus or -(self.terminal.child.signalstatus or 0)


class Chain:
    """One session that is killed repeatedly. `disturbed` adds faults to the server's answers."""

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
        """Start one run, kill it at the aim unless it ends before, and check the session."""
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
        """With probability TORN, add an incomplete line as after a kill during a write."""
        whole = path.read_bytes()
        if whole.endswith(b"\n") and self.random.random() < TORN:
            last = whole[whole.rindex(b"\n", 0, -1) + 1 :]
            with path.open("ab") as file:
                file.write(last[: self.random.randrange(1, len(last))])

    def errors(self) -> str:
        path = self.place.root / "stderr"
        return path.read_text() if path.exists() else ""

    def _until(self, victim: Victim, aim: Aim) -> bool:
        """Wait for the event of the aim; return False if the run ended before."""
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
        """Wait for an event or until a time; return False if the run ended before."""
        watched = [*victim.fds, self.errands.pipe] if happened else victim.fds
        while (left := until - time.monotonic()) > 0:
            if happened and happened():
                return True
            ready, _, _ = select.select(watched, [], [], min(STEP, left))
            if victim.has_ended(ready):
                return happened is not None and happened()
        return True

    def _hear(self) -> list[str]:
        """Return the new lines of the pipe."""
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self.errands.pipe, 65_536)
        *lines, self._heard = self._heard.split(b"\n")
        return [line.decode() for line in lines]

    # The end of a chain

    def end(self) -> None:
        """Make a last run without a kill, and check everything."""
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
        """Return the processes started by our runs, identified by the state folder in their
        environment.
        """
        mark = f"CTXAGENT_STATE_DIR={self.place.state}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
        return found
