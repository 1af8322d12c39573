"""Commands about this session: start a new one, inspect, copy or export this one, leave.

/status shows its state, /cost its tokens and cost by purpose. /copy puts its last answer on the
clipboard.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Reversible
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.phrasing import count_of
from ....tools.system.unicode import clean
from ...config.keyboard import key_name
from ...errors import CtxagentError, UsageError
from ...extensions.command import command
from ...lazy import regex
from . import completions
from .command_context import CommandContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...loop.agent import AgentState
    from ...loop.budget import BillLine, SessionBill
    from ...pages.export import ExportFormat
    from ...session.entries import Entry, SubagentRun
    from ...session.totals import Counts

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
    "empty the context; --keep: hand over the state",
    argument="[--keep]",
    complete=completions.fixed(("--keep",)),
    group="conversation",
)
async def _clear(repl: CommandContext, argument: str) -> None:
    """Open a new session with an empty context, or with a level 1 hand-over of this one."""
    from ...compaction.recovery import recovery_text

    if argument not in ("", "--keep"):
        raise UsageError(
            f"/clear does not take {argument!r}",
            hint="/clear empties the context, /clear --keep hands over the state of this session.",
        )
    told = repl.handed_over if argument else ""
    if argument and repl.session:
        ledger, summary = repl.agent.ledger, repl.agent.view.summary
        told = recovery_text(ledger, summary, 1, is_handed_over=True) or told
    await _open_fresh(repl, told)


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
    from ...pages.export import export

    log = repl.agent.log.path
    if not log.exists():
        raise UsageError(
            "there is nothing to export yet: this session is empty", hint="Send a message first."
        )
    name = Path(argument or f"ctxagent-{repl.session}.md")
    format: ExportFormat = _FORMATS.get(name.suffix.lower(), "md")
    repl.show_activity(f"writing {name}")
    window = (await repl.agent.model.window()).size if format == "html" else None
    redact = repl.agent.log.redact
    text = await asyncio.to_thread(export, log, format, window=window, redact=redact)
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
        raise CtxagentError(
            f"git diff: {problem}", hint="Run `!git status` to see the state of the repository."
        )
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
        raise CtxagentError(
            f"git diff: {problem}", hint="Run `!git status` to see the state of the repository."
        )
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
        raise CtxagentError(
            f"git could not be run: {error.strerror}", hint="Install git, or add it to PATH."
        ) from error
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
        raise CtxagentError(
            f"cannot write {path}: {error.strerror}", hint="Give another path: /export PATH."
        ) from error
    return path


_CODE = regex(r"^ *(`{3,}|~{3,})[^\n]*\n(.*?)^ *\1", re.MULTILINE | re.DOTALL)


@command(
    "session, model, window, mode and cost on one screen",
    anytime=True,
    group="model and cost",
)
async def _status(repl: CommandContext, argument: str) -> None:
    from .. import compaction_report
    from ..render import render
    from ..status import sandbox_mark, short_path

    agent, facts = repl.agent, repl.conversation.facts()
    sandbox, title = agent.context.sandbox, agent.ledger.title
    branch = f" · branch {facts['branch']}" if facts["branch"] else ""
    jobs, agents = len(repl.conversation.running_jobs), len(agent.context.agents)
    rows = [
        ("session", f"{facts['session']}{f' · {title}' if title else ''}"),
        ("log", short_path(agent.log.path)),
        ("directory", f"{short_path(repl.services.cwd)}{branch}"),
        *(("", short_path(Path(name))) for name in agent.approval.folders.names),
        *_fallback(agent),
        ("model", f"{facts['model']} · effort {facts['effort'] or 'model default'}"),
        ("window", compaction_report.usage_line(agent.model.current_window())),
        ("mode", facts["mode"]),
        ("sandbox", f"{sandbox_mark(sandbox)} {sandbox.describe()}".strip() if sandbox else "off"),
        ("cost", render.price(facts["cost_usd"])),
        ("running", f"{jobs:,} jobs, {agents:,} subagents"),
        ("version", facts["version"]),
    ]
    repl.show_table(rows)


def _fallback(agent: "AgentState") -> list[tuple[str, str]]:
    """Return a row with the overloaded model that the fallback replaces, if there is one."""
    first, seconds = agent.model.roles.overloaded
    if not first:
        return []
    again = datetime.now() + timedelta(seconds=seconds)
    when = f"from {again:%H:%M:%S} on" if seconds else "at the next request"
    return [("overloaded", f"{first}, retried {when}; the fallback is answering")]


@command(
    "copy the last answer, or the last code block",
    argument="[code]",
    anytime=True,
    complete=completions.fixed(("code",)),
    group="conversation",
)
async def _copy(repl: CommandContext, argument: str) -> None:
    if argument not in ("", "code"):
        raise UsageError(f"/copy does not take {argument!r}", hint="/copy or /copy code")
    what = "code block" if argument else "answer"
    text = await asyncio.to_thread(_last, repl.agent.log.entries(), code=bool(argument))
    if not text:
        raise UsageError(f"there is no {what} to copy yet", hint="/export writes the session.")
    repl.screen.copy(clean(text))
    repl.say(f"sent to the terminal's clipboard: the last {what}, {len(text):,} characters")
    if os.environ.get("TMUX"):
        repl.say("tmux passes it on after: tmux set -g set-clipboard on")


def _last(entries: "Reversible[Entry]", *, code: bool) -> str:
    """Return the newest text of the agent, or the newest code block in it; "" if there is none."""
    from ...session.entries import Assistant

    for entry in reversed(entries):
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            texts = [str(block["text"]) for block in entry.content if block.get("type") == "text"]
            text = "\n\n".join(filter(str.strip, texts))
            blocks = _CODE.findall(text)
            if found := (blocks[-1][1] if code and blocks else "" if code else text):
                return found
    return ""


MAX_SUBAGENT_ROWS = 10
MAX_PURPOSE_CELLS = 26
HEAD = ("of these", "calls", "prompt", "cached", "output", "cost")


@command("tokens and cost of this session", anytime=True, group="model and cost")
async def _cost(repl: CommandContext, argument: str) -> None:
    from ..render import render

    agent = repl.agent
    found = await asyncio.to_thread(_bill, agent, agent.log.entries())
    totals, usage = found.totals, found.totals.all.usage
    price = "the model's price is not known"
    rows = [
        ("cost", price if totals.all.cost_usd is None else render.dollars(totals.all.cost_usd)),
        ("input", f"{usage.input:,}"),
        ("from cache", f"{usage.cache_read:,}"),
        ("to cache", f"{usage.cache_creation:,}"),
        ("output", f"{usage.output:,}"),
        *_searches(totals.all),
        ("calls", f"{totals.all.calls:,} to the model, {totals.all.tool_calls:,} to tools"),
    ]
    out = [render.table(rows)]
    if len(found.lines) > 1:
        out += ["", render.table(_rows(found), head=HEAD)]
    if usage.prompt and found.saved is not None:
        amount = render.dollars(abs(found.saved))
        saved = f"the cache saved about {amount}"
        if found.saved < 0:
            saved = f"the cache has cost about {amount} more than it has saved so far"
        out += ["", render.dim(saved)]
    repl.put(*out)


def _searches(counts: "Counts") -> list[tuple[str, str]]:
    """Return a row for web searches, if there were any. Their price is part of the cost."""
    from ...models.catalog import DOLLARS_PER_SEARCH
    from ..render import render

    made = counts.usage.web_searches
    price = f", {render.dollars(made * DOLLARS_PER_SEARCH)} of the cost"
    known = counts.cost_usd is not None
    return [("web searches", f"{made:,}{price if known else ''}")] if made else []


def _bill(agent: "AgentState", entries: "Iterable[Entry]") -> "SessionBill":
    from ...loop.budget import session_bill
    from ...session.log import Entries

    def log_of(run: "SubagentRun") -> "Iterable[Entry]":
        path = agent.folder / run.log
        return Entries(path) if path.is_file() else ()

    return session_bill(entries, log_of)


def _rows(found: "SessionBill") -> list[tuple[str, ...]]:
    """Return a row for each purpose, each expensive subagent, the other subagents, and the sum."""
    from ...session.totals import Counts

    agents = [line for line in found.lines if line.agent]
    agents.sort(key=lambda line: (-(line.counts.cost_usd or 0.0), -line.counts.usage.total))
    rows = [_row(_what(line), line.counts) for line in found.lines if line.agent is None]
    rows += [_row(_what(line), line.counts) for line in agents[:MAX_SUBAGENT_ROWS]]
    if rest := agents[MAX_SUBAGENT_ROWS:]:
        counts = sum((line.counts for line in rest), Counts())
        rows.append(_row(count_of(len(rest), "more subagent"), counts))
    return [*rows, _row("all", found.totals.all)]


def _what(line: "BillLine") -> str:
    from rich.text import Text

    if line.agent is None:
        return line.what
    named = Text(" ".join(f"{line.agent.type}: {line.what}".split()))
    named.truncate(MAX_PURPOSE_CELLS, overflow="ellipsis")
    return named.plain


def _row(what: str, counts: "Counts") -> tuple[str, ...]:
    from ..render import bar, render

    usage = counts.usage
    return (
        what,
        f"{counts.calls:,}",
        f"{usage.prompt:,}",
        bar.percentage(usage.cache_read, usage.prompt),
        f"{usage.output:,}",
        render.price(counts.cost_usd),
    )
