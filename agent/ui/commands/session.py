"""Commands about the session: a fresh one, looking at this one, leaving."""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import CtxagentError, UsageError
from .command_context import CommandContext
from .registry import COMMANDS, command

if TYPE_CHECKING:
    from ...export import ExportFormat

MAX_DIFF_FILES = 20
_DIFF = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    # A repository inside has settings of its own, and git would read them there.
    "--submodule=short", "--ignore-submodules=dirty",
)  # fmt: skip
_FORMATS: dict[str, "ExportFormat"] = {".html": "html", ".htm": "html", ".json": "json"}
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
async def _help(repl: CommandContext, argument: str) -> None:
    rows = [(f"/{c.name} {c.argument}".strip(), c.help) for c in COMMANDS.values()]
    repl.show_table(rows)
    repl.put("")
    repl.show_table(KEYS)


@command("a fresh session that is told where this one stood")
async def _clear(repl: CommandContext, argument: str) -> None:
    """Open a fresh session that is told the first level of recovery."""
    from ...compaction.recovery import recovery_text

    left, prior, more = repl.session, repl.handed_over, ""
    if left:
        agent = repl.agent
        prior = recovery_text(agent.ledger, agent.view.summary, 1) or prior
        if agent.log.path.exists():  # the log may be gone
            more = f"\nall of it: /resume {left}"
    await repl.reopen(prior=prior)
    if prior:
        repl.say(f"handed over:\n{prior}{more}")


@command("the agent's list of things to do", anytime=True)
async def _todo(repl: CommandContext, argument: str) -> None:
    from ..render import tool_calls

    if todos := repl.agent.context.todos:
        repl.put(tool_calls.todos(todos))
    else:
        repl.say("nothing on the list")


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
        scale = WindowScale((await repl.agent.window()).size, LEVELS)
    redact = repl.agent.log.redact
    text = await asyncio.to_thread(export, log, format, scale=scale, redact=redact)
    path = await asyncio.to_thread(_write_new, repl.services.cwd, name, text)
    repl.say(f"written to {path}")


@command("what has changed in the work tree, or in one file", argument="[PATH]", anytime=True)
async def _diff(repl: CommandContext, argument: str) -> None:
    from ..render import diffs

    if argument:
        code, changes, problem = await _git(repl, *_DIFF, "HEAD", "--", argument)
        if code:
            raise CtxagentError(f"git diff: {problem}")
        if changes:
            repl.put(diffs.diff(changes))
        else:
            repl.say(f"{argument}: nothing has changed")
        return
    code, _, problem = await _git(repl, "rev-parse", "--verify", "--quiet", "HEAD")
    if code == 1:
        _, listed, _ = await _git(repl, "ls-files", "-co", "--exclude-standard")
        names = listed.splitlines()
        more = [f"… +{len(names) - MAX_DIFF_FILES:,} files"] if len(names) > MAX_DIFF_FILES else []
        lines = ["no commits yet; the files:", *names[:MAX_DIFF_FILES], *more]
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
    lines += [f"… +{len(new) - MAX_DIFF_FILES:,} new files"] if len(new) > MAX_DIFF_FILES else []
    repl.say("\n".join(filter(None, lines)) or "nothing has changed")
    for file in files[:MAX_DIFF_FILES]:
        repl.put(diffs.diff(file, fold=True, unfold_hint=" (/diff PATH)"))


@command("leave", anytime=True)
async def _quit(repl: CommandContext, argument: str) -> None:
    repl.screen.exit()


async def _git(repl: CommandContext, *arguments: str) -> tuple[int, str, str]:
    """Run git with the environment of the tools, without keys; return exit code, output, errors.

    Raises CtxagentError when git cannot be run.
    """
    from ....tools.system.programs import program
    from ...worktree.git import safe_git_environment

    # The settings of a repository can name programs to run; these options turn them off.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
    tool_env = repl.agent.context.env
    try:
        env = await asyncio.to_thread(safe_git_environment, repl.services.cwd, tool_env)
        process = await asyncio.create_subprocess_exec(
            *(program("git", tool_env.get("PATH")), *safe, *arguments),
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
        raise UsageError(f"{path} exists", hint="Give another name: /export FILE") from None
    except OSError as error:
        raise CtxagentError(f"cannot write {path}: {error.strerror}") from error
    return path
