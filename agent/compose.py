"""Putting a conversation together: settings, session, model and tools become a `Loop`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..tools import job
from ..tools.base import Context, Tool
from ..tools.bash import Bash
from ..tools.edit import Edit
from ..tools.environment import child_environment
from ..tools.glob import Glob
from ..tools.grep import Grep
from ..tools.read import Read
from ..tools.recall import Recall
from ..tools.task import Task
from ..tools.todo import Todo
from ..tools.write import Write
from . import prompt
from .agents import AgentType, listed, load
from .approval import Approval
from .changes import Edit as Edited
from .changes import Watch
from .compaction.checkpoint import take
from .compaction.policy import PRESETS, Policy
from .compaction.preserve import preserved_text
from .context import tokens
from .context.view import fold
from .errors import CtxagentError, UsageError
from .events import Ask, Emit, Notice, SessionOpened, waiting
from .hooks import run_hooks
from .launch import Choice, Launch
from .loop import Loop
from .model.base import UNKNOWN, Model, known
from .recall import equip
from .record.checkout import branch
from .record.checkpoints import Checkpoints
from .record.entries import Entry, Session, ToolResult
from .record.handover import left_behind, listing
from .record.index import Index
from .record.ledger import Ledger
from .record.log import Log
from .record.sessions import AGENTS, Project, placed
from .record.stale import stale
from .record.totals import Totals
from .record.worktree import WorkTree
from .settings import Settings
from .shapes import PRESET
from .spending import Spending
from .subagent import Agents, Order

SCRIPTED = "scripted:"


def every_tool(types: Sequence[AgentType] = ()) -> list[Tool[Any]]:
    """All tools; `types` are those of subagents, and without any there is no Task."""
    tools: list[Tool[Any]] = [
        Bash(), job.Job(), Read(), Grep(), Glob(), Edit(), Write(), Todo(), Recall(),
    ]  # fmt: skip
    return [*tools, Task(listed(types))] if types else tools


def open_loop(launch: Launch, choice: Choice, *, emit: Emit, ask: Ask | None) -> Loop:
    """Open a session and everything around it.

    Raises SessionError when the session does not exist or is in use, UsageError for a budget that
    cannot be kept, and what the model says of its script.
    """
    tokens.use_vocabulary()
    permissions = launch.settings.permissions
    model = launch.model or make_model(launch.settings, launch.environ)
    _check_price(launch, model)
    project = Project(launch.state, launch.cwd)
    log, entries = _session(project, choice)
    types, warnings = _types(launch, log.path)
    folder = log.path.parent
    parts = _Parts(
        log=log,
        entries=entries,
        model=model,
        tools=every_tool(types),
        approval=Approval(
            mode=permissions.mode,
            allow=permissions.allow,
            ask=permissions.ask,
            deny=permissions.deny,
            cwd=launch.cwd,
            readable=(folder, *project.folders(_origins(entries) - {folder.name})),
        ),
        spending=Spending(launch.bounds),
        system=prompt.system(launch.append_prompt),
        prior=launch.prior,
    )
    loop = _put_together(launch, parts, emit, ask)
    loop.types = types
    loop.context.spawn = Agents(loop, lambda order: _open_agent(launch, loop, order)).run
    Index(placed(log.path)[0]).warm()  # in the background
    emit(SessionOpened(folder.name, str(log.path), model.id, len(entries)))
    for warning in [*log.warnings, *_moved(entries, launch.cwd), *warnings]:
        emit(Notice("warning", warning))
    return loop


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a conversation has of its own, and a subagent's in another way than its parent."""

    log: Log
    entries: Sequence[Entry]
    model: Model
    tools: Sequence[Tool[Any]]
    approval: Approval
    spending: Spending
    system: str
    prior: str = ""
    edits: list[Edited] = field(default_factory=list)


def _put_together(launch: Launch, parts: _Parts, emit: Emit, ask: Ask | None) -> Loop:
    settings, log, entries = launch.settings, parts.log, parts.entries
    folder = log.path.parent
    context = _context(launch, log, entries)
    worktree = _worktree(launch, folder, context)
    ledger, totals, checkpoints = Ledger(), Totals(), Checkpoints(folder, worktree)
    for entry in entries:
        for fold_of in (ledger.add, totals.add, checkpoints.seen):
            fold_of(entry)
    left = left_behind(folder, entries, ledger.agents.values())
    for entry in left:  # what they have used counts before it is recorded
        totals.add(entry)
    loop = Loop(
        log=log,
        view=fold(entries),
        ledger=ledger,
        totals=totals,
        checkpoints=checkpoints,
        watch=Watch(worktree, context, folder.name, parts.edits),
        model=parts.model,
        tools=parts.tools,
        approval=parts.approval,
        context=context,
        emit=emit,
        ask=ask,
        opening=lambda: _opening(launch, loop, parts),
        surroundings=lambda: [*_surroundings(launch, loop, parts.prior), *left],
        renewal=lambda: _renewal(launch, loop),
        hook=lambda name, event: _hook(launch, loop, name, event),
        checkpoint=lambda trigger: take(loop, checkpoints, trigger, mode=loop.approval.mode),
        policy=policy_of(settings),
        spending=parts.spending,
        max_tokens=settings.model.max_tokens,
        effort=settings.model.effort,
    )
    loop.alignment.resume(entries)
    return loop


def _open_agent(launch: Launch, parent: Loop, order: Order) -> Loop:
    """Open a subagent. Raises SessionError when it cannot be resumed, UsageError for a budget that
    cannot be kept with its model."""
    log, entries = Log.open(order.log) if order.log.exists() else (Log.create(order.log), [])
    try:
        model = _model_of(launch, parent, order, entries)
        loop = _put_together(
            launch,
            _Parts(
                log=log,
                entries=entries,
                model=model,
                tools=order.type.of(parent.tools),
                approval=parent.approval.looking() if order.type.looks_only else parent.approval,
                spending=order.spending,
                system=prompt.system(launch.append_prompt, order.type.prompt),
                prior=order.prior,
                edits=parent.watch.edits if parent.watch else [],
            ),
            order.emit,
            order.ask,
        )
    except CtxagentError:
        log.close()
        raise
    shared = model is parent.model
    loop.limits, loop.effort = (parent.limits, parent.effort) if shared else (None, None)
    for warning in log.warnings:
        order.emit(Notice("warning", warning))
    return loop


def _model_of(launch: Launch, parent: Loop, order: Order, entries: Sequence[Entry]) -> Model:
    """The parent's own model, unless the subagent is to have another one or had it before. That one
    has the window that is its own."""
    before = (entry.model for entry in reversed(entries) if isinstance(entry, Session))
    wanted = order.model or next(before, parent.model.id)
    if wanted == parent.model.id:
        return parent.model
    chosen = replace(launch.settings.model, id=wanted, context_window=None)
    model = make_model(replace(launch.settings, model=chosen), launch.environ)
    _check_price(launch, model)
    return model


def _check_price(launch: Launch, model: Model) -> None:
    if launch.bounds.dollars is not None and known(model.id) is None:
        raise UsageError(
            f"the price of {model.id} is not known, so a budget in dollars cannot be kept",
            hint="Use --max-turns, or a model with a known price.",
        )


def _types(launch: Launch, log: Path) -> tuple[list[AgentType], list[str]]:
    """The types of subagents that a conversation can start, with warnings; none for one that is
    itself a subagent's."""
    if log.parent.parent.name == AGENTS:
        return [], []
    return load(
        launch.cwd,
        config_home=launch.config_home,
        home=Path(launch.environ.get("HOME") or Path.home()),
        trust_dir=launch.trust or launch.state,
        tools=[tool.name for tool in every_tool()],
    )


def _worktree(launch: Launch, folder: Path, context: Context) -> WorkTree:
    """The files of the project, with their store among its sessions."""
    project = Project(launch.state, launch.cwd)
    store, index = project.folder / "worktree.git", folder / "worktree.index"
    return WorkTree(launch.cwd, store=store, index=index, env=context.env)


def policy_of(settings: Settings) -> Policy:
    """The policy of the chosen preset, with every number that the settings give in its place."""
    compact, clearing = settings.compact, settings.microcompact
    chosen: dict[str, Any] = {
        "mode": compact.mode,
        "summarize_at": compact.at,
        "prepare_at": compact.prepare_at,
        "keep_tokens": compact.keep_tokens,
        "keep_messages": compact.keep_messages,
        "model": compact.model,
        "summarizer": compact.summarizer,
        "demote_above": settings.demote.above,
        "preview_chars": settings.demote.preview_chars,
        "clear_when": PRESET if clearing.when == "auto" else clearing.when,
        "clear_from": clearing.from_,
        "clear_keep": clearing.keep,
        "clear_above": clearing.above,
        "clear_tools": clearing.tools,
        "truncate_at": settings.truncate.at,
        "checkpoint_at": settings.checkpoint.at,
        "rules": replace(PRESETS[compact.preset].rules, **asdict(settings.preserve)),
    }
    given = {name: value for name, value in chosen.items() if value != PRESET}
    return replace(PRESETS[compact.preset], **given)


def make_model(settings: Settings, environ: Mapping[str, str]) -> Model:
    """The model the settings name. `scripted:FILE` plays a file of steps and says so."""
    chosen = settings.model
    if chosen.id.startswith(SCRIPTED):
        from .model.scripted import ScriptedModel

        window = chosen.context_window or UNKNOWN.window
        return ScriptedModel.from_file(Path(chosen.id.removeprefix(SCRIPTED)), window=window)
    from .model.anthropic import AnthropicModel

    return AnthropicModel(
        chosen.id,
        base_url=chosen.base_url,
        context_window=chosen.context_window,
        environ=environ,
    )


def change_model(loop: Loop, launch: Launch, id: str) -> None:
    """Go on with another model. Recorded, because thinking is bound to the model that thought.

    Raises UsageError for a script that cannot be read.
    """
    settings = replace(launch.settings, model=replace(launch.settings.model, id=id))
    loop.model, loop.limits = make_model(settings, launch.environ), None
    if loop.log.last_seq:
        loop.record(
            Session(
                id=loop.log.path.parent.name,
                cwd=str(launch.cwd),
                branch=branch(launch.cwd),
                version=__version__,
                model=id,
            )
        )


def _context(launch: Launch, log: Log, entries: Sequence[Entry]) -> Context:
    """What the tools are handed."""
    context = Context(
        cwd=launch.cwd,
        session_dir=log.path.parent,
        env=child_environment(launch.environ, launch.settings.bash.keep_env),
    )
    equip(context, placed(log.path)[0], log.path)
    _restore(context, entries)
    return context


def _session(project: Project, choice: Choice) -> tuple[Log, list[Entry]]:
    if choice.id is None and not choice.newest:
        return Log.create(project.new()), []
    path = project.newest() if choice.id is None else project.find(choice.id)
    return Log.open(project.fork(path) if choice.fork else path)


def _opening(launch: Launch, loop: Loop, parts: _Parts) -> Session:
    """Who opened the session, with the system prompt and the tools where they changed."""
    system = parts.system
    schemas = [tool.schema() for tool in loop.tools]
    return Session(
        id=loop.log.path.parent.name,
        cwd=str(launch.cwd),
        branch=branch(launch.cwd),
        version=__version__,
        model=loop.model.id,
        system=None if system == loop.view.system else system,
        tools=None if schemas == loop.view.tools else schemas,
        parent=_parent(loop, parts.entries),
    )


def _surroundings(launch: Launch, loop: Loop, prior: str) -> list[Entry]:
    """Where this is and what the project says, where the context does not say it yet; to a session
    that goes on, what others changed meanwhile."""
    if any(item.source == "environment" for item in loop.view.items):
        return prompt.changed(stale(loop.ledger))
    return prompt.opening(launch.cwd, launch.config_home, loop.context.env, prior)


def _renewal(launch: Launch, loop: Loop) -> list[Entry]:
    """What must stand in the context after a summary."""
    return prompt.renewal(
        launch.cwd,
        launch.config_home,
        mode=loop.approval.mode,
        todos=loop.context.todos,
        jobs=job.listing(loop.context.jobs),
        agents=listing(loop.ledger.agents.values()),
        preserved=preserved_text(loop.sections()),
        changed=stale(loop.ledger),
    )


async def _hook(launch: Launch, loop: Loop, name: str, event: dict[str, Any]) -> str | None:
    """Run the person's commands for a point by name, if there are any."""
    commands = getattr(launch.settings.hooks, name)
    with waiting(loop.emit, f"the hooks of {name}" if commands else ""):
        return await run_hooks(
            commands,
            {"event": name, "session": loop.folder.name, **event},
            cwd=launch.cwd,
            env=loop.context.env,
            warn=lambda text: loop.emit(Notice("warning", text)),
        )


def _origins(entries: Sequence[Entry]) -> set[str]:
    """The sessions that the entries come from: a copy still names what the original offloaded."""
    return {entry.id for entry in entries if isinstance(entry, Session)}


def _parent(loop: Loop, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """The session that the entries come from, when this one is a fork of it."""
    last = next((e for e in reversed(entries) if isinstance(e, Session)), None)
    if last is None or last.id == loop.log.path.parent.name:
        return None
    return {"id": last.id, "seq": entries[-1].seq}


def _restore(context: Context, entries: Sequence[Entry]) -> None:
    """What the tools knew when the session was left: files seen, and the list of things to do."""
    for entry in entries:
        if not isinstance(entry, ToolResult):
            continue
        seen = entry.details.get("seen")
        if isinstance(seen, dict) and "path" in seen and "sha256" in seen:
            context.seen.digests[str(seen["path"])] = str(seen["sha256"])
        if isinstance(entry.details.get("todos"), list):
            context.todos[:] = entry.details["todos"]


def _moved(entries: Sequence[Entry], cwd: Path) -> list[str]:
    first = next((e for e in entries if isinstance(e, Session)), None)
    if first is None or os.path.realpath(first.cwd) == os.path.realpath(cwd):
        return []
    return [f"this session began in {first.cwd}; it goes on in {cwd}"]
