"""Standard input: the task itself, or data for a task.

With a task, stdin may be silent: cron, CI, editors and remote shells leave a pipe or a socket open
that never sends data. A slow program that writes to the pipe looks the same. But that program is in
our process session and is not our ancestor. While such a program has the other end open, wait long;
otherwise wait only a moment.
"""

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from ...tools import text as texts
from ...tools.system import process_table
from ...tools.system.files import read_next
from ..errors import UsageError
from ..launch import AttachedData
from ..lazy import dataclass

MAX_STDIN_BYTES = 16 * 1024 * 1024
READ_BYTES = 1 << 20  # per read
LIMIT = f"{MAX_STDIN_BYTES >> 20} MiB"
NO_WRITER = (
    "no data on standard input, and no program writes to it: continuing without it "
    "(`< /dev/null` avoids the wait)"
)
SEPARATE_TASK_HINT = 'Give the task by itself: … | ctxagent -p "what to do with it".'


@dataclass(frozen=True, slots=True)
class StdinTimeouts:
    """Timeouts for standard input, in seconds."""

    first: float = 3.0  # until the first byte, if no writing program is found; then a message
    silence: float = 600.0  # until the next byte, after a message
    whole: float = 3_600.0  # until the end of input


def read_attached_data(
    say: Callable[[str], None], timeouts: StdinTimeouts | None = None
) -> AttachedData | None:
    """Return the data on standard input for a task, or None.

    A terminal is not read. `say` gets messages about waiting and giving up.
    """
    number = _descriptor()
    if number is None or os.isatty(number):
        return None
    found = _Reading(number, say, timeouts or StdinTimeouts()).read()
    if found is None:
        return None
    _close_stdin(number)
    return found if found.data else None


def read_task(say: Callable[[str], None], timeouts: StdinTimeouts | None = None) -> str:
    """Return the task from standard input, without a timeout, or "".

    Raises UsageError for data that is not text or is too large.
    """
    number = _descriptor()
    if number is None:
        return ""
    if not os.isatty(number) and not _is_ready(number, (timeouts or StdinTimeouts()).first):
        say("reading the task from standard input")
    data = bytearray()
    while (part := read_next(number, READ_BYTES)) and len(data) <= MAX_STDIN_BYTES:
        data += part
    if len(data) > MAX_STDIN_BYTES:
        raise UsageError(
            f"the task on standard input has more than {LIMIT}", hint=SEPARATE_TASK_HINT
        )
    try:
        form = texts.recognise(bytes(data))
    except texts.NotText:
        kind = texts.kind(bytes(data)) or "data"
        raise UsageError(
            f"the task on standard input is binary, not text: {kind}", hint=SEPARATE_TASK_HINT
        ) from None
    encoding = form.encoding if form.encoding.startswith("utf-") else sys.stdin.encoding
    return texts.unix(data[len(form.bom) :].decode(encoding, "replace"))


@dataclass(frozen=True, slots=True)
class _Reading:
    """The process of reading the data for a task."""

    number: int
    say: Callable[[str], None]
    timeouts: StdinTimeouts

    def read(self) -> AttachedData | None:
        """Return the data up to the end or a timeout, or None for no data."""
        data, end = bytearray(), time.monotonic() + self.timeouts.whole
        silence, is_told = self.timeouts.first, False
        while len(data) <= MAX_STDIN_BYTES:
            if not _is_ready(self.number, min(silence, end - time.monotonic())):
                if is_told:
                    return self._give_up(data)
                if data:
                    self.say(f"waiting for the end of standard input: {len(data):,} bytes so far")
                elif program := _writing_program(self.number):
                    self.say(f"waiting for standard input from {program}")
                else:
                    self.say(NO_WRITER)
                    return None
                silence, is_told = self.timeouts.silence, True
            elif part := read_next(self.number, READ_BYTES):
                data += part
            else:
                return AttachedData(bytes(data))
        self.say(f"standard input has more than {LIMIT}: the rest is ignored")
        return AttachedData(bytes(data[:MAX_STDIN_BYTES]), f"only the first {LIMIT} were read")

    def _give_up(self, data: bytearray) -> AttachedData:
        said = "the data so far" if data else "no data"
        self.say(f"standard input did not end: continuing with {said}")
        return AttachedData(bytes(data), "it had not ended, and was not waited for any longer")


def _is_ready(number: int, seconds: float) -> bool:
    """Wait for data or the end of input. Return False after the timeout."""
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1_000))


def _writing_program(number: int) -> str:
    """Return the name of a program in our process session that writes to the pipe and is not our
    ancestor, or "".
    """
    pipe = os.fstat(number)
    if not stat.S_ISFIFO(pipe.st_mode):
        return ""
    known = {*_ancestors()}
    for process in process_table.TABLE.numbers():
        with suppress(OSError):
            same_session = process not in known and os.getsid(process) == os.getsid(0)
            if same_session and process_table.TABLE.may_write(process, pipe):
                return process_table.TABLE.name(process) or "a program"
    return ""


def _ancestors() -> Iterator[int]:
    """Yield this process and its ancestors."""
    process = os.getpid()
    while process > 0:
        yield process
        row = process_table.TABLE.row(process)
        process = row.parent if row else 0


def _descriptor() -> int | None:
    """Return the file descriptor of stdin, or None if it is closed."""
    return sys.stdin.fileno() if sys.stdin else None


def _close_stdin(number: int) -> None:
    """Close our end of stdin, so that a program that is still writing ends without blocking."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, number)
        os.close(null)
