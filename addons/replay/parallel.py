"""Play many recordings under many settings, in as many processes as there are cores.

Each worker process receives one play after another through its own pipe, so it can be killed at any
time. All files that workers write are in one folder, which is deleted at the end. Workers are forks
of this process, so they already have the recordings. A process with threads does not fork, because
the child could deadlock on a lock that a thread held; it plays one recording after another.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

from ...api.recordings import Recording
from .player import Terms, play, play_folder, scratch_folder
from .results import Comparison, ReplayRun

MAX_PLAYS_IN_ONE_PROCESS = 4  # above this, use worker processes

# Arguments: plays done, plays in total, and the estimated share of the work that is done.
ReportProgress = Callable[[int, int, float], None]


def compare(
    recordings: Sequence[Recording],
    terms: Sequence[Terms],
    report_progress: ReportProgress = lambda done, all, share: None,
) -> Comparison:
    """Play every recording under all given terms. If a model writes summaries, nothing is played in
    parallel; its ModelError is passed on.
    """
    with scratch_folder() as folder:
        runs = _Plays(recordings, terms, folder, report_progress).run()
    size = len(terms)
    rows = tuple(tuple(runs[at : at + size]) for at in range(0, len(runs), size))
    return Comparison(tuple(each.label for each in terms), rows)


def _count_threads() -> int:
    """Count the threads of this process; on Linux, include threads that Python did not start."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return threading.active_count()


class _Plays:
    """The plays of a comparison, numbered by recording, then by terms."""

    def __init__(
        self,
        recordings: Sequence[Recording],
        terms: Sequence[Terms],
        folder: Path,
        report_progress: ReportProgress,
    ) -> None:
        self._pairs = [(recording, each) for recording in recordings for each in terms]
        self._folder = folder
        self._report_progress = report_progress
        self._runs: dict[int, ReplayRun] = {}
        self._total_replies = sum(recording.replies for recording, _ in self._pairs)
        self._done_replies = 0

    def run(self) -> list[ReplayRun]:
        """Play all recordings and return the runs, ordered by number."""
        workers = min(os.cpu_count() or 1, len(self._pairs))
        asks_model = any(terms.writer for _, terms in self._pairs)
        few = workers < 2 or len(self._pairs) <= MAX_PLAYS_IN_ONE_PROCESS
        if few or asks_model or _count_threads() > 1:
            for number in range(len(self._pairs)):
                self._finish(number, self._play(number))
        else:
            self._run_in_workers(workers)
        return [self._runs[number] for number in range(len(self._pairs))]

    def _run_in_workers(self, workers: int) -> None:
        """Play in worker processes, longest recordings first, so that all cores finish at about the
        same time.
        """
        left = sorted(range(len(self._pairs)), key=lambda n: self._pairs[n][0].replies)
        with ExitStack() as stack:
            idle = [stack.enter_context(self._worker()) for _ in range(workers)]
            busy: dict[Connection, int] = {}
            while left or busy:
                while left and idle:
                    pipe, number = idle.pop(), left.pop()
                    pipe.send(number)
                    busy[pipe] = number
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    number = busy.pop(ready)
                    try:
                        run: ReplayRun = ready.recv()
                        idle.append(ready)
                    except (EOFError, OSError):  # the worker died; play here to show the cause
                        run = self._play(number)
                        idle.append(stack.enter_context(self._worker()))
                    self._finish(number, run)

    @contextmanager
    def _worker(self) -> Iterator[Connection]:
        """Start a process that plays each number it receives; kill it on exit."""
        context = get_context("fork")
        here, there = context.Pipe()
        process = context.Process(target=self._serve, args=(there,), daemon=True)
        # The worker inherits this mask, so only this process handles SIGINT and kills the worker.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            there.close()
            yield here
        finally:
            if process.pid is not None:
                process.kill()
                process.join()
            here.close()

    def _serve(self, pipe: Connection) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the parent alone writes errors
        while True:
            try:
                number = pipe.recv()
            except EOFError:
                return
            pipe.send(self._play(number))

    def _play(self, number: int) -> ReplayRun:
        return play(*self._pairs[number], play_folder(self._folder, number))

    def _finish(self, number: int, run: ReplayRun) -> None:
        self._runs[number] = run
        self._done_replies += self._pairs[number][0].replies
        share = self._done_replies / self._total_replies if self._total_replies else 1.0
        self._report_progress(len(self._runs), len(self._pairs), share)
