"""Many recordings under many terms, side by side in as many processes as there are cores.

A process gets one play after another through a pipe of its own, so that it can be killed at any
time; all that they write is in one folder, which is gone in the end, however that comes.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

from .outcome import Comparison, Run
from .player import Terms, numbered, own_folder, play
from .recording import Recording

FEW = 4  # plays for which no process is started

# How many of how many plays are done, and which share of the work that is, as far as one can say.
Tell = Callable[[int, int, float], None]


def compare(
    recordings: Sequence[Recording],
    terms: Sequence[Terms],
    tell: Tell = lambda done, all, share: None,
) -> Comparison:
    """Every recording under every one of the terms. Raises ModelError from a model that writes
    summaries; then nothing is played side by side."""
    with own_folder() as folder:
        runs = _Plays(recordings, terms, folder, tell).all()
    size = len(terms)
    rows = tuple(tuple(runs[at : at + size]) for at in range(0, len(runs), size))
    return Comparison(tuple(each.label for each in terms), rows)


class _Plays:
    """Numbered by recording, then by terms."""

    def __init__(
        self, recordings: Sequence[Recording], terms: Sequence[Terms], folder: Path, tell: Tell
    ) -> None:
        self._pairs = [(recording, each) for recording in recordings for each in terms]
        self._folder = folder
        self._tell = tell
        self._found: dict[int, Run] = {}
        self._work = sum(recording.replies for recording, _ in self._pairs)
        self._done = 0  # of that

    def all(self) -> list[Run]:
        """What came of each, in their order."""
        workers = min(os.cpu_count() or 1, len(self._pairs))
        asked = any(terms.writer for _, terms in self._pairs)
        if workers < 2 or len(self._pairs) <= FEW or asked:
            for number in range(len(self._pairs)):
                self._finish(number, self._play(number))
        else:
            self._side_by_side(workers)
        return [self._found[number] for number in range(len(self._pairs))]

    def _side_by_side(self, workers: int) -> None:
        """The longest first, so that no core waits long for another in the end."""
        left = sorted(range(len(self._pairs)), key=lambda n: self._pairs[n][0].replies)
        with ExitStack() as open:
            idle = [open.enter_context(self._worker()) for _ in range(workers)]
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
                        run: Run = ready.recv()
                        idle.append(ready)
                    except (EOFError, OSError):  # it died: what of, is seen here
                        run = self._play(number)
                        idle.append(open.enter_context(self._worker()))
                    self._finish(number, run)

    @contextmanager
    def _worker(self) -> Iterator[Connection]:
        """A process that plays what it is told to, until the pipe to it is closed."""
        context = get_context("fork")
        here, there = context.Pipe()
        process = context.Process(target=self._serve, args=(there,), daemon=True)
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it is killed from here
        try:
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, heard)
            there.close()
            yield here
        finally:
            if process.pid is not None:
                process.kill()
                process.join()
            here.close()

    def _serve(self, pipe: Connection) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # an interrupt is no news from here
        while True:
            try:
                number = pipe.recv()
            except EOFError:
                return
            pipe.send(self._play(number))

    def _play(self, number: int) -> Run:
        return play(*self._pairs[number], numbered(self._folder, number))

    def _finish(self, number: int, run: Run) -> None:
        self._found[number] = run
        self._done += self._pairs[number][0].replies
        share = self._done / self._work if self._work else 1.0
        self._tell(len(self._found), len(self._pairs), share)
