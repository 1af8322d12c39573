"""Commands about the session: a fresh one, looking at this one, leaving."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.plural import count_of
from ...errors import CtxagentError, UsageError
from ..habits import habits
from . import completions
from .command_context import CommandContext
from .files import added_commands, read_command_files
from .registry import COMMANDS, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...export import ExportFormat
    from ...loop.agent import AgentState

MAX_DIFF_FILES = 20
_DIFF = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    # A repository inside has settings of its own, and git would read them there.
    "--submodule=short", "--ignore-submodules=dirty",
)  # fmt: skip
_FORMATS: dict[str, "ExportFormat"] = {".html": "html", ".htm": "html", ".json": "json"}
KEYS = (
    ("Enter", "send; while the agent works, the words go to it after the running call"),
    ("Alt-Enter", "a new line; while the agent works, send the words after the turn"),
    ("Ctrl-J  \\ Enter", "a new line, also while the agent works"),
    ("Up  Down", "in the text, in waiting words (to change them), in what you typed"),
    ("Esc  Ctrl-C", "stop what runs; Esc in a question goes back"),
    ("Shift-Tab", "next permission mode"),
    ("Ctrl-O", "show the last folded result in full; again: the one before"),
    ("Ctrl-R  Ctrl-S", "search what you typed before, backwards and forwards"),
    ("Ctrl-X Ctrl-E", "continue in your editor; with vi keys: v"),
    ("Ctrl-_", "undo"),
    ("Tab", "complete; the menu comes by itself"),
    ("!command", "run a shell command yourself; the agent sees it with your next words"),
    ("#words", "write a note that is kept through every summary"),
    ("@path  #ref", "attach a file or directory, or refer to an entry of the log"),
    ("Ctrl-V", "attach the image that is in the clipboard"),
    ("Ctrl-Z", "to the shell; fg comes back"),
    ("Ctrl-B", "send what the agent waits for to the background; /tasks lists it"),
    ("Ctrl-D", "leave; so does Ctrl-C twice"),
)
LINE_KEYS = (  # what works where lines are read
    ("Ctrl-C", "stop what runs"),
    *(row for row in KEYS if row[0][0] in "!#@" or row[0] in ("Ctrl-Z", "Ctrl-D")),
)


@command("what you can do here", anytime=True)
async def _help(repl: CommandContext, argument: str) -> None:
    await read_command_files(repl)
    rows = [(f"/{c.name} {c.argument}".strip(), c.help) for c in COMMANDS.values()]
    repl.show_table(rows)
    if files := added_commands(repl).values():
        repl.say("commands of your own and of the project:")
        repl.show_table([(f"/{c.name} {c.argument}".strip(), c.help) for c in files])
    names: dict[str, list[str]] = {}
    for name, meant in habits("aliases").items():
        names.setdefault(meant, []).append(f"/{name}")
    same = " · ".join(f"{meant} = {', '.join(found)}" for meant, found in names.items())
    repl.say(f"names of other agents: {same}")
    repl.put("")
    repl.show_table(KEYS if repl.screen.paints else LINE_KEYS)


@command("a fresh session; this one can be resumed")
async def _new(repl: CommandContext, argument: str) -> None:
    await _open_fresh(repl, "")


@command(
    "a fresh session, told where this one stood; all: nothing",
    argument="[all]",
    complete=completions.fixed(("all",)),
)
async def _clear(repl: CommandContext, argument: str) -> None:
    """Open a fresh session that is told the first level of recovery."""
    from ...compaction.recovery import recovery_text

    if argument not in ("", "all"):
        raise UsageError(
            f"/clear does not take {argument!r}",
            hint="/clear hands over where this session stood, /clear all hands over nothing.",
        )
    told = repl.handed_over
    if repl.session:
        told = recovery_text(repl.agent.ledger, repl.agent.view.summary, 1) or told
    await _open_fresh(repl, "" if argument else told)


async def _open_fresh(repl: CommandContext, told: str) -> None:
    """Open a fresh session that is told this text, and say what it has of the one before."""
    if not await repl.may_end_tasks():
        return
    left_behind = _left_behind(repl.agent) if repl.session else []
    left = repl.session
    await repl.reopen(prior=told)
    agent = repl.agent
    effort = f" · effort {agent.model.effort}" if agent.model.effort else ""
    same = f"permission mode {agent.approval.mode} · model {agent.model.id}{effort}"
    rows = [("carried over", f"where the old session stood (below) · {same}" if told else same)]
    if left_behind:
        rows += [
            ("left behind", " · ".join(left_behind)),
            ("to go back", f"/resume {left}"),
            ("to look up", "the agent searches the old session with Recall, you with /recover"),
        ]
    repl.say("fresh session")
    repl.show_table(rows)
    if told:
        repl.say(f"handed over:\n{told}")


def _more(names: "Sequence[str]", noun: str) -> list[str]:
    """Return a line that counts the names that are not listed, if there are any."""
    left = len(names) - MAX_DIFF_FILES
    return [f"… +{count_of(left, noun)}"] if left > 0 else []


def _left_behind(agent: "AgentState") -> list[str]:
    """Return what a fresh session does not have of this one; nothing if this one is not kept."""
    if not agent.log.path.exists():  # nothing was said, or the log is gone
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


@command("the agent's todo list", anytime=True)
async def _todo(repl: CommandContext, argument: str) -> None:
    from ..render import tool_calls

    if todos := repl.agent.context.todos:
        repl.put(tool_calls.todos(todos))
    else:
        repl.say("the todo list is empty")


@command("write this session to a file: Markdown, .html or .json", argument="[FILE]")
async def _export(repl: CommandContext, argument: str) -> None:
    from ...context.window import LEVELS
    from ...export import WindowScale, export

    log = repl.agent.log.path
    if not log.exists():
        raise UsageError("there is nothing to export yet: this session is empty")
    name = Path(argument or f"ctxagent-{repl.session}.md")
    format, scale = _FORMATS.get(name.suffix.lower(), "md"), None
    repl.doing(f"writing {name}")
    if format == "html":
        scale = WindowScale((await repl.agent.model.window()).size, LEVELS)
    redact = repl.agent.log.redact
    text = await asyncio.to_thread(export, log, format, scale=scale, redact=redact)
    path = await asyncio.to_thread(_write_new, repl.services.cwd, name, text)
    repl.say(f"written to {path}")


@command(
    "uncommitted changes, of the project or of one file or folder", argument="[PATH]", anytime=True
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
    """Show in full what has changed in a file or below a folder, new files as added."""
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
        if not name.endswith("/"):  # a repository inside
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


@command("leave; exit or quit without the slash does too", anytime=True)
async def _exit(repl: CommandContext, argument: str) -> None:
    await repl.leave()


@command("leave", anytime=True)
async def _quit(repl: CommandContext, argument: str) -> None:
    await repl.leave()


async def _git(repl: CommandContext, *arguments: str) -> tuple[int, str, str]:
    """Run git with the environment of the tools, without keys; return exit code, output, errors.

    Raises CtxagentError when git cannot be run.
    """
    from ....tools.system.programs import program
    from ...worktree.git import safe_git_environment

    # The settings of a repository can name programs to run; these options turn them off.
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
        except OSError:  # a partial file would be in the way of the next try
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise UsageError(f"{path} already exists", hint="Give another name: /export FILE") from None
    except OSError as error:
        raise CtxagentError(f"cannot write {path}: {error.strerror}") from error
    return path
