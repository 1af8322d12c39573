"""Commands about the session: start a new one, inspect this one, leave."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.plural import count_of
from ...config.keyboard import key_name
from ...errors import CtxagentError, UsageError
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...export import ExportFormat
    from ...loop.agent import AgentState

MAX_DIFF_FILES = 20
_DIFF = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    # Otherwise git would read the settings of a nested repository.
    "--submodule=short", "--ignore-submodules=dirty",
)  # fmt: skip
_FORMATS: dict[str, "ExportFormat"] = {".html": "html", ".htm": "html", ".json": "json"}


@command("a new session; this one can be resumed", group="conversation")
async def _new(repl: CommandContext, argument: str) -> None:
    await _open_fresh(repl, "")


@command(
    "a new session with a hand-over from this one; all: without",
    argument="[all]",
    complete=completions.fixed(("all",)),
    group="conversation",
)
async def _clear(repl: CommandContext, argument: str) -> None:
    """Open a new session that gets a level 1 hand-over of this one."""
    from ...compaction.recovery import recovery_text

    if argument not in ("", "all"):
        raise UsageError(
            f"/clear does not take {argument!r}",
            hint="/clear hands over the state of this session, /clear all hands over nothing.",
        )
    told = repl.handed_over
    if repl.session:
        told = recovery_text(repl.agent.ledger, repl.agent.view.summary, 1) or told
    await _open_fresh(repl, "" if argument else told)


async def _open_fresh(repl: CommandContext, told: str) -> None:
    """Open a new session on a clean screen with this hand-over text, which is folded."""
    if not await repl.may_end_tasks():
        return
    left_behind = _not_carried_over(repl.agent) if repl.session else []
    left = repl.session
    repl.screen.clean()
    await repl.switch_session(prior=told)
    parts = ["new session"]
    if left_behind:
        parts.append(f"/resume {left} returns to the last one")
        parts.append(f"not carried over: {', '.join(left_behind)}")
    if told:
        key = key_name(repl.screen.keys.unfold) if repl.screen.paints else "/unfold"
        parts.append(f"{key} shows the hand-over")
    repl.say(" · ".join(parts))
    repl.transcript().fold("handed over", told)


def _more(names: "Sequence[str]", noun: str) -> list[str]:
    """Return a line with the number of names not listed, if any."""
    left = len(names) - MAX_DIFF_FILES
    return [f"… +{count_of(left, noun)}"] if left > 0 else []


def _not_carried_over(agent: "AgentState") -> list[str]:
    """Return what a new session does not inherit; nothing if this session has no log."""
    if not agent.log.path.exists():  # the session is empty, or the log is gone
        return []
    counts = (
        (agent.totals.turns, "turn"),
        (len(agent.context.todos), "todo"),
        (sum(job.process.running for job in agent.context.jobs.values()), "ended job"),
        (sum(each.in_background for each in agent.context.agents.values()), "ended subagent"),
        (len(agent.ledger.pins), "pin"),
        (len(agent.approval.rules()["session"]), "session rule"),
    )
    return [count_of(count, what) for count, what in counts if count]


@command("the agent's todo list", anytime=True, group="files and work")
async def _todo(repl: CommandContext, argument: str) -> None:
    from ..render import tool_calls

    if todos := repl.agent.context.todos:
        repl.put(tool_calls.todos(todos))
    else:
        repl.say("the todo list is empty")


@command(
    "write this session to a file: Markdown, .html or .json",
    argument="[FILE]",
    group="conversation",
)
async def _export(repl: CommandContext, argument: str) -> None:
    from ...context.window import LEVELS
    from ...export import WindowScale, export

    log = repl.agent.log.path
    if not log.exists():
        raise UsageError("there is nothing to export yet: this session is empty")
    name = Path(argument or f"ctxagent-{repl.session}.md")
    format, scale = _FORMATS.get(name.suffix.lower(), "md"), None
    repl.show_activity(f"writing {name}")
    if format == "html":
        scale = WindowScale((await repl.agent.model.window()).size, LEVELS)
    redact = repl.agent.log.redact
    text = await asyncio.to_thread(export, log, format, scale=scale, redact=redact)
    path = await asyncio.to_thread(_write_new, repl.services.cwd, name, text)
    repl.say(f"written to {path}")


@command(
    "uncommitted changes, of the project or of one file or folder",
    argument="[PATH]",
    anytime=True,
    group="files and work",
)
async def _diff(repl: CommandContext, argument: str) -> None:
    from ..render import diffs

    code, _, problem = await _git(repl, "rev-parse", "--verify", "--quiet", "HEAD")
    if argument and code in (0, 1):
        await _diff_path(repl, argument, has_commits=not code)
        return
    if code == 1:
        _, listed, _ = await _git(repl, "ls-files", "-co", "--exclude-standard")
        names = listed.splitlines()
        lines = ["no commits yet; the files are:", *names[:MAX_DIFF_FILES], *_more(names, "file")]
        repl.say("\n".join(lines))
        return
    if not code:
        code, changes, problem = await _git(repl, *_DIFF, "--stat", "--patch", "HEAD")
    if code:
        raise CtxagentError(f"git diff: {problem}")
    _, listed, _ = await _git(repl, "ls-files", "-o", "--exclude-standard")
    new = listed.splitlines()
    stat, *files = re.split(r"^(?=diff --git )", changes, flags=re.MULTILINE)
    lines = [stat.rstrip("\n"), *(f" {name} (new)" for name in new[:MAX_DIFF_FILES])]
    lines += _more(new, "new file")
    repl.say("\n".join(filter(None, lines)) or "nothing has changed")
    for file in files[:MAX_DIFF_FILES]:
        repl.put(diffs.diff(file, fold=True, unfold_hint=" (/diff PATH)"))


async def _diff_path(repl: CommandContext, path: str, *, has_commits: bool) -> None:
    """Show the full diff of a file or folder, with new files as additions."""
    from ..render import diffs

    code, changes, problem, others = 0, "", "", "-o"
    if has_commits:
        code, changes, problem = await _git(repl, *_DIFF, "HEAD", "--", path)
    else:
        others = "-co"
    if code:
        raise CtxagentError(f"git diff: {problem}")
    _, listed, _ = await _git(repl, "ls-files", "-z", others, "--exclude-standard", "--", path)
    new = list(filter(None, listed.split("\0")))
    if changes:
        repl.put(diffs.diff(changes))
    for name in new[:MAX_DIFF_FILES]:
        added = ""
        if not name.endswith("/"):  # a nested repository
            _, added, _ = await _git(repl, *_DIFF, "--no-index", "--", os.devnull, name)
        if added:
            repl.put(diffs.diff(added))
        else:
            repl.say(f"{name} (new)")
    if len(new) > MAX_DIFF_FILES:
        repl.say(f"… +{len(new) - MAX_DIFF_FILES:,} new files")
    if changes or new:
        return
    _, tracked, _ = await _git(repl, "ls-files", "--", path)
    if tracked:
        repl.say(f"{path}: nothing has changed")
    elif await asyncio.to_thread(os.path.lexists, repl.services.cwd / path):
        repl.say(f"{path}: git ignores it, or there is no file in it")
    else:
        raise UsageError(f"there is no {path}", hint="/diff alone lists what has changed.")


@command("leave; so do exit and quit without the slash", anytime=True, group="conversation")
async def _exit(repl: CommandContext, argument: str) -> None:
    await repl.leave()


async def _git(repl: CommandContext, *arguments: str) -> tuple[int, str, str]:
    """Run git with the tools' environment, which has no keys; return (exit code, output, errors).
    Raises CtxagentError if git cannot be run.
    """
    from ....tools.system.programs import program
    from ...worktree.git import safe_git_environment

    # Repository settings can run programs; these options turn them off.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
    names = ("-c", "core.quotePath=false")
    tool_env = repl.agent.context.env
    try:
        env = await asyncio.to_thread(safe_git_environment, repl.services.cwd, tool_env)
        process = await asyncio.create_subprocess_exec(
            *(program("git", tool_env.get("PATH")), *safe, *names, *arguments),
            cwd=repl.services.cwd,
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
    """Write a new file that only its owner may read, and return its path. Raises CtxagentError."""
    path = cwd / name.expanduser()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError:  # a partial file would block the next attempt
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise UsageError(f"{path} already exists", hint="Give another name: /export FILE") from None
    except OSError as error:
        raise CtxagentError(f"cannot write {path}: {error.strerror}") from error
    return path
