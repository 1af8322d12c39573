"""The shared parts of all commands: option types, the meaning of the options, output, and the exit
code.

Every command ends with an exit code and without a traceback. Help and errors say in words which
numbers an option allows. The help of a group describes each subcommand in full.
"""

import errno
import io
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import click

from ...tools.system.unicode import clean_for
from ..errors import CtxagentError, NoSuchSession, UsageError
from ..lazy import regex

if TYPE_CHECKING:
    from ..config.load import LoadedSettings
    from ..launch import LaunchOptions, SessionChoice
    from ..security.redaction import Redaction
    from ..session.store import Project


class WholeNumber(click.IntRange):
    """A whole number within limits."""

    def _describe_range(self) -> str:
        return _range_text(self)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise _not_allowed(self, "whole number", value, param, ctx) from None


class Amount(click.FloatRange):
    """A finite number within limits."""

    def _describe_range(self) -> str:
        return _range_text(self)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            raise _not_allowed(self, "number", value, param, ctx)
        return number


def _range_text(numbers: WholeNumber | Amount) -> str:
    return f"{numbers.min} or more" if numbers.max is None else f"{numbers.min} to {numbers.max}"


def _not_allowed(
    numbers: WholeNumber | Amount,
    noun: str,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> click.BadParameter:
    link = "of" if numbers.max is None else "from"
    what = f"{str(value)!r} is not allowed. Give a {noun} {link} {_range_text(numbers)}."
    return click.BadParameter(what, ctx, param)


P = ParamSpec("P")
STDIN = "-"
MAX_PROMPT_BYTES = 100_000  # of --system-prompt
MIN_COMMAND_LIKENESS = 0.75  # similarity from which a word counts as a mistyped command
_FIRST_WORD = regex(r"[\w-]+(?:[.:/@][\w-]+)*")  # a command or a file, but not an address
# A word of a command, and not the end of a sentence.
_COMMAND_WORD = regex(r"[A-Za-z0-9](?:[\x21-\x7e]*[A-Za-z0-9_/-])?", re.ASCII)
LITERAL_WORDS = "ctxagent.literal_words"  # key in a click context: the message follows --
PICK = "?"  # value of --resume without an ID
SAFE_START = (
    "safe start: no MCP servers, plugins, extensions, features of add-ons and hooks, no commands, "
    "skills and subagents from files"
)
NOT_LOST = "Nothing recorded is lost: `ctxagent --continue` resumes."
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
CONVERSATION_FLAGS = {  # options that subcommands do not take
    "task": "-p",
    "system_prompt": "--system-prompt",
    "newest": "--continue",
    "resume": "--resume",
    "fork": "--fork",
    "wait": "--wait",
    "origin": "--from",
    "recording": "--from-recording",
    "session_id": "--session-id",
    "json_schema": "--json-schema",
    "worktree": "--worktree",
    "safe": "--safe",
}


def configure_streams() -> None:
    """Make the standard streams replace characters that they cannot encode. Apply PYTHONIOENCODING,
    which Python ignores in isolated mode. Open those that are closed, so that no other file has
    their numbers: a child could not inherit it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    encoding = os.environ.get("PYTHONIOENCODING", "").partition(":")[0] or None
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        errors = "backslashreplace" if stream is sys.stderr else "replace"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
            with suppress(LookupError):  # unknown encoding
                stream.reconfigure(encoding=encoding, errors=errors)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text without known secrets and, on a terminal, without control characters."""
    click.echo(
        clean_for(_secrets().without_known(text), sys.stderr if err else sys.stdout), err=err, nl=nl
    )


def say_lines(text: str) -> None:
    """Print lines with labels. On a terminal, wrap each line under its own text."""
    from ..ui.cells import hang_lines

    width = shutil.get_terminal_size().columns
    say(hang_lines(text, width) if sys.stdout.isatty() else text)


def can_ask() -> bool:
    """Return True if a user at a terminal can answer a question."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())


def is_confirmed(question: str) -> bool:
    """Ask the user to confirm. No answer means no."""
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort:
        return False


@cache
def _secrets() -> "Redaction":
    """Return the redaction for the secrets in our environment."""
    from ..security.redaction import redaction_for

    return redaction_for(os.environ)


def _print_error(error: CtxagentError, code: int) -> None:
    say(f"ctxagent: {error}", err=True)


def run_and_exit(
    run: Callable[[], int], report: Callable[[CtxagentError, int], None] = _print_error
) -> NoReturn:
    """Run a command and exit with its exit code.

    `report` gets each error, without known secrets, and its exit code. Internal errors are reported
    too, so that there is never a traceback and every headless run has a result.
    """
    try:
        code = run()
    except CtxagentError as error:
        code = error.exit_code
        report(_redacted(error), code)
    except KeyboardInterrupt:
        code = 130
        report(CtxagentError("interrupted"), code)
    except BrokenPipeError:  # the reader of our output has closed it
        code = 1
        _discard_output()
    except Exception as error:
        code = 1
        report(_redacted(_internal_error(error)), code)
    sys.exit(code)


def exits_with_code(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """Make a command exit with the exit code that it returns; see `run_and_exit`."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        run_and_exit(lambda: command(*args, **kwargs))

    return run


def _redacted(error: CtxagentError) -> CtxagentError:
    error.message, error.hint = map(_secrets().without_known, (error.message, error.hint))
    return error


def _discard_output() -> None:
    """Discard all further output to stdout."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal_error(error: Exception) -> CtxagentError:
    import traceback

    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
        _discard_output()
        return CtxagentError(f"cannot write: {error.strerror}", hint=NOT_LOST)
    *_, place = traceback.extract_tb(error.__traceback__)
    return CtxagentError(
        f"internal error: {type(error).__name__}: {error} "
        f"({Path(place.filename).name}:{place.lineno})",
        hint=f"Please report it. {NOT_LOST}",
    )


def check_options_of_command(options: dict[str, Any], command: str) -> None:
    """Raise click's UsageError for an option that this subcommand does not take."""
    for name, flag in CONVERSATION_FLAGS.items():
        if options[name] not in (None, False):
            raise click.UsageError(f"The command `{command}` does not take {flag}.")


def single_action(acts: Mapping[str, bool]) -> str | None:
    """Return the single action flag that was given, or None. Raises UsageError for several."""
    flags = [f"--{name.replace('_', '-')}" for name, asked in acts.items() if asked]
    if len(flags) > 1:
        named = f"{', '.join(flags[:-1])} and {flags[-1]}"
        raise UsageError(f"{named} are {len(flags)} different actions", hint="Give one of them.")
    return flags[0] if flags else None


def is_headless(options: dict[str, Any]) -> bool:
    """Return True if a task or a program is given, or stdin is not a terminal. Raises click's
    UsageError for options that the REPL cannot use.
    """
    if options["task"] is not None or sys.stdin is None or not sys.stdin.isatty():
        return True
    if options["json_schema"] is not None:
        raise click.UsageError("--json-schema needs -p TASK.")
    if options["session_id"] is not None:
        raise click.UsageError("--session-id needs -p TASK.")
    return bool(options["input_format"] == "stream-json")


def message_of(context: click.Context) -> str | None:
    """Return the message on the command line, or None.

    Raises UsageError for a blank message and, unless -p is given or it follows --, for a message
    that is probably a mistyped command.
    """
    if not context.args:
        return None
    words = " ".join(context.args)
    if not words.strip():
        raise UsageError("the message is blank", hint='Say something: ctxagent "explain this".')
    if context.params.get("task") is None and not context.meta.get(LITERAL_WORDS):
        _check_first_word(context)
    return words


def _check_first_word(context: click.Context) -> None:
    """Raise UsageError if the message looks like a command: one or two words without spaces, also
    such as `auth:login`, or a mistyped command, or a command of another agent with a quoted task.
    """
    from difflib import get_close_matches

    from ..ui.foreign_names import foreign_names

    first, *more = context.args
    if not _FIRST_WORD.fullmatch(first):
        return
    main, subcommands = context.command, foreign_names("words")
    options = {name.removeprefix("--") for param in main.get_params(context) for name in param.opts}
    commands = main.list_commands(context) if isinstance(main, click.Group) else ()
    near = get_close_matches(first, commands, 1, MIN_COMMAND_LIKENESS)
    near = near or [name for name in commands if not more and first.startswith(f"{name}-")]
    is_short = len(more) < 2 and all(map(_COMMAND_WORD.fullmatch, context.args))
    looks_like_command = not more or is_short
    hint = ""
    if first in subcommands:
        # The rest must be a quoted task or more such words: exec "fix it", auth login.
        is_call = all(" " in each or each in subcommands for each in more)
        hint = subcommands[first] if is_call or looks_like_command else ""
    elif first in options and not more:
        hint = f"Did you mean `ctxagent --{first}`?"
    elif near and first not in options:
        hint = f"Did you mean `ctxagent {near[0]}`?"
    elif looks_like_command:
        hint = "`ctxagent --help` lists the commands."
        if Path(first).exists():
            hint = f"To attach the file: ctxagent {shlex.quote(' '.join((f'@{first}', *more)))}"
    if hint:
        words = shlex.join(context.args)
        hint = f"{hint}\nTo send it to the agent: ctxagent -- {words}"
        raise UsageError(f"there is no command {first}", hint=hint)


def task_of(task: str | None, words: str | None, say: Callable[[str], None]) -> tuple[str, bool]:
    """Return the task of a headless run, and whether it is from the command line. Otherwise read it
    from stdin. Raises UsageError for no task or two tasks.
    """
    if task in (None, STDIN):
        task = words
    elif words is not None:
        hint = f'Quote it as one: ctxagent -p "{task} {words}"'
        raise UsageError("-p TASK and a message are two tasks", hint=hint)
    if task is None:
        from .stdin import read_task

        found = read_task(say)
    else:
        found = task
    if not found.strip():
        raise UsageError("there is no task", hint='Give one: ctxagent -p "what to do".')
    return found, task is not None


def choice_of(options: dict[str, Any]) -> "SessionChoice":
    """Return the session to open. Raises UsageError for conflicting options."""
    from ..launch import SessionChoice

    resume = options["resume"]
    pick = resume == PICK
    if resume is not None and not resume.strip():
        raise UsageError("--resume names no session", hint="Give an ID, or --continue.")
    given, one_more = options["session_id"], options["newest"] or resume
    if options["recording"] is not None and (one_more or given is not None or options["origin"]):
        hint = "Leave out --continue, --resume, --session-id and --from."
        raise UsageError("--from-recording starts a new session", hint=hint)
    if options["fork"] and not one_more:
        raise UsageError("--fork needs a session", hint="Add --continue or --resume ID.")
    if given is not None and (one_more or options["origin"]):
        hint = "Leave out --continue, --resume and --from."
        raise UsageError("--session-id cannot be combined with another session", hint=hint)
    if options["wait"] and (options["fork"] or pick or not (one_more or given)):
        raise UsageError(
            "--wait needs an existing session, not a copy", hint="Add --continue or --resume ID."
        )
    if options["origin"] is not None and not options["origin"].strip():
        raise UsageError("--from names no session", hint="Give ID or ID:NUMBER.")
    if options["origin"] and one_more:
        raise UsageError("--from starts a new session", hint="Leave out --continue or --resume.")
    if options["newest"] and resume:
        raise UsageError("--continue and --resume name two sessions", hint="Give one of them.")
    return SessionChoice(
        newest=options["newest"],
        id=None if pick else resume,
        pick=pick,
        pick_recording=options["recording"] == PICK,
        fork=options["fork"],
        for_task=given,
    )


def check_choice(choice: "SessionChoice", project: "Project") -> None:
    """Raise NoSuchSession for a missing session, or if there is no session to pick."""
    from ..session.store import all_logs

    if choice.id is not None:
        project.find_log(choice.id)
    elif choice.newest:
        project.newest_log()
    elif choice.pick and not all_logs(project.state):
        raise NoSuchSession("there is no session to resume yet", hint="Start one: ctxagent")


def resume_recording(options: dict[str, Any], loaded: "LoadedSettings") -> None:
    """Create a session from the file in --from-recording, and set the options to resume it. Raises
    UsageError for a file that is not a recorded session.
    """
    if options["recording"] in (None, PICK):
        return
    from ..recordings.other_sessions import other_sessions

    made = other_sessions(launch_of(options, loaded)).import_session(options["recording"])
    options["recording"], options["resume"] = None, made.id
    say(f"note: {made.id} {made.line}", err=True)


def load(options: dict[str, Any], *, skip_invalid: bool = False) -> "LoadedSettings":
    """Load all settings, and the API keys that `/login` stored. With `skip_invalid`, invalid values
    of a project file are left out. Raises ConfigError.
    """
    from ..config.places import state_dir
    from ..library.launch_parts import load as load_settings
    from ..library.login import add_stored_keys

    flags = setting_flags(options)
    loaded = load_settings(
        cwd_of(options), os.environ, flags, safe=options["safe"], skip_invalid=skip_invalid
    )
    add_stored_keys(os.environ, state_dir(loaded.settings, os.environ))
    return loaded


def setting_flags(options: dict[str, Any]) -> list[str]:
    """Return all settings made by options, each as KEY=VALUE."""
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
    directories = map(os.path.abspath, options["directories"])
    flags += [f"permissions.directories={each}" for each in directories]
    return [*flags, *(f"permissions.deny={rule}" for rule in options["deny"])]


def say_notices(loaded: "LoadedSettings", *, safe: bool = False) -> None:
    """Print notices about the settings on stderr."""
    from ..library.launch_parts import notices_of

    for line in [*notices_of(loaded, os.environ), *([SAFE_START] if safe else [])]:
        say(f"note: {line}", err=True)


def warn_of_problems(loaded: "LoadedSettings") -> None:
    """Print the errors in the project file that were skipped."""
    for problem in loaded.problems:
        say(f"warning: ignored: {problem}", err=True)


def load_for_reading(options: dict[str, Any]) -> "LoadedSettings":
    """Load the settings for a command that starts nothing: skip and print errors in the project
    file.
    """
    from ..config.places import state_notice

    loaded = load(options, skip_invalid=True)
    warn_of_problems(loaded)
    if where := state_notice(loaded.settings, os.environ):
        say(f"note: {where}", err=True)
    return loaded


def project_of(options: dict[str, Any], loaded: "LoadedSettings | None" = None) -> "Project":
    """Return the project of the working directory."""
    from ..config.places import state_dir, state_notice
    from ..session.store import Project

    if loaded is None:
        loaded = load(options)
        if where := state_notice(loaded.settings, os.environ):
            say(f"note: {where}", err=True)
    return Project(state_dir(loaded.settings, os.environ), cwd_of(options))


def log_of(options: dict[str, Any], id: str | None) -> Path:
    """Return the log of a session, by default the newest one here. Raises SessionError."""
    project = project_of(options)
    return project.newest_log() if id is None else project.find_log(id)


def prior_of(options: dict[str, Any], project: "Project") -> str:
    """Return the hand-over from the checkpoint in --from, or "" without the option.

    The value is ID:NUMBER. A bare ID means the newest checkpoint, or the whole session if it has
    none. Raises UsageError for a malformed value, and SessionError for a missing session or
    checkpoint.
    """
    if not options["origin"]:
        return ""
    from ..compaction.recovery import recover_session
    from ..session.checkpoints import entries_up_to_checkpoint, rewind_points
    from ..session.log import Entries

    id, _, number = options["origin"].partition(":")
    if number and not number.isdecimal():
        raise UsageError(
            f"--from {options['origin']}: {number!r} is not the number of a checkpoint",
            hint="In the session, /rewind lists the checkpoints with their numbers.",
        )
    log = project.find_log(id)
    if number:
        entries = entries_up_to_checkpoint(log, int(number))
    elif any(point.path for point in rewind_points(Entries(log))):
        entries = entries_up_to_checkpoint(log)
    else:
        entries = Entries(log)
    return recover_session(entries, 3, is_handed_over=True).text


def launch_of(options: dict[str, Any], loaded: "LoadedSettings | None" = None) -> "LaunchOptions":
    """Return the launch options of a session."""
    from ..launch import Budget, Prompts
    from ..library.launch_parts import launch_options
    from .answers import read_answers

    loaded = loaded or load(options)
    return launch_options(
        loaded,
        cwd_of(options),
        os.environ,
        prompts=Prompts(
            own=read_prompt(options["system_prompt"]),
            append=options["append_system_prompt"],
            prior=prior_of(options, project_of(options, loaded)),
        ),
        budget=Budget(options["max_turns"], options["max_budget_usd"]),
        answers=read_answers(options["answers"]) if options["answers"] else None,
        safe=options["safe"],
    )


def read_prompt(path: Path | None) -> str:
    """Return the system prompt in a file, or "" without a file. Raises UsageError for an
    unsuitable file.
    """
    if path is None:
        return ""
    try:
        with path.open("rb") as file:  # may be a pipe: <(…)
            data = file.read(MAX_PROMPT_BYTES + 1)
    except OSError as error:
        hint = "Give the path of a text file; --append-system-prompt takes a text."
        raise UsageError(f"--system-prompt {path}: {error.strerror}", hint=hint) from error
    text = data.decode("utf-8-sig", "replace").strip()
    why = "empty" if not text else "binary, not text" if "\0" in text or "\ufffd" in text else ""
    if len(data) > MAX_PROMPT_BYTES:
        why = "too large"
    if why:
        hint = f"Give a text file in UTF-8 of at most {MAX_PROMPT_BYTES:,} bytes."
        raise UsageError(f"--system-prompt {path}: the file is {why}", hint=hint)
    return text


def cwd_of(options: dict[str, Any]) -> Path:
    """Return the working directory. Raises UsageError if it no longer exists."""
    try:
        return options["cwd"].absolute() if options["cwd"] else Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory no longer exists", hint="Change to one that does, or give --cwd."
        ) from None
