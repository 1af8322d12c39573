"""/hooks and /skills: hooks and skills from files, their origin and their use in the session."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from ....tools.system.shorten import one_line
from ..status import short_path
from .command_context import CommandContext
from .registry import command
from .settings_menu import NOT_IN_FORCE, user_settings

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
