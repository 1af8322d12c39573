"""Slash commands: one registry, from which help, completion and dispatch follow.

A command is a coroutine over a `Desk`, what it may see and do of the REPL, and the words after its
name. It prints through the desk and raises CtxagentError for what cannot be done. Those marked
`anytime` only look, and so run at once even while a turn runs.
"""

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import CtxagentError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..approval import Mode
    from ..loop import Loop
    from ..record.entries import Entry

MODES: "tuple[Mode, ...]" = ("ask", "accept-edits", "plan", "bypass")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
LISTED = 10  # sessions or items in a list
LOGGED = 20  # entries that /log shows


class Desk(Protocol):
    """What a command may see and do."""

    @property
    def loop(self) -> "Loop":
        """The open conversation. Raises CtxagentError when none is open."""
        ...

    @property
    def session(self) -> str:
        """Its id, "" when none is open."""
        ...

    @property
    def cwd(self) -> Path: ...

    def put(self, *renderables: "RenderableType") -> None: ...

    async def reopen(
        self, *, resume: str | None = None, fork: bool = False, fresh: bool = False
    ) -> None:
        """Go over to another session; the one left stays on disk."""
        ...

    def sessions(self) -> Sequence[Path]:
        """Logs of this project, newest first."""
        ...

    def settings(self) -> Sequence[Sequence[str]]:
        """Rows of key, value, origin."""
        ...

    def set_model(self, id: str) -> None: ...

    def leave(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` shows what may follow the name, e.g. `[ID]`."""

    name: str
    help: str
    run: Callable[[Desk, str], Awaitable[None]]
    argument: str = ""
    anytime: bool = False


COMMANDS: dict[str, Command] = {}


def parse(words: str) -> tuple[Command, str] | None:
    """The command that the words call, and its argument; None when they are for the model.

    A beginning that only one command has is enough. Raises UsageError for an unknown one.
    """
    name, _, argument = words.strip().partition(" ")
    if not name.startswith("/") or "/" in name[1:] or "\n" in name:
        return None
    wanted = name[1:]
    found = [wanted] if wanted in COMMANDS else [n for n in COMMANDS if n.startswith(wanted)]
    if len(found) == 1:
        return COMMANDS[found[0]], argument.strip()
    near = found or difflib.get_close_matches(wanted, COMMANDS, 1)
    hint = f"Did you mean {', '.join(f'/{n}' for n in near)}?" if wanted and near else ""
    raise UsageError(f"there is no command {name}", hint=hint or "/help lists them all.")


def _command(
    help: str, *, argument: str = "", anytime: bool = False
) -> Callable[[Callable[[Desk, str], Awaitable[None]]], None]:
    """Register the function `_name` as the command `/name`."""

    def register(run: Callable[[Desk, str], Awaitable[None]]) -> None:
        name = run.__name__.strip("_")
        COMMANDS[name] = Command(name, help, run, argument, anytime)

    return register


@_command("what you can do here", anytime=True)
async def _help(desk: Desk, argument: str) -> None:
    from . import render

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


@_command("a fresh session; this one stays on disk")
async def _clear(desk: Desk, argument: str) -> None:
    await desk.reopen(fresh=True)


@_command("go on with another session", argument="[ID]")
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


@_command("the sessions of this project", anytime=True)
async def _sessions(desk: Desk, argument: str) -> None:
    _list_sessions(desk, "")


@_command("go on in a copy of this session")
async def _fork(desk: Desk, argument: str) -> None:
    if not desk.loop.log.last_seq:
        raise UsageError("there is nothing to copy yet: this session is empty")
    await desk.reopen(resume=desk.session, fork=True)


@_command("show or change the model", argument="[ID]")
async def _model(desk: Desk, argument: str) -> None:
    from . import render

    if argument:
        desk.set_model(argument)
    window = await desk.loop.window()
    limits = desk.loop.limits
    source = f", by {limits.source}" if limits else ""
    desk.put(render.dim(f"{desk.loop.model.id} · window {window.size:,} tokens{source}"))


@_command("show or set how hard the model thinks", argument="[LEVEL]")
async def _effort(desk: Desk, argument: str) -> None:
    from . import render

    if argument and argument not in EFFORTS:
        raise UsageError(f"there is no effort {argument!r}", hint=f"One of {', '.join(EFFORTS)}.")
    if argument:
        desk.loop.effort = argument
    desk.put(render.dim(f"effort: {desk.loop.effort or 'as the model has it'}"))


@_command("show the rules, or set the mode", argument="[MODE]", anytime=True)
async def _permissions(desk: Desk, argument: str) -> None:
    from . import render

    approval = desk.loop.approval
    if argument:
        mode = next((mode for mode in MODES if mode == argument), None)
        if mode is None:
            raise UsageError(f"there is no mode {argument!r}", hint=f"One of {', '.join(MODES)}.")
        approval.mode = mode
    rows: list[tuple[str, str]] = [("mode", approval.mode)]
    rows += [(name, rule) for name, rules in approval.rules().items() for rule in rules]
    desk.put(render.table(rows))


@_command("how full the context is, and of what", anytime=True)
async def _context(desk: Desk, argument: str) -> None:
    from . import render

    loop = desk.loop
    window = loop.measured()
    free = max(0, window.size - window.tokens)
    desk.put(
        render.dim(
            f"{window.tokens:,} of {window.size:,} tokens · {window.share:.0%} {window.level} · "
            f"{free:,} free"
        )
    )
    calls = {
        str(block.get("id")): str(block.get("name"))
        for item in loop.view.items
        for block in item.blocks
        if block.get("type") == "tool_use"
    }
    largest = sorted(loop.view.items, key=lambda item: -item.size)[:LISTED]
    rows = [
        (f"#{i.seq}", f"{round(i.size * loop.view.ratio):,}", _item(i.role, i.blocks, calls))
        for i in largest
    ]
    if rows:
        desk.put(render.table(rows, head=("largest", "tokens", ""), wrap=False))


@_command("tokens and money of this session", anytime=True)
async def _cost(desk: Desk, argument: str) -> None:
    from . import render

    totals = desk.loop.totals
    usage = totals.usage
    price = "the model's price is not known"
    if totals.cost_usd is not None:
        price = render.dollars(totals.cost_usd)
    rows = [
        ("cost", price),
        ("input", f"{usage.input:,}"),
        ("from cache", f"{usage.cache_read:,}"),
        ("to cache", f"{usage.cache_creation:,}"),
        ("output", f"{usage.output:,}"),
        ("calls", f"{totals.calls:,} of the model, {totals.tool_calls:,} of tools"),
    ]
    desk.put(render.table(rows))


@_command("the agent's list of things to do", anytime=True)
async def _todo(desk: Desk, argument: str) -> None:
    from . import render

    todos = desk.loop.context.todos
    desk.put(render.todos(todos) if todos else render.dim("nothing on the list"))


@_command("the tools the model has", anytime=True)
async def _tools(desk: Desk, argument: str) -> None:
    from . import render

    rows = [(t.name, t.effect, t.description.strip().split("\n")[0]) for t in desk.loop.tools]
    desk.put(render.table(rows))


@_command("every setting, and where it came from", anytime=True)
async def _config(desk: Desk, argument: str) -> None:
    from . import render

    desk.put(render.table(desk.settings()))


@_command("write this session to a file: Markdown, or JSON by its ending", argument="[FILE]")
async def _export(desk: Desk, argument: str) -> None:
    from ..record import sessions
    from . import render

    log = desk.loop.log.path
    if not log.exists():
        raise UsageError("there is nothing to export yet: this session is empty")
    name = Path(argument or f"ctxagent-{desk.session}.md")
    text = sessions.export(log, "json" if name.suffix == ".json" else "md")
    path = _write_new(desk.cwd, name, text)
    desk.put(render.dim(f"written to {path}"))


@_command("the newest entries of the log", anytime=True)
async def _log(desk: Desk, argument: str) -> None:
    from . import render

    entries = list(desk.loop.log.entries()) if desk.loop.log.last_seq else []
    rows = [(f"#{e.seq}", e.kind, _entry(e)) for e in entries[-LOGGED:]]
    desk.put(render.table(rows, wrap=False), render.dim(str(desk.loop.log.path)))


@_command("what has changed in the work tree", anytime=True)
async def _diff(desk: Desk, argument: str) -> None:
    from . import render

    # The repository's own settings can name programs; these are not run.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
    command = ("git", *safe, "diff", "--no-ext-diff", "--no-textconv", "--stat", "HEAD")
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=desk.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise CtxagentError(f"git could not be run: {error.strerror}") from error
    out, problem = await process.communicate()
    if process.returncode:
        raise CtxagentError(f"git diff: {problem.decode(errors='replace').strip()}")
    desk.put(render.dim(out.decode(errors="replace").rstrip() or "nothing has changed"))


@_command("leave", anytime=True)
async def _quit(desk: Desk, argument: str) -> None:
    desk.leave()


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
    from ..record import sessions
    from . import render

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


def _item(role: str, blocks: Sequence[dict[str, Any]], calls: dict[str, str]) -> str:
    """What an item of the view is, in a few words."""
    parts = []
    for block in blocks:
        if block.get("type") == "tool_result":
            parts.append(f"result of {calls.get(str(block.get('tool_use_id')), 'a tool')}")
        elif block.get("type") == "tool_use":
            parts.append(f"call of {block.get('name')}")
        elif text := " ".join(str(block.get("text", "")).split()):
            parts.append(text[:60])
    return f"{role}: {', '.join(parts)}" if parts else role


def _entry(entry: "Entry") -> str:
    """An entry in one line."""
    from ..record.entries import encode
    from ..record.sessions import plain

    content = getattr(entry, "content", None)
    if content is None:
        skipped = ("v", "seq", "at", "kind", "system", "tools")
        fields = {
            k: v for k, v in encode(entry).items() if k not in skipped and v not in (None, "")
        }
        said = ", ".join(f"{name} {value}" for name, value in fields.items())
        return " ".join(said.split())[:160]
    calls = [] if isinstance(content, str) else [b for b in content if b.get("type") == "tool_use"]
    names = ", ".join(f"[{b.get('name')}]" for b in calls)
    said = plain([b for b in content if b not in calls] if calls else content)
    return " ".join(f"{said} {names}".split())[:160]
