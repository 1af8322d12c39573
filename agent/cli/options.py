"""The meaning of the command line's options, and the end of every command: an exit code, and errors
without a traceback."""

import errno
import io
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import click

from ...tools.system.unicode import clean_for
from ..errors import CtxagentError, UsageError

if TYPE_CHECKING:
    from ..config.load import LoadedSettings
    from ..launch import LaunchOptions, SessionChoice
    from ..security.redaction import Redaction
    from ..session.store import Project

P = ParamSpec("P")
STDIN = "-"
NEWEST = "?"  # --resume without an id
NOT_LOST = "What was recorded is not lost: `ctxagent --continue` goes on."
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
CONVERSATION_FLAGS = {  # options that mean nothing to a subcommand
    "task": "-p",
    "newest": "--continue",
    "resume": "--resume",
    "fork": "--fork",
    "wait": "--wait",
    "origin": "--from",
}


def steady_streams() -> None:
    """Make the standard streams replace characters that their encoding does not have."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text without our keys and, on a terminal, without control characters."""
    click.echo(
        clean_for(_secrets().without_known(text), sys.stderr if err else sys.stdout), err=err, nl=nl
    )


@cache
def _secrets() -> "Redaction":
    """Return the redaction of the secrets in our environment."""
    from ..security.redaction import redaction_for

    return redaction_for(os.environ)


def _print_error(error: CtxagentError, code: int) -> None:
    say(f"ctxagent: {error}", err=True)


def guarded(
    run: Callable[[], int], report: Callable[[CtxagentError, int], None] = _print_error
) -> NoReturn:
    """Run a command and leave the process with its exit code.

    `report` gets each error with its exit code, without our keys; also a fault of our own, so that
    there is never a traceback, and never a headless run without a result.
    """
    try:
        code = run()
    except CtxagentError as error:
        code = error.exit_code
        report(_redacted(error), code)
    except KeyboardInterrupt:
        code = 130
        report(CtxagentError("interrupted"), code)
    except BrokenPipeError:  # the reader of our output went away
        code = 1
        _discard_output()
    except Exception as error:
        code = 1
        report(_redacted(_fault(error)), code)
    sys.exit(code)


def ends_process(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """Make a command leave the process with the exit code that it returns, as `guarded` does."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        guarded(lambda: command(*args, **kwargs))

    return run


def _redacted(error: CtxagentError) -> CtxagentError:
    error.message, error.hint = map(_secrets().without_known, (error.message, error.hint))
    return error


def _discard_output() -> None:
    """Send what is still to be written to standard output nowhere."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(error: Exception) -> CtxagentError:
    import traceback

    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
        _discard_output()
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
    """Raise BadParameter for an amount that is not finite."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not an amount.")
    return value


def check_command(options: dict[str, Any], command: str) -> None:
    """Raise click's UsageError for an option that means nothing to this subcommand."""
    for name, flag in CONVERSATION_FLAGS.items():
        if options[name] not in (None, False):
            raise click.UsageError(f"{flag} means nothing to the command `{command}`.")


def task_of(task: str | None) -> str:
    """Return the task, from standard input if it is not given. Raises UsageError for none."""
    if task in (None, STDIN):
        task = sys.stdin.read() if sys.stdin else ""  # there is none when it was closed
    if not task or not task.strip():
        raise UsageError("there is no task", hint='Give one: ctxagent -p "what to do".')
    return task


def choice_of(options: dict[str, Any]) -> "SessionChoice":
    """Return which session to open. Raises UsageError for options that contradict each other."""
    from ..launch import SessionChoice

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
    return SessionChoice(newest=newest, id=None if newest else resume, fork=options["fork"])


def check_choice(choice: "SessionChoice", project: "Project") -> None:
    """Raise SessionError for a session that does not exist."""
    if choice.id is not None:
        project.find_log(choice.id)
    elif choice.newest:
        project.newest_log()


def load(options: dict[str, Any]) -> "LoadedSettings":
    """Load all settings. Raises ConfigError."""
    from ..config.load import load_settings
    from ..permissions.rules import parse_rule

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


def project_of(options: dict[str, Any], loaded: "LoadedSettings | None" = None) -> "Project":
    """Return the project of the working directory, with its sessions."""
    from ..config.load import state_dir
    from ..session.store import Project

    loaded = loaded or load(options)
    return Project(state_dir(loaded.settings, os.environ), cwd_of(options))


def log_of(options: dict[str, Any], id: str | None) -> Path:
    """Return the log of a session, by default the newest one here. Raises SessionError."""
    project = project_of(options)
    return project.newest_log() if id is None else project.find_log(id)


def prior_of(options: dict[str, Any], project: "Project") -> str:
    """Return what a fresh session is told about the checkpoint that --from names, "" without it.

    The name is ID:NUMBER, or ID for the newest checkpoint, or for a whole session that has none.
    Raises UsageError for a malformed name, SessionError for one that does not exist.
    """
    if not options["origin"]:
        return ""
    from ..compaction.recovery import recover_session
    from ..session.checkpoints import entries_up_to_checkpoint, rewind_points
    from ..session.log import Entries

    id, _, number = options["origin"].partition(":")
    if number and not number.isdecimal():
        raise UsageError(
            f"--from {options['origin']}: {number!r} is not the number of a checkpoint"
        )
    log = project.find_log(id)
    if number:
        entries = entries_up_to_checkpoint(log, int(number))
    elif any(point.path for point in rewind_points(Entries(log))):
        entries = entries_up_to_checkpoint(log)
    else:
        entries = Entries(log)
    return recover_session(entries, 3).text


def launch_of(options: dict[str, Any], loaded: "LoadedSettings | None" = None) -> "LaunchOptions":
    """Return all that a session needs to start."""
    from ..config.load import config_home, state_dir
    from ..launch import Budget, LaunchOptions
    from ..security.sandbox import distrust_writable_folders

    loaded = loaded or load(options)
    launch = LaunchOptions(
        prior=prior_of(options, project_of(options, loaded)),
        settings=loaded.settings,
        state=state_dir(loaded.settings, os.environ),
        config_home=config_home(os.environ),
        cwd=cwd_of(options),
        environ=os.environ,
        append_prompt=options["append_system_prompt"],
        budget=Budget(options["max_turns"], options["max_budget_usd"]),
        trust=loaded.trust_dir,
    )
    distrust_writable_folders(launch.settings.sandbox, launch.cwd, launch.environ)
    return launch


def check_key(launch: "LaunchOptions") -> None:
    """Raise NoCredentials, before anything is recorded, if the model needs a key and has none."""
    from ..models.anthropic import check_credentials

    if not launch.is_scripted:
        check_credentials(launch.environ)


def warm(launch: "LaunchOptions") -> None:
    """Start to import what the first request needs, unless the model is scripted."""
    from ..models.anthropic import start_import

    if not launch.is_scripted:
        start_import()


def cwd_of(options: dict[str, Any]) -> Path:
    """Return the working directory. Raises UsageError when it no longer exists."""
    try:
        return options["cwd"].absolute() if options["cwd"] else Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory no longer exists", hint="Change to one that does, or give --cwd."
        ) from None
