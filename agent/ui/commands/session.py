"""Commands about the session: going to others, looking at this one, leaving."""

import asyncio
import time
from pathlib import Path

from ...errors import CtxagentError, UsageError
from .registry import COMMANDS, Desk, command

LISTED = 10  # sessions in a list
FILES = 20  # files that /diff lists


@command("what you can do here", anytime=True)
async def _help(desk: Desk, argument: str) -> None:
    from .. import render

    rows = [(f"/{c.name} {c.argument}".strip(), c.help) for c in COMMANDS.values()]
    keys = [
        ("Enter", "send; while the agent works, the words wait for its answer"),
        ("Alt-Enter  Ctrl-J  \\ Enter", "a new line"),
        ("Esc  Ctrl-C", "stop what runs"),
        ("Shift-Tab", "next permission mode"),
        ("Ctrl-R", "search what you typed before"),
        ("@path", "name a file, with completion"),
        ("Ctrl-D", "leave"),
    ]
    desk.put(render.table(rows), "", render.table(keys))


@command("a fresh session, told where this one stood")
async def _clear(desk: Desk, argument: str) -> None:
    """S3 "Manual Triggers": a full reset, with the first level of recovery."""
    from ...recovery import level
    from .. import render

    entries = await asyncio.to_thread(lambda: list(desk.loop.log.entries()))
    prior, left = level(entries, 1), desk.session
    await desk.reopen(prior=prior)
    if prior:
        desk.put(render.dim(f"handed over:\n{prior}\nall of it: /resume {left}"))


@command("go on with another session", argument="[ID]")
async def _resume(desk: Desk, argument: str) -> None:
    if not argument:
        _list_sessions(desk, "Go on with one: /resume NUMBER or /resume ID")
        return
    logs = desk.sessions()
    if argument.isdigit() and 1 <= int(argument) <= min(LISTED, len(logs)):
        argument = logs[int(argument) - 1].parent.name
    if desk.session == argument:
        raise UsageError("this is the session you are in")
    await desk.reopen(resume=argument)


@command("the sessions of this project", anytime=True)
async def _sessions(desk: Desk, argument: str) -> None:
    _list_sessions(desk, "")


@command("go on in a copy of this session")
async def _fork(desk: Desk, argument: str) -> None:
    if not desk.loop.log.last_seq:
        raise UsageError("there is nothing to copy yet: this session is empty")
    await desk.reopen(resume=desk.session, fork=True)


@command("the agent's list of things to do", anytime=True)
async def _todo(desk: Desk, argument: str) -> None:
    from .. import calls, render

    todos = desk.loop.context.todos
    desk.put(calls.todos(todos) if todos else render.dim("nothing on the list"))


@command("write this session to a file, as Markdown or .json", argument="[FILE]")
async def _export(desk: Desk, argument: str) -> None:
    from ...record import sessions
    from .. import render

    log = desk.loop.log.path
    if not log.exists():
        raise UsageError("there is nothing to export yet: this session is empty")
    name = Path(argument or f"ctxagent-{desk.session}.md")
    text = sessions.export(log, "json" if name.suffix == ".json" else "md")
    path = _write_new(desk.cwd, name, text)
    desk.put(render.dim(f"written to {path}"))


@command("what has changed in the work tree", anytime=True)
async def _diff(desk: Desk, argument: str) -> None:
    from .. import render

    code, _, problem = await _git(desk.cwd, "rev-parse", "--verify", "--quiet", "HEAD")
    if code == 1:
        _, listed, _ = await _git(desk.cwd, "ls-files", "-co", "--exclude-standard")
        names = listed.splitlines()
        more = [f"… +{len(names) - FILES:,} files"] if len(names) > FILES else []
        desk.put(render.dim("\n".join(["no commits yet; the files:", *names[:FILES], *more])))
        return
    if not code:
        look = ("diff", "--no-ext-diff", "--no-textconv", "--stat", "HEAD")
        code, changes, problem = await _git(desk.cwd, *look)
    if code:
        raise CtxagentError(f"git diff: {problem}")
    _, listed, _ = await _git(desk.cwd, "ls-files", "-o", "--exclude-standard")
    new = listed.splitlines()
    lines = [changes, *(f" {name} (new)" for name in new[:FILES])]
    lines += [f"… +{len(new) - FILES:,} new files"] if len(new) > FILES else []
    desk.put(render.dim("\n".join(filter(None, lines)) or "nothing has changed"))


@command("leave", anytime=True)
async def _quit(desk: Desk, argument: str) -> None:
    desk.leave()


async def _git(cwd: Path, *arguments: str) -> tuple[int, str, str]:
    """Run git; exit code, output, errors. Raises CtxagentError where there is no git."""
    # The repository's own settings can name programs; these are not run.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", *safe, *arguments),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise CtxagentError(f"git could not be run: {error.strerror}") from error
    out, problem = await process.communicate()
    said = [text.decode(errors="replace").rstrip() for text in (out, problem)]
    return process.returncode or 0, said[0], said[1]


def _write_new(cwd: Path, name: Path, text: str) -> Path:
    """Write a file that is not there yet; its path. Raises CtxagentError."""
    path = cwd / name.expanduser()
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists", hint="Give another name: /export FILE") from None
    except OSError as error:
        raise CtxagentError(f"cannot write {path}: {error.strerror}") from error
    return path


def _list_sessions(desk: Desk, below: str) -> None:
    from ...record import sessions
    from .. import render

    logs = desk.sessions()
    rows = []
    for number, log in enumerate(logs[:LISTED], 1):
        row = sessions.row(log)
        here = "here" if row.id == desk.session else _age(row.changed)
        rows.append((str(number), row.id, here, row.title or "(no words yet)"))
    if not rows:
        desk.put(render.dim("there are no sessions of this project yet"))
        return
    desk.put(render.table(rows, wrap=False))
    more = f"{len(logs) - LISTED:,} older ones · " if len(logs) > LISTED else ""
    if more or below:
        desk.put(render.dim(f"  {more}{below}".rstrip(" ·")))


def _age(changed: float) -> str:
    seconds = max(0, time.time() - changed)
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return "now"
