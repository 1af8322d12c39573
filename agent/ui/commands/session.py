"""Commands about the session: a fresh one, looking at this one, leaving."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import CtxagentError, UsageError
from .registry import COMMANDS, Desk, command

if TYPE_CHECKING:
    from ...record.export import Format

FILES = 20  # files that /diff lists
_DIFF = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    # A repository inside has settings of its own, and git would read them there.
    "--submodule=short", "--ignore-submodules=dirty",
)  # fmt: skip
_FORMATS: dict[str, "Format"] = {".html": "html", ".htm": "html", ".json": "json"}


KEYS = (
    ("Enter", "send; while the agent works, the words wait for its answer"),
    ("Alt-Enter  Ctrl-J  \\ Enter", "a new line"),
    ("Up  Down", "in the text, in the words that wait (to change them), in what you typed"),
    ("Esc  Ctrl-C", "stop what runs; Esc in a question goes back"),
    ("Shift-Tab", "next permission mode"),
    ("Ctrl-O", "show the last folded result in full; again: the one before"),
    ("Ctrl-R  Ctrl-S", "search what you typed before, backwards and forwards"),
    ("Ctrl-X Ctrl-E", "go on in your editor; with vi keys: v"),
    ("Ctrl-_", "undo"),
    ("Tab", "complete; the menu comes by itself"),
    ("!command", "run a shell command yourself; the agent sees it with your next words"),
    ("#words", "note what is to be kept in mind, through every summary"),
    ("@path  #ref", "name a file, or an entry of the log, with completion"),
    ("Ctrl-Z", "to the shell; fg comes back"),
    ("Ctrl-D", "leave; so does Ctrl-C twice"),
)


@command("what you can do here", anytime=True)
async def _help(desk: Desk, argument: str) -> None:
    from ..look import render

    rows = [(f"/{c.name} {c.argument}".strip(), c.help) for c in COMMANDS.values()]
    desk.put(render.table(rows), "", render.table(KEYS))


@command("a fresh session, told where this one stood")
async def _clear(desk: Desk, argument: str) -> None:
    """S3 "Manual Triggers": a full reset, with the first level of recovery."""
    from ...recovery import told_of
    from ..look import render

    left, prior, more = desk.session, desk.handed, ""
    if left:
        loop = desk.loop
        prior = told_of(loop.ledger, loop.view.summary, 1) or prior
        more = f"\nall of it: /resume {left}" if loop.log.path.exists() else ""  # it may be gone
    await desk.reopen(prior=prior)
    if prior:
        desk.put(render.dim(f"handed over:\n{prior}{more}"))


@command("the agent's list of things to do", anytime=True)
async def _todo(desk: Desk, argument: str) -> None:
    from ..look import calls, render

    todos = desk.loop.context.todos
    desk.put(calls.todos(todos) if todos else render.dim("nothing on the list"))


@command("write this session to a file: Markdown, .html or .json", argument="[FILE]")
async def _export(desk: Desk, argument: str) -> None:
    from ...context.window import LEVELS
    from ...record.export import Scale, export
    from ..look import render

    log = desk.loop.log.path
    if not log.exists():
        raise UsageError("there is nothing to export yet: this session is empty")
    name = Path(argument or f"ctxagent-{desk.session}.md")
    format, scale = _FORMATS.get(name.suffix.lower(), "md"), None
    desk.doing(f"writing {name}")
    if format == "html":
        scale = Scale((await desk.loop.window()).size, LEVELS)
    redact = desk.loop.log.redact
    text = await asyncio.to_thread(export, log, format, scale=scale, redact=redact)
    path = await asyncio.to_thread(_write_new, desk.cwd, name, text)
    desk.put(render.dim(f"written to {path}"))


@command("what has changed in the work tree, or in one file", argument="[PATH]", anytime=True)
async def _diff(desk: Desk, argument: str) -> None:
    from ..look import diffs, render

    if argument:
        code, changes, problem = await _git(desk, *_DIFF, "HEAD", "--", argument)
        if code:
            raise CtxagentError(f"git diff: {problem}")
        desk.put(diffs.diff(changes) if changes else render.dim(f"{argument}: nothing has changed"))
        return
    code, _, problem = await _git(desk, "rev-parse", "--verify", "--quiet", "HEAD")
    if code == 1:
        _, listed, _ = await _git(desk, "ls-files", "-co", "--exclude-standard")
        names = listed.splitlines()
        more = [f"… +{len(names) - FILES:,} files"] if len(names) > FILES else []
        desk.put(render.dim("\n".join(["no commits yet; the files:", *names[:FILES], *more])))
        return
    if not code:
        code, changes, problem = await _git(desk, *_DIFF, "--stat", "--patch", "HEAD")
    if code:
        raise CtxagentError(f"git diff: {problem}")
    _, listed, _ = await _git(desk, "ls-files", "-o", "--exclude-standard")
    new = listed.splitlines()
    stat, *files = re.split(r"^(?=diff --git )", changes, flags=re.MULTILINE)
    lines = [stat.rstrip("\n"), *(f" {name} (new)" for name in new[:FILES])]
    lines += [f"… +{len(new) - FILES:,} new files"] if len(new) > FILES else []
    desk.put(render.dim("\n".join(filter(None, lines)) or "nothing has changed"))
    desk.put(*(diffs.diff(file, fold=True, way=" (/diff PATH)") for file in files[:FILES]))


@command("leave", anytime=True)
async def _quit(desk: Desk, argument: str) -> None:
    desk.leave()


async def _git(desk: Desk, *arguments: str) -> tuple[int, str, str]:
    """Run git as tools run it, without keys; exit code, output, errors. Raises CtxagentError where
    there is no git."""
    from ....tools.programs import program
    from ...record.snapshot import unarmed

    # The repository's own settings can name programs; these are not run.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
    given = desk.loop.context.env
    try:
        env = await asyncio.to_thread(unarmed, desk.cwd, given)
        process = await asyncio.create_subprocess_exec(
            *(program("git", given.get("PATH")), *safe, *arguments),
            cwd=desk.cwd,
            env=env,
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
    """Write a file that is not there yet, for its owner alone; its path. Raises CtxagentError."""
    path = cwd / name.expanduser()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError:  # a part of it would be in the way of the next try
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise UsageError(f"{path} exists", hint="Give another name: /export FILE") from None
    except OSError as error:
        raise CtxagentError(f"cannot write {path}: {error.strerror}") from error
    return path
