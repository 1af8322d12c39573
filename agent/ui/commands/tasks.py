"""/tasks, /background and /set-aside: subagents and background commands, sending work to the
background, and files that commands created for other programs to run.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....tools.system.phrasing import one_line
from ...config.keyboard import key_name
from ...errors import CtxagentError, UsageError
from ...extensions.command import command
from ..screen import Menu, Option, Styled
from . import completions
from .command_context import CommandContext

if TYPE_CHECKING:
    from ...loop.agent import AgentState
    from ..tasks import SessionTask

TAIL_LINES = 40  # shown of a task's output
MAX_WHAT_CHARS = 100  # of a task's description
MAX_PREVIEW_CHARS, PREVIEW_LINES = 76, 4  # of a menu line; of the output
STOP = "stop"
HEAD = ("task", "state", "time", "tokens", "cost", "what")


@command(
    "list subagents and background commands, or stop one",
    argument="[ID | stop ID]",
    anytime=True,
    complete=completions.tasks,
    group="files and work",
)
async def _tasks(repl: CommandContext, argument: str) -> None:
    verb, _, id = argument.partition(" ")
    tasks = _all(repl)
    if verb == "stop":
        await _stop(repl, _find(tasks, id.strip(), running=True))
    elif argument:
        _show_one(repl, _find(tasks, argument))
    elif tasks and repl.screen.paints and not repl.questions.is_asking:
        await _choose(repl)
    elif tasks:
        _show(repl, tasks)
        repl.say("/tasks ID shows its last output · /tasks stop ID stops it")
    else:
        repl.say(
            "there are no tasks yet: subagents, and commands in the background "
            f"({key_name(repl.screen.keys.background)} or /background sends one there)"
        )


@command(
    "send the running command or subagent to the background",
    anytime=True,
    group="files and work",
)
async def _background(repl: CommandContext, argument: str) -> None:
    if not repl.conversation.send_to_background():
        repl.say("no running command or subagent can go to the background")


@command(
    "rename files created for other programs to run",
    argument="[PATH | all]",
    anytime=True,
    group="files and work",
)
async def _set_aside(repl: CommandContext, argument: str) -> None:
    watch, cwd = repl.agent.runner.planted, repl.services.cwd
    told = watch.planted_paths if watch else []
    chosen = told if argument == "all" or not argument else [str(cwd.resolve() / argument)]
    if not watch or not told:
        repl.say("no command has created files for other programs to run")
    elif not argument and len(told) > 1:
        repl.say("\n".join(["name a path, or run /set-aside all:", *told]))
    elif unknown := [path for path in chosen if path not in told]:
        raise UsageError(f"no command has created {unknown[0]}", hint=f"Known: {', '.join(told)}.")
    else:
        for path in await asyncio.to_thread(watch.set_aside, chosen):
            repl.say(f"renamed to {path}")


def _all(repl: CommandContext) -> "list[SessionTask]":
    from ..tasks import tasks_of

    return tasks_of(repl.agent, repl.transcript().subagents)


async def _choose(repl: CommandContext) -> None:
    """Let the user choose a task. Print its last output, or stop it if it is running."""
    while chosen := await repl.screen.pick(_menu(repl)):
        task = _find(_all(repl), chosen.key)
        if task.is_running and (chosen := await repl.screen.pick(_actions(task))) is None:
            continue
        if chosen.key == STOP:
            await _stop(repl, _find(_all(repl), task.id, running=True))
        else:
            _show_one(repl, _find(_all(repl), task.id))
        return


def _actions(task: "SessionTask") -> Menu:
    def load(scope: int) -> Iterator[Sequence[Option]]:
        yield [Option("show", "show its last output"), Option(STOP, "stop it")]

    return Menu(title=f"{task.id}: {task.what}", load=load, action="do it", empty_text="")


def _menu(repl: CommandContext) -> Menu:
    """Return a menu of all tasks, running ones first."""
    tasks = sorted(_all(repl), key=lambda task: not task.is_running)
    said = {task.id: _last_lines(repl, task) for task in tasks}
    work = {task.id: task.what for task in tasks}
    cells = max(map(len, work))

    def load(scope: int) -> Iterator[Sequence[Option]]:
        yield [
            Option(
                task.id,
                f"{task.id:<{cells}}  {task.what}",
                _facts(task)[:3],
                one_line(" · ".join([*task.facts, *said[task.id][-1:]]), MAX_WHAT_CHARS),
            )
            for task in tasks
        ]

    def preview(id: str) -> Sequence[Styled]:
        lines = [work[id], *(said[id] or ["no output yet"])]
        roles = ["message", *["dim"] * len(lines)]
        return [
            (role, one_line(line, MAX_PREVIEW_CHARS))
            for role, line in zip(roles, lines, strict=False)
        ]

    return Menu(
        title="Tasks",
        load=load,
        action="show or stop it",
        empty_text="there are no tasks yet",
        preview=preview,
        preview_rows=PREVIEW_LINES + 2,
    )


def _last_lines(repl: CommandContext, task: "SessionTask") -> list[str]:
    try:
        return [line for line in _output_of(repl, task) if line.strip()][-PREVIEW_LINES:]
    except CtxagentError as error:
        return [error.message]


def _show(repl: CommandContext, tasks: "Sequence[SessionTask]") -> None:
    rows = [
        (
            task.id,
            *_facts(task),
            " · ".join([one_line(task.what, MAX_WHAT_CHARS), *task.facts]),
        )
        for task in tasks
    ]
    repl.show_table(rows, HEAD)


def _facts(task: "SessionTask") -> tuple[str, str, str, str]:
    """Return a task's state, time, tokens and cost."""
    from ..render import render

    return (
        task.state,
        "" if task.seconds is None else render.duration(task.seconds),
        "" if task.tokens is None else f"{task.tokens:,}",
        "" if task.tokens is None else render.price(task.cost),
    )


def _show_one(repl: CommandContext, task: "SessionTask") -> None:
    """Print a task and the end of its output."""
    _show(repl, [task])
    lines = _output_of(repl, task)
    if lines:
        repl.say(f"last output of {task.id}:")
        repl.show("\n".join(lines[-TAIL_LINES:]))
    else:
        repl.say(f"{task.id} has no output yet")


def _output_of(repl: CommandContext, task: "SessionTask") -> list[str]:
    """Return the lines of a task's output. Raises CtxagentError."""
    from ....tools.job import tail_of
    from ...loop.model_session import last_text
    from ..tasks import JOB, runs_of

    agent = repl.agent
    if task.kind == JOB:
        job = agent.context.jobs.get(task.id)
        path = job.spool.path if job else agent.folder / "jobs" / f"{task.id}.log"
        try:
            return tail_of(path, TAIL_LINES)
        except OSError as error:
            raise CtxagentError(
                f"the output of {task.id} cannot be read: {error.strerror}",
                hint=f"It is kept in {path}.",
            ) from error
    running = agent.context.agents.get(task.id)
    if running is None:
        return runs_of(agent)[task.id].answer.split("\n")
    said = last_text(running.child.view.items) if running.child else ""
    return said.split("\n") if said else []


async def _stop(repl: CommandContext, task: "SessionTask") -> None:
    from ....tools.job import set_aside_notice

    agent = repl.agent
    if (running := agent.context.agents.get(task.id)) is not None:
        running.stop()
        repl.say(f"{task.id} stopped; the conversation gets its results so far")
        return
    job = agent.context.jobs[task.id]
    job.ended_by_user = True
    await job.stop()
    repl.say(f"{job.id}: {job.status}")
    if note := set_aside_notice(agent.context.sandbox):
        repl.say(note)


async def end_tasks(agent: "AgentState") -> None:
    """Stop all background tasks, and wait for their end."""
    agents = [each for each in agent.context.agents.values() if each.in_background]
    jobs = [job for job in agent.context.jobs.values() if job.process.running]
    for each in agents:
        each.stop()
    for job in jobs:
        job.ended_by_user = True
    await asyncio.gather(*(each.wait() for each in agents), *(job.stop() for job in jobs))


def _find(tasks: "Sequence[SessionTask]", id: str, *, running: bool = False) -> "SessionTask":
    """Return the task with this ID or ID prefix; "" means the only running one. Raises UsageError
    if none or several match, or if `running` is required and the task has ended.
    """
    at_work = [task for task in tasks if task.is_running]
    found = [task for task in tasks if task.id in (id, f"job-{id}")]
    begin = [task for task in (at_work if running else tasks) if task.id.startswith(id)]
    found = found or begin
    if len(found) == 1 and running and not found[0].is_running:
        ended = ", ".join([found[0].state, *found[0].facts])
        raise UsageError(
            f"{found[0].id} has already ended: {ended}", hint="/tasks lists what is running."
        )
    if len(found) == 1:
        return found[0]
    there = ", ".join(task.id for task in (at_work if running else tasks)) or "none"
    problem = f"several tasks begin with {id!r}" if found else f"there is no task {id!r}"
    raise UsageError(problem if id else "name the task: /tasks stop ID", hint=f"Tasks: {there}.")
