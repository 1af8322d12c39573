"""Recognises slash commands of the terminal in a task, so that `/compact` is not sent to a
model.
"""

import difflib
import os
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..lazy import regex

if TYPE_CHECKING:
    from ..launch import LaunchOptions

MAX_LEFT_OUT = 10  # ignored commands, skills and plugins in a hint
MIN_NAME_LIKENESS = 0.8  # similarity from which a name counts as mistyped
_CALL = regex(r"/([A-Za-z][\w-]*)(?:\s+(.*))?", re.DOTALL)
_COMMAND_LINES = {  # equivalent command lines
    "clear": "ctxagent -p TASK",
    "compact": "ctxagent compact --dry-run | --apply",
    "context": "ctxagent compact --dry-run",
    "cost": "ctxagent -p TASK --output-format json",
    "doctor": "ctxagent doctor",
    "effort": "ctxagent --effort LEVEL -p TASK",
    "export": "ctxagent sessions export ID",
    "fork": "ctxagent sessions fork ID",
    "from-recording": "ctxagent --from-recording FILE -p TASK",
    "help": "ctxagent --help lists options and commands, ctxagent guide explains them",
    "log": "ctxagent log",
    "mcp": "ctxagent mcp list",
    "model": "ctxagent --model ID -p TASK",
    "new": "ctxagent -p TASK",
    "permissions": "ctxagent --permission-mode MODE --allow RULE -p TASK",
    "plan": "ctxagent --permission-mode plan -p TASK",
    "preserve": "ctxagent preserve",
    "recover": "ctxagent recover 1|2|3|TOPIC",
    "rename": "ctxagent sessions rename ID NAME",
    "resume": "ctxagent --resume ID -p TASK",
    "rules": "ctxagent rules",
    "sessions": "ctxagent sessions list",
    "settings": "ctxagent config --explain",
    "uncompact": "ctxagent compact --undo",
}


def check_task(task: str, launch: "LaunchOptions", *, takes: Collection[str] = ()) -> None:
    """Raise UsageError for a task that is a terminal command, or that is probably a mistyped
    command or skill. Paths, other text and the commands in `takes` pass.
    """
    called = _CALL.fullmatch(task.strip())
    if called is None or os.path.lexists(f"/{called[1]}"):
        return
    from ..features.extension_features import extensions_of
    from ..features.skills import skills_of
    from ..library.command_files import command_files_of
    from ..ui.commands import COMMANDS
    from ..ui.foreign_names import foreign_names

    (known_skills, no_skills), (files, no_files) = skills_of(launch), command_files_of(launch)
    skills = [name for name, skill in known_skills.items() if skill.for_user]
    kinds = extensions_of(launch).classes
    callable_here = {
        *takes,
        *files,
        *skills,
        *(each for kind in kinds for each in kind.command_names()),
    }
    name, has_more = called[1], bool(called[2])
    is_path = name == "settings" and has_more and not _names_setting(called[2])
    if name in callable_here or is_path:
        return
    if name not in COMMANDS and not has_more:
        if hint := foreign_names("commands").get(name):
            raise UsageError(f"there is no command /{name}", hint=hint)
        name = foreign_names("aliases").get(name, f"/{name}").split()[0].removeprefix("/")
    if name in COMMANDS:
        way = _COMMAND_LINES.get(name, f'ctxagent "/{name}"')
        where = "On the command line" if name in _COMMAND_LINES else "Open the terminal with it"
        raise UsageError(f"/{name} is a command of the terminal", hint=f"{where}: {way}")
    if near := _nearest(name, {*callable_here, *COMMANDS}, may_be_short=not has_more):
        hint = f"Did you mean /{near}? To send it to the agent, put a word before the slash."
        no_plugins = launch.installed.warnings if launch.installed else ()
        left_out = [*no_plugins, *no_skills, *no_files][:MAX_LEFT_OUT]
        raise UsageError(f"there is no command /{name}", hint="\n".join([hint, *left_out]))


def _names_setting(argument: str) -> bool:
    """Return True if the argument of /settings starts with (part of) the name of a setting."""
    from ..config.settings import KEYS

    return any(argument.split()[0] in key for key in KEYS)


def _nearest(name: str, names: Collection[str], *, may_be_short: bool) -> str:
    """Return the name that was probably meant, or ""."""
    if near := difflib.get_close_matches(name, sorted(names), 1, MIN_NAME_LIKENESS):
        return near[0]
    longer = [each for each in sorted(names) if each.startswith(name)] if may_be_short else []
    return longer[0] if len(longer) == 1 else ""
