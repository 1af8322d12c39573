"""/jobs, /background, /set-aside: the commands that run in the background, sending one there, and
what commands have planted for other programs to run."""

import asyncio
from typing import TYPE_CHECKING

from ...errors import CtxagentError, UsageError
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ....tools.job import BackgroundJob

TAIL_LINES = 3  # of each job's output, in the list of all
LONG_TAIL_LINES = 40  # of one job's output
HEAD = ("job", "time", "status", "command")


@command(
    "list background commands and their output, or stop one",
    argument="[ID | stop ID]",
    anytime=True,
    complete=completions.jobs,
    group="files and work",
)
async def _jobs(repl: CommandContext, argument: str) -> None:
    from ....tools.job import undone

    verb, _, id = argument.partition(" ")
    if verb == "stop":
        job = _find(repl, id.strip())
        if not job.process.running:
            raise UsageError(f"{job.id} has already ended: {job.status}")
        job.ended_by_user = True
        await job.stop()
        repl.say(f"{job.id}: {job.status}")
        if note := undone(repl.agent.context.sandbox):
            repl.say(note)
        return
    if argument:
        _show(repl, [_find(repl, argument)], LONG_TAIL_LINES)
        return
    jobs = [*repl.agent.context.jobs.values()]
    if not jobs:
        repl.say("no command is running in the background; Ctrl-B or /background sends one there")
        return
    _show(repl, jobs, TAIL_LINES)
    repl.say("/jobs ID shows more of its output · /jobs stop ID ends it")


@command(
    "send the running command to the background (Ctrl-B)",
    anytime=True,
    group="files and work",
)
async def _background(repl: CommandContext, argument: str) -> None:
    if not repl.conversation.send_to_background():
        repl.say("no running command can go to the background")


@command(
    "rename what commands made for other programs to run",
    argument="[PATH | all]",
    anytime=True,
    group="files and work",
)
async def _set_aside(repl: CommandContext, argument: str) -> None:
    watch, cwd = repl.agent.runner.planted, repl.services.cwd
    told = watch.told if watch else []
    chosen = told if argument == "all" or not argument else [str(cwd.resolve() / argument)]
    if not watch or not told:
        repl.say("no command has made what other programs would run")
    elif not argument and len(told) > 1:
        repl.say("\n".join(["say which, or /set-aside all:", *told]))
    elif unknown := [path for path in chosen if path not in told]:
        raise UsageError(f"no command has made {unknown[0]}", hint=f"There are: {', '.join(told)}.")
    else:
        for path in await asyncio.to_thread(watch.set_aside, chosen):
            repl.say(f"renamed to {path}")


def _show(repl: CommandContext, jobs: "list[BackgroundJob]", lines: int) -> None:
    """Print the jobs in a table, and below it the end of what each of them said."""
    from ..render import render

    rows = [(j.id, render.duration(j.seconds), j.status, " ".join(j.command.split())) for j in jobs]
    repl.show_table(rows, HEAD, wrap=len(jobs) == 1)
    for job in jobs:
        try:
            tail = job.tail(lines)
        except OSError as error:
            raise CtxagentError(
                f"the output of {job.id} cannot be read: {error.strerror}",
                hint=f"It is kept in {job.spool.path}.",
            ) from error
        if tail:
            repl.say(f"last output of {job.id}:")
            repl.show("\n".join(tail))


def _find(repl: CommandContext, id: str) -> "BackgroundJob":
    """Return the job of this id; "" is the only one that runs. Raises UsageError."""
    jobs = repl.agent.context.jobs
    running = repl.conversation.running_jobs
    if not id and len(running) == 1:
        return running[0]
    job: BackgroundJob | None = jobs.get(id) or jobs.get(f"job-{id}")
    if job is None:
        problem = f"there is no job {id!r}" if id else "say which: /jobs stop ID"
        raise UsageError(problem, hint=f"There are: {', '.join(jobs) or 'none'}.")
    return job
