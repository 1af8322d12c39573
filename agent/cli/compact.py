"""`ctxagent compact`: preview the next compaction of a session, apply it, or undo the last one."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import CompactionFailed, UsageError
from ..lazy import dataclass
from ..library.launch_parts import check_key
from .options import (
    can_ask,
    exits_with_code,
    is_confirmed,
    launch_of,
    load,
    log_of,
    project_of,
    say,
    say_lines,
    say_notices,
    single_action,
)

if TYPE_CHECKING:
    from ..events import Event
    from ..launch import LaunchOptions
    from ..loop.agent import AgentState
    from ..session.entries import Entry

ALL = "--all"


@click.command(epilog="Example: ctxagent compact --dry-run")
@click.argument("id", required=False)
@click.option(
    "--dry-run", is_flag=True, help="Show what a compaction would do, without asking a model."
)
@click.option("--apply", is_flag=True, help="Compact the session.")
@click.option("--undo", is_flag=True, help="Undo the last compaction.")
@click.option(
    "--all", "newest_only", is_flag=True, help="Summarize everything but the newest exchange."
)
@click.option(
    "--instructions", metavar="TEXT", default="", help="Tell the model what the summary must keep."
)
@click.option(
    "--probe-model",
    "probes_model",
    is_flag=True,
    help="After the summary, test what the model knows from it.",
)
@click.pass_obj
@exits_with_code
def compact(
    options: dict[str, Any],
    /,
    id: str | None,
    instructions: str,
    probes_model: bool,
    newest_only: bool,
    **acts: bool,
) -> int:
    """Compact a session; by default the newest one here.

    Choose an action: --dry-run, --apply or --undo. If turns followed the compaction, --undo
    continues in a copy of the session and prints its ID.

    If a compaction by a model would save less than a fifth of the context, --apply prints a
    warning. In a terminal it asks first, unless you give --instructions.
    """
    import asyncio

    act = single_action(acts)
    if act is None:
        raise UsageError("no action given", hint="Give one of --dry-run, --apply and --undo.")
    if instructions and act != "--apply":
        raise UsageError(
            "--instructions needs --apply, which writes the summary", hint="Add --apply."
        )
    if probes_model and act != "--apply":
        raise UsageError(
            "--probe-model needs --apply, which writes the summary", hint="Add --apply."
        )
    if newest_only and act == "--undo":
        raise UsageError("--all needs --apply or --dry-run", hint="Add one of them.")
    loaded = load(options)
    say_notices(loaded)
    launch = launch_of(options, loaded)
    if act == "--dry-run":
        return asyncio.run(_preview(launch, id, newest_only=newest_only))
    if act == "--undo":
        return asyncio.run(_undo(options, launch, id))
    if probes_model or _asks_model(launch):
        log_of(options, id)  # a missing session is reported before a missing key
        check_key(launch)
    must_confirm = _asks_model(launch) and not instructions and can_ask()
    apply_options = _ApplyOptions(
        instructions, newest_only=newest_only, probes_model=probes_model, must_confirm=must_confirm
    )
    if not asyncio.run(_apply(launch, id, apply_options)):
        if not is_confirmed("Compact anyway?"):
            raise CompactionFailed(
                "not compacted; nothing has changed",
                hint="To write the summary without a question, give --instructions.",
            )
        asyncio.run(_apply(launch, id, replace(apply_options, is_confirmed=True)))
    return 0


@dataclass(frozen=True, slots=True)
class _ApplyOptions:
    """The options of a compaction with --apply."""

    instructions: str
    newest_only: bool
    probes_model: bool
    must_confirm: bool  # whether to ask if it would save little
    is_confirmed: bool = False  # whether the user confirmed a small saving


def _asks_model(launch: "LaunchOptions") -> bool:
    from ..compaction.policy import policy_of

    return policy_of(launch.settings).summarizer != "mechanical"


async def _preview(launch: "LaunchOptions", id: str | None, *, newest_only: bool) -> int:
    from ..ui import compaction_report

    async with open_session(launch, id) as agent:
        await load_known_window(agent, launch)
        say_lines(compaction_report.dry_run(agent, newest_only=newest_only, option=ALL))
    return 0


async def _apply(launch: "LaunchOptions", id: str | None, apply_options: _ApplyOptions) -> bool:
    """Compact a session. If it would save little, print a warning first. Return False, without
    changes, if the user must confirm.
    """
    from ..ui import compaction_report

    async with open_session(launch, id) as agent:
        if _asks_model(launch):
            await agent.model.window()
        else:
            await load_known_window(agent, launch)
        newest_only = apply_options.newest_only
        little = compaction_report.small_saving(agent, newest_only=newest_only, option=ALL)
        if little and not apply_options.is_confirmed:
            say(f"warning: {little}", err=True)
            if apply_options.must_confirm:
                return False
        summary = await agent.engine.compact(apply_options.instructions, newest_only=newest_only)
        if apply_options.probes_model:
            say((await agent.engine.examine(summary)).table())
        say(f"Undo it: ctxagent compact {agent.log.path.parent.name} --undo")
    return True


async def _undo(options: dict[str, Any], launch: "LaunchOptions", id: str | None) -> int:
    """Undo the last compaction. If turns followed it, undo it in a copy that ends before them. A
    session of the proxy is not copied, because its client has the whole history.
    """
    from ..compaction.history import last_acts, user_wrote_since

    async with open_session(launch, id) as agent:
        entries = agent.log.entries()
        last = last_acts(entries)
        if not last:
            raise CompactionFailed(
                "there is no compaction to undo",
                hint="`ctxagent log` lists the compactions of a session.",
            )
        if _is_proxy_session(entries) or not user_wrote_since(entries, last[-1].seq):
            _undo_last(agent)
            return 0
        copy = project_of(options).fork(agent.log.path, last[-1].seq).parent.name
    async with open_session(launch, copy) as agent:
        _undo_last(agent)
        say("Turns followed the compaction, so it was undone in a copy that ends before them.")
    return 0


def _is_proxy_session(entries: "Iterable[Entry]") -> bool:
    """Return True for a session of the proxy."""
    from ..session.entries import Session

    first = next(iter(entries), None)
    return isinstance(first, Session) and bool(first.client)


def _undo_last(agent: "AgentState") -> None:
    from ..compaction.history import describe

    last = agent.engine.uncompact(agent.log.entries())
    tokens = agent.model.current_window().tokens
    say(f"undone: {describe(*last)}; the context has {tokens:,} tokens again")
    if _is_proxy_session(agent.log.entries()):
        say("The client's next request uses the restored context.")
    else:
        say(f"Resume with: ctxagent --resume {agent.log.path.parent.name}")


async def load_known_window(agent: "AgentState", launch: "LaunchOptions") -> None:
    """Read the size of the window if it is known without asking a server."""
    from ..models.catalog import known_limits

    if known_limits(agent.model.id) or launch.settings.model.context_window:
        await agent.model.window()


@asynccontextmanager
async def open_session(
    launch: "LaunchOptions", id: str | None, *, read_only: bool = False, quiet: bool = False
) -> AsyncIterator["AgentState"]:
    """Open a session, by default the newest one, and close it in the end. With `quiet`, print no
    receipts.
    """
    from ..app import open_agent
    from ..launch import SessionChoice

    choice = SessionChoice(newest=id is None, id=id, read_only=read_only)
    agent = open_agent(launch, choice, emit=_print_warning if quiet else _print_event, ask=None)
    try:
        yield agent
    finally:
        await agent.close()


def _print_event(event: "Event") -> None:
    from ..events import Compacted
    from ..ui import compaction_report

    if isinstance(event, Compacted):
        say(compaction_report.receipt(event))
    _print_warning(event)


def _print_warning(event: "Event") -> None:
    from ..events import Notice

    if isinstance(event, Notice):
        say(f"{event.level}: {event.text}", err=True)
