"""What the options of the command line mean: settings, project, session and launch. And how every
command ends: with an exit code, and errors told without a traceback."""

import errno
import io
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import CtxagentError, UsageError
from ..ui.visible import fit

if TYPE_CHECKING:
    from ..config import Loaded
    from ..launch import Choice, Launch
    from ..record.sessions import Project
    from ..redaction import Redaction

STDIN = "-"
NEWEST = "?"  # --resume without an id
NOT_LOST = "What was recorded is not lost: `ctxagent --continue` goes on."
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
OF_THE_AGENT = {
    "task": "-p",
    "newest": "--continue",
    "resume": "--resume",
    "fork": "--fork",
    "wait": "--wait",
    "origin": "--from",
}


def steady_streams() -> None:
    """Have the standard streams replace what their encoding cannot carry."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print, without our keys; on a terminal, without anything that would act on it."""
    click.echo(fit(_secrets().known_in(text), sys.stderr if err else sys.stdout), err=err, nl=nl)


@cache
def _secrets() -> "Redaction":
    """What the environment holds that nobody is to be told."""
    from ..redaction import of

    return of(os.environ)


def _tell(error: CtxagentError, code: int) -> None:
    say(f"ctxagent: {error}", err=True)


def guarded(run: Callable[[], int], tell: Callable[[CtxagentError, int], None] = _tell) -> NoReturn:
    """Run a command and leave with its exit code. Errors go to `tell`, with that code and without
    our keys; also a fault of our own, so that there is never a traceback and never a result without
    a document."""
    try:
        code = run()
    except CtxagentError as error:
        code = error.exit_code
        tell(_cleared(error), code)
    except KeyboardInterrupt:
        code = 130
        tell(CtxagentError("interrupted"), code)
    except BrokenPipeError:  # the reader of our output went away
        code = 1
        _fall_silent()
    except Exception as error:
        code = 1
        tell(_cleared(_fault(error)), code)
    sys.exit(code)


def _cleared(error: CtxagentError) -> CtxagentError:
    error.message, error.hint = map(_secrets().known_in, (error.message, error.hint))
    return error


def _fall_silent() -> None:
    """What is still to be written to standard output has nowhere to go."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(error: Exception) -> CtxagentError:
    import traceback

    if isinstance(error, OSError) and error.errno in NO_ROOM:
        _fall_silent()
        return CtxagentError(f"cannot write: {error.strerror}", hint=NOT_LOST)
    *_, place = traceback.extract_tb(error.__traceback__)
    return CtxagentError(
        f"a fault of our own: {type(error).__name__}: {error} "
        f"({Path(place.filename).name}:{place.lineno})",
        hint=f"Please report it. {NOT_LOST}",
    )


def check_finite(
    context: click.Context, option: click.Parameter, value: float | None
) -> float | None:
    """Raises BadParameter for a limit that no sum would ever reach."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not an amount.")
    return value


def check_command(options: dict[str, Any], command: str) -> None:
    """Raises click's UsageError for an option of the agent that would be lost on a command."""
    for name, flag in OF_THE_AGENT.items():
        if options[name] not in (None, False):
            raise click.UsageError(f"{flag} means nothing to the command `{command}`.")


def task_of(task: str | None) -> str:
    """The task, read from standard input where it is not given. Raises UsageError for none."""
    if task in (None, STDIN):
        task = sys.stdin.read() if sys.stdin else ""  # there is none when it was closed
    if not task or not task.strip():
        raise UsageError("there is no task", hint='Give one: ctxagent -p "what to do".')
    return task


def choice_of(options: dict[str, Any]) -> "Choice":
    """Which session to open. Raises UsageError for options that name two, or none to fork."""
    from ..launch import Choice

    resume = options["resume"]
    newest = options["newest"] or resume == NEWEST
    if resume is not None and not resume.strip():
        raise UsageError("--resume names no session", hint="Give an id, or --continue.")
    if options["fork"] and not (newest or resume):
        raise UsageError("--fork needs a session", hint="Add --continue or --resume ID.")
    if options["wait"] and (options["fork"] or not (newest or resume)):
        raise UsageError(
            "--wait needs a session, and not a copy of one", hint="Add --continue or --resume ID."
        )
    if options["origin"] is not None and not options["origin"].strip():
        raise UsageError("--from names no session", hint="Give ID or ID:NUMBER.")
    if options["origin"] and (newest or resume):
        raise UsageError("--from starts a fresh session", hint="Leave out --continue or --resume.")
    if options["newest"] and resume not in (None, NEWEST):
        raise UsageError("--continue and --resume ID name two sessions", hint="Give one of them.")
    return Choice(newest=newest, id=None if newest else resume, fork=options["fork"])


def check_choice(choice: "Choice", project: "Project") -> None:
    """Raises SessionError for a session that is not there."""
    if choice.id is not None:
        project.find(choice.id)
    elif choice.newest:
        project.newest()


def load(options: dict[str, Any]) -> "Loaded":
    """All settings. Raises ConfigError."""
    from ..config import load as load_settings
    from ..rules import parse_rule

    flags = list(options["settings"])
    for name, key in (
        ("model", "model.id"),
        ("context_window", "model.context_window"),
        ("max_tokens", "model.max_tokens"),
        ("effort", "model.effort"),
        ("preset", "compact.preset"),
        ("permission_mode", "permissions.mode"),
    ):
        if options[name] is not None:
            flags.append(f"{key}={options[name]}")
    if options["plain"]:
        flags.append("ui.plain=true")
    flags += [f"permissions.allow={rule}" for rule in options["allow"]]
    flags += [f"permissions.deny={rule}" for rule in options["deny"]]
    return load_settings(cwd_of(options), environ=os.environ, flags=flags, check_rule=parse_rule)


def project_of(options: dict[str, Any], loaded: "Loaded | None" = None) -> "Project":
    """The project of the working directory, with its sessions."""
    from ..config import state_dir
    from ..record.sessions import Project

    loaded = loaded or load(options)
    return Project(state_dir(loaded.settings, os.environ), cwd_of(options))


def prior_of(options: dict[str, Any], project: "Project") -> str:
    """What a fresh session is told of the checkpoint that --from names, ID or ID:NUMBER; of an id
    alone the newest checkpoint, or all of a session that has none. Raises UsageError for a name
    that is neither, SessionError for one that is not there."""
    if not options["origin"]:
        return ""
    from ..record.checkpoints import entries_at, points
    from ..record.log import Entries
    from ..recovery import recovered

    id, _, number = options["origin"].partition(":")
    if number and not number.isdecimal():
        raise UsageError(
            f"--from {options['origin']}: {number!r} is not the number of a checkpoint"
        )
    log = project.find(id)
    if number:
        entries = entries_at(log, int(number))
    elif any(point.path for point in points(Entries(log))):
        entries = entries_at(log)
    else:
        entries = Entries(log)
    return recovered(entries, 3).text


def launch_of(options: dict[str, Any], loaded: "Loaded | None" = None) -> "Launch":
    """All that a conversation needs to start."""
    from ..config import config_home, state_dir
    from ..confinement import choose_programs
    from ..launch import Bounds, Launch

    loaded = loaded or load(options)
    launch = Launch(
        prior=prior_of(options, project_of(options, loaded)),
        settings=loaded.settings,
        state=state_dir(loaded.settings, os.environ),
        config_home=config_home(os.environ),
        cwd=cwd_of(options),
        environ=os.environ,
        append_prompt=options["append_system_prompt"],
        bounds=Bounds(options["max_turns"], options["max_budget_usd"]),
        trust=loaded.trust_dir,
    )
    choose_programs(launch.settings.sandbox, launch.cwd, launch.environ)
    return launch


def with_rules(launch: "Launch", allow: Sequence[str]) -> "Launch":
    """The same, where these rules allow."""
    from dataclasses import replace

    permissions = replace(launch.settings.permissions, allow=tuple(allow))
    return replace(launch, settings=replace(launch.settings, permissions=permissions))


def check_key(launch: "Launch") -> None:
    """Raises NoCredentials before anything is recorded, when nobody could answer."""
    from ..model.anthropic import check_credentials

    if not launch.is_scripted:
        check_credentials(launch.environ)


def warm(launch: "Launch") -> None:
    """Start importing what the first request will need, if there is one to be sent."""
    from ..model.anthropic import warm as start

    if not launch.is_scripted:
        start()


def cwd_of(options: dict[str, Any]) -> Path:
    """The working directory. Raises UsageError when it is gone."""
    try:
        return options["cwd"].absolute() if options["cwd"] else Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory no longer exists", hint="Change to one that does, or give --cwd."
        ) from None
