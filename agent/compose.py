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
from .aftermath import aftermath
from .agents import AgentType, listed, load
from .approval import Approval
from .changes import Edit as Edited
from .changes import Watch
from .compaction.checkpoint import take
from .compaction.policy import PRESETS, Policy
from .compaction.preserve import preserved_text
from .confinement import confine, own_places
from .context import tokens
from .errors import UsageError
from .events import Ask, Emit, Notice, SessionOpened
from .launch import SCRIPTED, Choice, Launch
from .loop import Loop
from .model.base import UNKNOWN, Model, known
from .occasions import occasion
from .recall import equip
from .record.checkout import branch
from .record.checkpoints import Checkpoints
from .record.entries import Entry, Session
from .record.handover import left_behind, listing
from .record.index import Index
from .record.log import Log
from .record.sessions import AGENTS, Project, placed
from .record.stale import stale
from .record.worktree import WorkTree
from .redaction import of as secrets_of
from .resumption import Resumption, begin, carry, go_on
from .settings import Settings
from .shapes import PRESET
from .spending import Spending
from .standing import Standing
from .subagent import Agents, Order


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
    log, standing, resumption = _session(project, choice)
    with log.kept_if_well():
        types, warnings = _types(launch, log.path)
        folder, resumed = log.path.parent, standing.entries
        parts = _Parts(
            log=log,
            standing=standing,
            resumption=resumption,
            model=model,
            tools=every_tool(types),
            approval=Approval(
                mode=permissions.mode,
                allow=permissions.allow,
                ask=permissions.ask,
                deny=permissions.deny,
                cwd=launch.cwd,
                readable=(folder, *project.folders(standing.origins - {folder.name})),
                own=own_places(launch),
            ),
            spending=Spending(launch.bounds),
            system=prompt.system(launch.append_prompt),
            prior=launch.prior,
        )
        loop = _put_together(launch, parts, emit, ask)
        loop.types = types
        loop.context.spawn = Agents(loop, lambda order: _open_agent(launch, loop, order)).run
        Index(placed(log.path)[0]).warm()  # in the background
        log.tell = lambda text: emit(Notice("warning", text))
        emit(SessionOpened(folder.name, str(log.path), model.id, resumed))
        for warning in [*log.warnings, *_moved(standing.began, launch.cwd), *warnings]:
            emit(Notice("warning", warning))
    return loop


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a conversation has of its own, and a subagent's in another way than its parent."""

    log: Log
    standing: Standing
    resumption: Resumption
    model: Model
    tools: Sequence[Tool[Any]]
    approval: Approval
    spending: Spending
    system: str
    prior: str = ""
    edits: list[Edited] = field(default_factory=list)


def _put_together(launch: Launch, parts: _Parts, emit: Emit, ask: Ask | None) -> Loop:
    settings, log, standing = launch.settings, parts.log, parts.standing
    folder = log.path.parent
    context = _context(launch, log, standing)
    worktree = _worktree(launch, folder, context)
    checkpoints = Checkpoints(folder, worktree, standing.numbering)
    left = left_behind(folder, standing.untold, standing.ledger.agents.values())
    for entry in left:  # what they have used counts before it is recorded
        standing.totals.add(entry)
    resumed = standing.entries > 0

    async def hook(name: str, event: Mapping[str, Any]) -> str | None:
        return await occasion(launch, loop, name, event, resumed=resumed)

    loop = Loop(
        log=log,
        view=standing.view,
        ledger=standing.ledger,
        totals=standing.totals,
        checkpoints=checkpoints,
        resumption=parts.resumption,
        watch=Watch(worktree, context, folder.name, parts.edits),
        model=parts.model,
        tools=parts.tools,
        approval=parts.approval,
        context=context,
        emit=emit,
        ask=ask,
        opening=lambda: _opening(launch, loop, parts),
        surroundings=lambda: [
            *_surroundings(launch, loop, parts.prior),
            *left,
            *(aftermath(log.path, loop.ledger, worktree, parts.tools, left) if resumed else ()),
        ],
        renewal=lambda: _renewal(launch, loop),
        hook=hook,
        tool_hook=hook if settings.hooks.before_tool or settings.hooks.after_tool else None,
        checkpoint=lambda trigger: take(loop, checkpoints, trigger, mode=loop.approval.mode),
        policy=policy_of(settings),
        spending=parts.spending,
        max_tokens=settings.model.max_tokens,
        effort=settings.model.effort,
    )
    loop.alignment.resume(standing.summary, standing.ended)
    return loop


def _open_agent(launch: Launch, parent: Loop, order: Order) -> Loop:
    """Open a subagent. Raises SessionError when it cannot be resumed, UsageError for a budget that
    cannot be kept with its model."""
    log, standing, resumption = go_on(order.log) if order.log.exists() else begin(order.log)
    with log.kept_if_well():
        model = _model_of(launch, parent, order, standing.view.model)
        loop = _put_together(
            launch,
            _Parts(
                log=log,
                standing=standing,
                resumption=resumption,
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
    shared = model is parent.model
    loop.limits, loop.effort = (parent.limits, parent.effort) if shared else (None, None)
    for warning in log.warnings:
        order.emit(Notice("warning", warning))
    return loop


def _model_of(launch: Launch, parent: Loop, order: Order, before: str) -> Model:
    """The parent's own model, unless the subagent is to have another one or had it before. That one
    has the window that is its own."""
    wanted = order.model or before or parent.model.id
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
    store = Project(launch.state, launch.cwd).folder / "worktree.git"
    return WorkTree(launch.cwd, store=store, index=folder / "worktree.index", env=context.env)


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


def _context(launch: Launch, log: Log, standing: Standing) -> Context:
    """What the tools are handed."""
    context = Context(
        cwd=launch.cwd,
        session_dir=log.path.parent,
        env=child_environment(launch.environ, launch.settings.bash.keep_env),
        sandbox=confine(launch, log.path.parent),
    )
    address, shapes = launch.settings.model.base_url, launch.settings.state.redact
    redaction = secrets_of(launch.environ, address, shapes=shapes)
    context.sieve, context.redact = redaction.sieve, redaction.output
    log.redact = redaction.entry
    equip(context, placed(log.path)[0], log.path)
    context.seen.digests |= standing.seen
    context.todos[:] = standing.todos
    return context


def _session(project: Project, choice: Choice) -> tuple[Log, Standing, Resumption]:
    if choice.id is None and not choice.newest:
        return begin(project.new())
    path = project.newest() if choice.id is None else project.find(choice.id)
    if choice.fork:
        copy = project.fork(path)
        carry(path, copy)
        path = copy
    return go_on(path, read_only=choice.read_only)


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
        parent=_parent(loop, parts.standing),
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


def _parent(loop: Loop, standing: Standing) -> dict[str, Any] | None:
    """The session that the entries come from, when this one is a fork of it."""
    if standing.session in ("", loop.log.path.parent.name):
        return None
    return {"id": standing.session, "seq": standing.newest}


def _moved(began: str | None, cwd: Path) -> list[str]:
    if began is None or os.path.realpath(began) == os.path.realpath(cwd):
        return []
    return [f"this session began in {began}; it goes on in {cwd}"]
