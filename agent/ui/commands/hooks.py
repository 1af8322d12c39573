"""Commands about the session's extensions, subagents and additional directories.

- /hooks and /skills: hooks and skills from files, their origin and their use in the session.
- /diagnostics: errors and warnings in changed files, and the language servers.
- /agents: the types of subagents.
- /add-dir: additional working directories of the session.
- /mcp: the MCP servers, their state, and their tools, prompts and resources.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.phrasing import count_of, one_line
from ...border.entry_points import service
from ...errors import UsageError
from ...extensions.command import command
from ..screen import Offer
from ..status import short_path
from .command_context import CommandContext
from .settings import NOT_IN_FORCE, user_settings

if TYPE_CHECKING:
    from ...extensions.mcp.servers import McpServers, ServerStatus

HOOKS = "hooks."  # prefix of the settings
MAX_COMMAND_CHARS = 120
NEVER = "not yet in this session"


@command("the hooks, their files, and what each did last", group="setup", anytime=True)
async def _hooks(repl: CommandContext, argument: str) -> None:
    rows = [*_hook_rows(repl)]
    if rows:
        repl.show_table(rows, ("event", "command", "from", "last run"))
    else:
        repl.say("no hooks are set · the settings hooks.* name commands to run at events")


def _hook_rows(repl: CommandContext) -> Iterator[tuple[str, str, str, str]]:
    """Yield (event, command, origin, last run) of each hook."""
    from ...features.hooks import HooksFeature

    settings = user_settings(repl)
    feature = repl.agent.features.find(HooksFeature)

    def shown(text: str) -> str:
        return one_line(settings.clean(text), MAX_COMMAND_CHARS)

    def last(event: str, text: str) -> str:
        run = feature.last_runs.get((event, text)) if feature else None
        return f"{datetime.fromtimestamp(run.at):%H:%M:%S} {shown(run.outcome)}" if run else NEVER

    off = "" if feature else f"{NOT_IN_FORCE}: hooks are off (features.off, --safe)"
    for given in (each for each in settings.loaded.given if each.key.name.startswith(HOOKS)):
        event = given.key.name.removeprefix(HOOKS)
        for text, origin in given.items():
            yield event, shown(text), _short(origin), off or last(event, text)
    for given in (each for each in settings.loaded.untrusted if each.key.name.startswith(HOOKS)):
        for text, origin in given.items():
            why = f"{NOT_IN_FORCE}: the file is not trusted"
            yield given.key.name.removeprefix(HOOKS), shown(text), _short(origin), why
    for hook in feature.published.all if feature else ():
        yield hook.event, shown(hook.run), hook.origin, last(hook.event, hook.run)


def _short(origin: str) -> str:
    path, colon, line = origin.rpartition(":")
    return f"{short_path(Path(path))}:{line}" if colon and "/" in path else origin


@command("the skills: state, tokens and origin of each", group="setup", anytime=True)
async def _skills(repl: CommandContext, argument: str) -> None:
    from ...context.tokens import estimate
    from ...features.skills import SkillsFeature

    found, warnings = await asyncio.to_thread(repl.services.skills)
    feature = repl.agent.features.find(SkillsFeature)
    texts = feature.texts_in_context() if feature else {}
    rows = []
    for name, skill in found.items():
        ref = texts.get((name, skill.digest))
        state = "for the agent and you (/NAME)"
        state = state if skill.for_model else "for you alone (/NAME)"
        state = state if skill.for_user else "for the agent alone"
        rows.append(
            (
                name,
                f"in the context as #{ref}" if ref else state,
                f"{estimate(skill.line) if skill.for_model else 0:,} listed, "
                f"{estimate(skill.body):,} loaded",
                short_path(skill.folder),
            )
        )
    if rows:
        repl.show_table(rows, ("skill", "state", "tokens", "from"))
    else:
        repl.say("there are no skills · `ctxagent guide skills` says where they are found")
    for warning in warnings:
        repl.notify("warning", warning)


@command("the errors and warnings of changed files", anytime=True, group="files and work")
async def _diagnostics(repl: CommandContext, argument: str) -> None:
    await service("diagnostics")(repl)


@command("list the types of subagents", anytime=True, group="files and work")
async def _agents(repl: CommandContext, argument: str) -> None:
    from ...features.subagents import SubagentsFeature
    from ..render import render

    if argument:
        raise UsageError(f"/agents does not take {argument!r}", hint="/tasks lists and stops them.")
    feature = repl.agent.features.find(SubagentsFeature)
    rows = [(each.name, each.source, each.description) for each in feature.types] if feature else []
    if rows:
        repl.put(render.table(rows, head=("subagent", "from", "")))
    else:
        repl.say("there are no subagents here")


@command(
    "also work in another directory; without DIR, list them",
    argument="[DIR]",
    group="files and work",
)
async def _add_dir(repl: CommandContext, argument: str) -> None:
    from ...loop.user_commands import add_directory

    if argument:
        name = short_path(Path(await add_directory(repl.agent, argument)))
        repl.say(f"the session also works in {name}, with the same permission mode and rules")
        repl.say("checkpoints cover the project only: /rewind undoes no changes by commands there")
        return
    names = repl.agent.approval.folders.names
    for name in names:
        repl.say(short_path(Path(name)))
    if not names:
        repl.say("the session works in the project only · /add-dir DIR adds a directory")


SERVER_HEAD = ("server", "state", "tools", "prompts", "resources", "calls", "in context", "")
TOOLS_HEAD = ("tool", "tokens", "")
MAX_TOOLS_SHOWN = 200


async def _names(repl: CommandContext) -> Sequence[Offer]:
    from ...features.mcp import servers_of

    servers = servers_of(repl.agent)
    return [(each.name, each.where) for each in servers.status()] if servers else []


@command(
    "the state of the MCP servers, and the tools of one",
    argument="[SERVER]",
    anytime=True,
    complete=_names,
    group="setup",
)
async def _mcp(repl: CommandContext, argument: str) -> None:
    from ...features.mcp import servers_of
    from ..render import render

    servers = servers_of(repl.agent)
    if servers is None:
        repl.say("no MCP server is configured: `ctxagent mcp add NAME COMMAND` adds one")
        return
    if not argument:
        rows = [_row(repl, each) for each in servers.status()]
        repl.put(render.table(rows, head=SERVER_HEAD))
        return
    if argument not in servers.names:
        raise UsageError(
            f"there is no MCP server {argument}", hint=f"There are: {', '.join(servers.names)}"
        )
    tools = [*_tools(servers, argument)]
    repl.put(render.table(tools[:MAX_TOOLS_SHOWN], head=TOOLS_HEAD, wrap=False))
    if len(tools) > MAX_TOOLS_SHOWN:
        repl.say(f"and {len(tools) - MAX_TOOLS_SHOWN:,} more")


def _row(repl: CommandContext, server: "ServerStatus") -> tuple[str, ...]:
    from ...compaction.breakdown import break_down

    filled = break_down(repl.agent.view, repl.agent.model.current_window()).parts
    tokens = sum(part.tokens for part in filled if part.of == f"mcp {server.name}")
    facts = [server.error or server.where, *([server.protocol] if server.protocol else [])]
    if server.notes:
        facts.append(f"{count_of(len(server.notes), 'note')}: ctxagent mcp get {server.name}")
    counts = (server.tools, server.prompts, server.resources, server.calls)
    numbers = [f"{count:,}" for count in counts]
    return (server.name, server.state, *numbers, f"{tokens:,} tokens", " · ".join(facts))


def _tools(servers: "McpServers", server: str) -> Sequence[tuple[str, str, str]]:
    return [
        (name, f"{tokens:,}", description) for name, tokens, description in servers.tools(server)
    ]
