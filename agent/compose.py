"""Putting a conversation together: settings, session, model and tools become a `Loop`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..tools.base import Context, Tool
from ..tools.bash import Bash
from ..tools.edit import Edit
from ..tools.environment import child_environment
from ..tools.glob import Glob
from ..tools.grep import Grep
from ..tools.job import Job, listing
from ..tools.read import Read
from ..tools.recall import Recall
from ..tools.todo import Todo
from ..tools.write import Write
from . import prompt
from .approval import Approval
from .compaction.policy import PRESETS, Policy
from .context import tokens
from .context.view import fold
from .errors import UsageError
from .events import Ask, Emit, Notice, SessionOpened
from .hooks import run_hooks
from .launch import Choice, Launch
from .loop import Loop
from .model.base import Model, known
from .record.entries import Entry, Session, ToolResult
from .record.ledger import Ledger
from .record.log import Log
from .record.sessions import Project, whole_text
from .record.totals import Totals
from .settings import Settings
from .shapes import PRESET

SCRIPTED = "scripted:"


def every_tool() -> list[Tool[Any]]:
    return [Bash(), Job(), Read(), Grep(), Glob(), Edit(), Write(), Todo(), Recall()]


def open_loop(launch: Launch, choice: Choice, *, emit: Emit, ask: Ask | None) -> Loop:
    """Open a session and everything around it.

    Raises SessionError when the session does not exist or is in use, UsageError for a budget that
    cannot be kept, and what the model says of its script.
    """
    tokens.use_vocabulary()
    settings = launch.settings
    model = launch.model or make_model(settings, launch.environ)
    if launch.bounds.dollars is not None and known(model.id) is None:
        raise UsageError(
            f"the price of {model.id} is not known, so a budget in dollars cannot be kept",
            hint="Use --max-turns, or a model with a known price.",
        )
    project = Project(launch.state, launch.cwd)
    log, entries = _session(project, choice)
    tools = every_tool()
    folder = log.path.parent
    context = Context(
        cwd=launch.cwd,
        session_dir=folder,
        env=child_environment(launch.environ, settings.bash.keep_env),
    )
    context.recall = lambda ref: whole_text(log.path, ref)
    _restore(context, entries)
    ledger, totals = Ledger(), Totals()
    for entry in entries:
        ledger.add(entry)
        totals.add(entry)
    loop = Loop(
        log=log,
        view=fold(entries),
        ledger=ledger,
        totals=totals,
        model=model,
        tools=tools,
        approval=Approval(
            mode=settings.permissions.mode,
            allow=settings.permissions.allow,
            ask=settings.permissions.ask,
            deny=settings.permissions.deny,
            cwd=launch.cwd,
            readable=(folder, *project.folders(_origins(entries) - {folder.name})),
        ),
        context=context,
        emit=emit,
        ask=ask,
        opening=lambda: _opening(launch, loop, entries),
        surroundings=lambda: _surroundings(launch, loop),
        renewal=lambda: _renewal(launch, loop),
        hook=lambda name, event: _hook(launch, loop, name, event),
        policy=policy_of(settings),
        bounds=launch.bounds,
        max_tokens=settings.model.max_tokens,
        effort=settings.model.effort,
    )
    emit(SessionOpened(folder.name, str(log.path), model.id, len(entries)))
    for warning in [*log.warnings, *_moved(entries, launch.cwd)]:
        emit(Notice("warning", warning))
    return loop


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
    }
    given = {name: value for name, value in chosen.items() if value != PRESET}
    return replace(PRESETS[compact.preset], **given)


def make_model(settings: Settings, environ: Mapping[str, str]) -> Model:
    """The model the settings name. `scripted:FILE` plays a file of steps and says so."""
    chosen = settings.model
    if chosen.id.startswith(SCRIPTED):
        from .model.scripted import ScriptedModel

        return ScriptedModel.from_file(Path(chosen.id.removeprefix(SCRIPTED)))
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
                id=loop.log.path.parent.name, cwd=str(launch.cwd), version=__version__, model=id
            )
        )


def _session(project: Project, choice: Choice) -> tuple[Log, list[Entry]]:
    if choice.id is None and not choice.newest:
        return Log.create(project.new()), []
    path = project.newest() if choice.id is None else project.find(choice.id)
    return Log.open(project.fork(path) if choice.fork else path)


def _opening(launch: Launch, loop: Loop, entries: Sequence[Entry]) -> Session:
    """Who opened the session, with the system prompt and the tools where they changed."""
    system = prompt.system(launch.append_prompt)
    schemas = [tool.schema() for tool in loop.tools]
    return Session(
        id=loop.log.path.parent.name,
        cwd=str(launch.cwd),
        version=__version__,
        model=loop.model.id,
        system=None if system == loop.view.system else system,
        tools=None if schemas == loop.view.tools else schemas,
        parent=_parent(loop, entries),
    )


def _surroundings(launch: Launch, loop: Loop) -> list[Entry]:
    """Where this is and what the project says, where the context does not say it yet."""
    told = any(item.source == "environment" for item in loop.view.items)
    return [] if told else prompt.opening(launch.cwd, launch.config_home, loop.context.env)


def _renewal(launch: Launch, loop: Loop) -> list[Entry]:
    """What must stand in the context after a summary."""
    return prompt.renewal(
        launch.cwd,
        launch.config_home,
        mode=loop.approval.mode,
        todos=loop.context.todos,
        jobs=listing(loop.context.jobs),
    )


async def _hook(launch: Launch, loop: Loop, name: str, event: dict[str, Any]) -> str | None:
    """Run the person's commands for a point by name, if there are any."""
    commands = getattr(launch.settings.hooks, name)
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
