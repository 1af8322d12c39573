"""Background commands: a process that writes its output to a file, and the Job tool that reads it,
waits for it and ends it. An ended job stays in `Context.jobs`, so that its output remains readable.
`end_all` ends all jobs when the agent exits.
"""

import asyncio
import os
import shlex
import tempfile
import time
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ..agent.errors import ToolError
from ..agent.lazy import dataclass
from .base import Context, Output, Params, Tool
from .system.capture import KeptOutput, OutputFile, Sink, clean, excerpt
from .system.confinement import Confinement
from .system.descriptors import has_spare_descriptors
from .system.phrasing import cut_after
from .system.process import Process, ending
from .system.spawn import Enclosed
from .system.unicode import whole_length

MAX_JOB_DESCRIPTORS = 8  # used by the agent while a job starts
REPORT_PART_BYTES = 16_384  # shown of new output, at its beginning and its end each


@dataclass(slots=True)
class BackgroundJob:
    """A running or ended background command. `read_to` is the read offset in its file, in bytes."""

    id: str
    command: str
    process: Process
    spool: OutputFile
    began: float = field(default_factory=time.monotonic)
    read_to: int = 0
    interrupted: bool = False  # ended on purpose, so the exit code says nothing about the command
    ended_by_user: bool = False
    end_is_known: bool = False  # the model knows how it ended

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, or to now while it runs."""
        ended = None if self.process.running else self.spool.closed_at
        return (ended or time.monotonic()) - self.began

    @property
    def status(self) -> str:
        """`running, pid 123`, or how it ended."""
        code = self.process.exit_code
        if code is None:
            return f"running, pid {self.process.pid}"
        if self.process.running:
            pids = ", ".join(map(str, self.process.survivors()[:3]))
            return f"running, pid {pids or 'unknown'} (its shell has ended: {ending(code)})"
        return f"{ending(code)}, ended by the user" if self.ended_by_user else ending(code)

    def unread(self) -> str:
        """Return the cleaned output since the last read. A long output is cut in the middle.

        Raises OSError if the file cannot be read.
        """
        with self.spool.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            dropped = max(0, size - self.read_to - 2 * REPORT_PART_BYTES)
            file.seek(self.read_to)
            head = file.read(REPORT_PART_BYTES) if dropped else b""
            file.seek(dropped, os.SEEK_CUR)
            tail = file.read(size - file.tell())
        if self.process.running:
            tail = tail[: whole_length(tail)]  # the last character may be incomplete
        self.read_to += len(head) + dropped + len(tail)
        return excerpt(head, tail, dropped, f"all of it is in {self.spool.path}").strip("\n")

    async def stop(self) -> None:
        """End the job on purpose if it runs."""
        if self.process.running:
            self.interrupted = True
            await self.process.end()

    def report(self) -> Output:
        """Return the new output and the job's status for the model. Raises ToolError."""
        try:
            text = self.unread()
        except OSError as error:
            raise ToolError(f"The output of {self.id} cannot be read: {error}.") from error
        self.end_is_known = not self.process.running
        lost = f"; it {cut}" if (cut := self.spool.cut_so_far) else ""
        silence = "" if text.strip() else "no new output; "
        line = f"[{silence}{self.id}: {self.status}{lost}]"
        return Output(f"{text}\n{line}" if text.strip() else line, self.details())

    def details(self) -> dict[str, Any]:
        return {
            "job": self.id,
            "command": self.command,
            "pid": self.process.pid,
            "status": self.status,
            "exit_code": self.process.exit_code,
            "running": self.process.running,
            "interrupted": self.interrupted,
            "path": str(self.spool.path),
            **(cut.details() if (cut := self.spool.cut_so_far) else {}),
        }


def tail_of(path: Path, count: int) -> list[str]:
    """Return the last `count` non-blank lines of a job's output. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - REPORT_PART_BYTES))
        text = clean(file.read().decode(errors="replace"))
    return [line for line in text.split("\n") if line.strip()][-count:]


async def start_job(
    command: str, context: Context, sandbox: Confinement | None = None
) -> BackgroundJob:
    """Start `command` in the background. Raises ToolError if that fails."""
    if not has_spare_descriptors(MAX_JOB_DESCRIPTORS):
        running = sum(job.process.running for job in context.jobs.values())
        raise ToolError(f"{running} jobs run, and no files can be opened for another. End one.")
    id, path = _new_path(context)
    try:
        spool = OutputFile(path, context.max_output_bytes)
    except OSError as error:
        raise _no_file(error) from error
    try:
        process = await run_command(command, context, sandbox, sink=spool, lasting=True)
    except (ToolError, asyncio.CancelledError):
        spool.remove()
        raise
    job = context.jobs[id] = BackgroundJob(id, command, process, spool)
    return job


async def run_command(
    command: str,
    context: Context,
    sandbox: Confinement | None,
    *,
    sink: Sink,
    lasting: bool = False,
) -> Process:
    """Start `command`. In the sandbox, if there is one, it can reach the sockets of the jobs.

    A `lasting` command runs until all its processes end. Raises ToolError.
    """
    sink = context.sieve(sink)
    if sandbox is None:
        return await Process.start(command, cwd=context.cwd, env=context.env, sink=sink)

    def enclose(argv: list[str]) -> Enclosed:
        jobs = [*context.jobs.values()]  # the event loop may add one meanwhile
        running = [job.process for job in jobs if job.process.running]
        own = (pid for process in running for pid in process.survivors())
        return sandbox.enclose(argv, lasting=lasting, own=own)

    env = sandbox.environment(context.env)
    return await Process.start(command, cwd=context.cwd, env=env, sink=sink, enclose=enclose)


def adopt(
    process: Process, command: str, context: Context, kept: KeptOutput, began: float
) -> BackgroundJob:
    """Turn a command, or the processes it left running, into a job. Further output goes to the
    job's file after the `kept` output, which counts as read. `began` is the start time (monotonic,
    s).

    Raises ToolError if no file can be created.
    """
    id, path = _new_path(context)
    try:
        if kept.file is None:
            spool = OutputFile(path, context.max_output_bytes)
        else:
            kept.file.move(path)
            spool = kept.file
            kept.keeps_file_open = True
    except OSError as error:
        raise _no_file(error) from error
    process.sink.close()
    if kept.file is None:
        spool.feed(kept.kept())
    process.sink = context.sieve(spool)
    job = BackgroundJob(id, command, process, spool, began=began, read_to=path.stat().st_size)
    context.jobs[id] = job
    return job


async def end_all(jobs: Mapping[str, Any], sandbox: Confinement | None = None) -> None:
    """End the process trees of all running jobs, and set aside files that the sandbox forbids."""
    running = [job.process.end() for job in jobs.values() if job.process.running]
    await asyncio.gather(*running)
    if jobs:
        set_aside_notice(sandbox)


def set_aside_notice(sandbox: Confinement | None) -> str:
    """Set aside files of a command that git or the agent would run. Return a line for the model."""
    renamed = sandbox.set_aside() if sandbox and not sandbox.absent else []
    if not renamed:
        return ""
    return f"[it made what git or the agent would run; set aside as {', '.join(renamed)}]"


def _new_path(context: Context) -> tuple[str, Path]:
    """Return the next free job ID and its file path. IDs of earlier runs are not used again. Raises
    ToolError.
    """
    try:
        if context.session_dir is None:
            folder = Path(tempfile.mkdtemp(prefix="ctxagent-job-"))
        else:
            folder = context.session_dir / "jobs"
            for each in (context.session_dir, folder):
                each.mkdir(mode=0o700, exist_ok=True)
        paths = (folder / f"job-{number}.log" for number in count(len(context.jobs) + 1))
        path = next(path for path in paths if not path.exists())
    except OSError as error:
        raise _no_file(error) from error
    return path.stem, path


def _no_file(error: OSError) -> ToolError:
    return ToolError(f"No file for the job's output could be made: {error}.")


class JobParams(Params):
    action: Literal["list", "read", "wait", "end"]
    id: str | None = None
    timeout: float = Field(60, ge=1, le=600)  # seconds


class JobTool(Tool[JobParams]):
    name = "Job"
    description = "Lists commands in the background, reads new output, waits for the end or kills."
    effect = "none"
    Params = JobParams

    def title(self, params: JobParams) -> str:
        return " ".join(filter(None, (params.action, params.id)))

    async def run(self, params: JobParams, context: Context) -> Output:
        if params.action == "list":
            for job in context.jobs.values():
                job.end_is_known = not job.process.running
            return Output(
                listing(context.jobs)
                or context.offered.say("[no background jobs", "; {Bash} starts them", "]"),
                {"jobs": [job.details() for job in context.jobs.values()]},
            )
        job = _find(params.id, context.jobs)
        if params.action == "wait":
            await job.process.finished(params.timeout)
        elif params.action == "end":
            await job.stop()
        output = job.report()
        note = "" if job.process.running else set_aside_notice(context.sandbox)
        return replace(output, text=f"{output.text}\n{note}") if note else output


def listing(jobs: Mapping[str, Any]) -> str:
    """Return a line for each job with its ID, status and command."""
    now = time.monotonic()
    return "\n".join(
        f"{job.id}: {job.status}; started {now - job.began:.0f} s ago; {_line(job.command)}"
        for job in jobs.values()
    )


def _line(command: str) -> str:
    first = command.strip().partition("\n")[0]
    return cut_after(first, 200)


def _find(id: str | None, jobs: Mapping[str, Any]) -> BackgroundJob:
    if id is None and len(jobs) == 1:
        id = next(iter(jobs))
    job = jobs.get(id or "")
    if isinstance(job, BackgroundJob):
        return job
    wrong = f"There is no job {shlex.quote(id)}." if id else "Say which job by id."
    there = f"There are:\n{listing(jobs)}" if jobs else "No job was started in this session."
    raise ToolError(f"{wrong} {there}")
