"""The command line: the options, the commands, and the start of the two front ends.

Heavy imports are inside the commands that need them, so that `--version` and `--help` are fast and
the REPL shows its prompt early.
"""

import gc
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config.compaction_settings import PRESET_NAMES
from ..errors import UsageError
from .group import Group
from .options import (
    CONVERSATION_FLAGS,
    LITERAL_WORDS,
    PICK,
    STDIN,
    Amount,
    WholeNumber,
    check_choice,
    check_options_of_command,
    choice_of,
    configure_streams,
    exits_with_code,
    is_headless,
    load,
    message_of,
    project_of,
    resume_recording,
    run_and_exit,
    say,
    say_notices,
)
from .program_version import version_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_TASK_MARK = "\0"  # no argument of a process contains it
LOOSENING_OPTIONS = ("--allow", "--add-dir", "--permission-mode", "--trust")
VALUE_IS_OPTIONAL = ("task", "resume", "recording")  # options that may have no value
# New objects per collection. Python's 700 makes a start 6 % slower, and 50,000 make it 4 % slower.
GC_THRESHOLD = 100_000
# Module of each command of the kernel, imported when the command runs. Add-ons declare theirs as
# entry points.
_COMMAND_MODULES = {
    "compact": "compact",
    "context": "context",
    "extensions": "extensions",
    "guide": "guide",
    "log": "log",
    "mcp": "mcp",
    "memory": "memory",
    "models": "models",
    "preserve": "preserve",
    "recover": "log",
    "rules": "preserve",
    "sessions": "sessions",
}


@contextmanager
def _nearest_option() -> "Iterator[None]":
    """Reduce the suggestions for an unknown option to the nearest one that protects no less."""
    try:
        yield
    except click.NoSuchOption as error:
        if error.possibilities:
            near = [each for each in error.possibilities if each not in LOOSENING_OPTIONS]
            error.possibilities[:] = near[:1]  # nearest first, but click prints them sorted
        raise


def _misplaced(main: click.Command, error: click.NoSuchOption) -> click.UsageError:
    """Return the error about an option after a command. If the option is valid before the command,
    the error says so.
    """
    if error.ctx is not None:
        for option in main.params:
            if error.option_name in option.opts and option.name not in CONVERSATION_FLAGS:
                is_flag = isinstance(option, click.Option) and option.is_flag
                given = "" if is_flag else f" {option.metavar or '…'}"
                first, _, command = error.ctx.command_path.partition(" ")
                where = f"{first} {error.option_name}{given} {command} …"
                what = f"{error.message} Put it before the command: {where}"
                return click.UsageError(what, error.ctx)
    return error


def _with_our_option(
    error: click.NoSuchOption | click.BadOptionUsage, words: "Sequence[str]"
) -> click.UsageError:
    """Return the error about an unknown option. If another agent has the option, the error names
    our equivalent. Some agents have options such as `-nt`, which click reads as `-n`.
    """
    from ..ui.foreign_names import foreign_names

    known, start = foreign_names("options"), error.option_name
    name = next((word for word in words if word in known and word.startswith(start)), start)
    what = error.message.replace(f"'{start}'", f"'{name}'").rstrip(".")
    return click.UsageError(f"{what}. {known[name]}", error.ctx) if name in known else error


class _CommandOrWords(Group):
    """A click group that accepts a message in place of a command, before or after the options."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_COMMAND_MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in _COMMAND_MODULES:
            module = import_module(f".{_COMMAND_MODULES[cmd_name]}", __package__)
            self.add_command(getattr(module, cmd_name.replace("-", "_")))
        return super().get_command(ctx, cmd_name)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        words = list(args)  # click removes what it has read
        try:
            with _nearest_option():
                return super().make_context(info_name, args, parent, **extra)
        except (click.NoSuchOption, click.BadOptionUsage) as error:
            raise _with_our_option(error, words) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _nearest_option():  # click parses the options of a subcommand here
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _misplaced(self, error) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self._with_marked_task(ctx, args)
        _, rest, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[LITERAL_WORDS] = bool(rest) and args[: -len(rest)][-1:] == ["--"]
        if not rest or (not ctx.meta[LITERAL_WORDS] and self.get_command(ctx, rest[0])):
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = True
        return click.Command.parse_args(self, ctx, args)

    def _with_marked_task(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments with a mark on a task that begins with a dash. The word after -p is
        the task, unless it is exactly the name of an option. Without the mark, click would read a
        task such as `--model=x` as an option, even in `--print=--model=x`.
        """
        options = {name: each for each in self.get_params(ctx) for name in each.opts}
        marked, words = list[str](), list(args)
        while words and words[0].startswith("-") and words[0] != "--":
            word = words.pop(0)
            for start in ("--print=", "-p"):
                if word.startswith(f"{start}-") and word != f"{start}-":
                    word = f"--print={_TASK_MARK}{word.removeprefix(start)}"
            marked.append(word)
            option = options.get(word)
            if not words or not isinstance(option, click.Option) or option.is_flag:
                continue
            is_value = not words[0].startswith("-") or words[0] == STDIN
            if option.name == "task" and not is_value and words[0] not in (*options, "--"):
                marked.append(_TASK_MARK + words.pop(0))
            elif is_value or option.name not in VALUE_IS_OPTIONAL:
                marked.append(words.pop(0))
        return [*marked, *words]


def _without_mark(_: click.Context, __: click.Parameter, task: str | None) -> str | None:
    return task and task.removeprefix(_TASK_MARK)


def _say_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the version, for bug reports, and exit."""
    if not asked or context.resilient_parsing:
        return
    click.echo(version_line())
    context.exit()


@click.group(
    cls=_CommandOrWords,
    invoke_without_command=True,
    subcommand_metavar="[WORDS… | COMMAND [ARGS]…]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without -p and without a COMMAND the terminal opens, and WORDS are your first message. "
    "If stdin is not a terminal, WORDS are the TASK. All settings: `ctxagent config --explain`.\n\n"
    'Example: ctxagent -p "fix the failing test" --permission-mode accept-edits',
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Print version, commit and Python, and exit.",
)
@click.option(
    "-p",
    "--print",
    "task",
    is_flag=False,
    flag_value=STDIN,
    metavar="TASK",
    callback=_without_mark,
    help="Do TASK without a terminal, print the answer and exit. The model also gets what you pipe "
    "in. Without TASK, or with -, the piped text is the task. The next word is the TASK, also with "
    "a dash, unless it is exactly an option.",
)
@click.option(
    "--output-format",
    "format",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="What -p prints: the answer, one JSON document, or one JSON event per line.",
)
@click.option(
    "--input-format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="With stream-json a program sends messages, answers and interrupts, one per line.",
)
@click.option(
    "--json-schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With -p: the answer is JSON that fits the schema in FILE, else the exit code is 1.",
)
@click.option(
    "--model",
    metavar="ID",
    help="The model to use, as PROVIDER/NAME, or scripted:FILE for a scripted model.",
)
@click.option(
    "--context-window",
    type=WholeNumber(min=1),
    metavar="N",
    help="The context window of the model, in tokens.",
)
@click.option(
    "--max-tokens",
    type=WholeNumber(min=1),
    metavar="N",
    help="The longest reply of the model, in tokens.",
)
@click.option(
    "--effort",
    type=click.Choice(["low", "medium", "high", "xhigh", "max"]),
    help="How hard the model thinks.",
)
@click.option(
    "--preset",
    type=click.Choice(PRESET_NAMES),
    metavar="NAME",
    help="When and how the context gets smaller. default clears old results when that saves money, "
    "lean costs less and keeps less, append never changes text that was sent, small is for small "
    "models. Others: ctxagent guide context.",
)
@click.option(
    "-c", "settings", multiple=True, metavar="KEY=VALUE", help="Set any setting. Repeatable."
)
@click.option(
    "--permission-mode",
    type=click.Choice(["ask", "accept-edits", "sandboxed", "plan", "bypass"]),
    help="What to do with a call that no rule allows or denies.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE",
    help="Allow calls without a question, e.g. 'Bash(git status:*)'. Repeatable.",
)
@click.option(
    "--deny",
    multiple=True,
    metavar="RULE",
    help="Never allow calls, e.g. 'Edit(migrations/**)'. Repeatable.",
)
@click.option(
    "--add-dir",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also work in DIR, by the same rules as in the project. Repeatable.",
)
@click.option(
    "--max-turns", type=WholeNumber(min=1), metavar="N", help="Stop after N calls of the model."
)
@click.option(
    "--max-budget-usd",
    type=Amount(min=0),
    metavar="X",
    help="Stop before the calls of the model cost more than X dollars.",
)
@click.option(
    "--continue", "newest", is_flag=True, help="Resume the newest session of this directory."
)
@click.option(
    "-r",
    "--resume",
    is_flag=False,
    flag_value=PICK,
    metavar="[ID]",
    help="Resume the session with this ID. Without ID, pick a session from a list.",
)
@click.option(
    "--session-id",
    metavar="ID",
    help="With -p: do TASK once, in the session with this ID. If you run the same command again, "
    "the session continues where it stopped, or the same answer is printed again.",
)
@click.option(
    "--fork", is_flag=True, help="With --continue or --resume: work in a copy of the session."
)
@click.option(
    "--answers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A JSON file with answers to questions that the agent may ask.",
)
@click.option("--wait", is_flag=True, help="If another process has the session open, wait for it.")
@click.option(
    "--from",
    "origin",
    metavar="ID[:N]",
    help="Start a new session from checkpoint N of the session with this ID; by default from its "
    "newest checkpoint.",
)
@click.option(
    "--from-recording",
    "recording",
    is_flag=False,
    flag_value=PICK,
    metavar="[FILE]",
    help="Continue a session that another agent recorded in FILE. Without FILE, pick one from a "
    "list.",
)
@click.option(
    "--worktree",
    metavar="NAME",
    help="Work in the git worktree ../<checkout>-worktrees/NAME. A missing worktree is created. No "
    "worktree is removed.",
)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Work in DIR instead of the current directory.",
)
@click.option(
    "--system-prompt",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use the text in FILE as system prompt. A session keeps its system prompt.",
)
@click.option(
    "--append-system-prompt",
    metavar="TEXT",
    default="",
    help="Add TEXT to the system prompt.",
)
@click.option(
    "--safe",
    is_flag=True,
    help="Start without MCP servers, plugins, extensions and hooks, and without commands, skills "
    "and subagents from files.",
)
@click.option("--plain", is_flag=True, help="Print plain lines only, for screen readers.")
@click.option("--verbose", is_flag=True, help="With -p: print on stderr what the agent does.")
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """A coding agent for the terminal that keeps old results on disk, not in the context."""
    gc.set_threshold(GC_THRESHOLD)
    configure_streams()
    context.obj = options
    if context.invoked_subcommand is not None:
        check_options_of_command(options, context.invoked_subcommand)
        return
    if is_headless(options):
        from .headless import run_headless

        run_headless(options, context)
    run_and_exit(lambda: _repl(options, message_of(context)))


@main.command(epilog="Example: ctxagent demo --keep demo-project")
@click.option("--fast", is_flag=True, help="Play without pauses.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Play in the new directory DIR and keep it, with its session.",
)
@click.pass_obj
@exits_with_code
def demo(options: dict[str, Any], fast: bool, keep: Path | None) -> int:
    """Show the agent on a sample project: scripted model, real tools, no key, no network."""
    import tempfile

    from ...tools.system.files import make_private_folder, remove_used_folder
    from .demo import play

    fast = fast or not sys.stdout.isatty()
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="ctxagent-demo-")).resolve()
        try:
            return play(folder, fast=fast)
        finally:  # the thread of the search index may still create files
            remove_used_folder(folder)
    if keep.exists() or keep.is_symlink():
        raise UsageError(f"{keep} already exists", hint="Name a directory that does not exist.")
    try:
        make_private_folder(keep)
    except OSError as error:
        raise UsageError(
            f"cannot create the directory {keep}: {error.strerror}",
            hint="Name a place that you may write to.",
        ) from error
    return play(keep.resolve(), fast=fast, is_kept=True)


@main.command(epilog="Example: ctxagent config --trust --preview")
@click.option(
    "--explain", is_flag=True, help="Also print where each value comes from and what it does."
)
@click.option(
    "--trust", is_flag=True, help="Trust this project's files, or each FILE, as they are now."
)
@click.option("--preview", is_flag=True, help="With --trust: show what it would accept.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.pass_obj
@exits_with_code
def config(
    options: dict[str, Any], explain: bool, trust: bool, preview: bool, files: tuple[str, ...]
) -> int:
    """Print every setting and its value."""
    from ..compaction.policy import with_preset_value
    from ..config.load import explain_settings as rows_of

    if trust:
        from .project_trust import trust_project

        trust_project(options, files, preview=preview)
        if preview:
            return 0
    elif preview or files:
        raise UsageError("--preview and FILE need --trust", hint="Add --trust.")
    loaded = load(options)
    say_notices(loaded)
    for row in () if trust and not explain else rows_of(loaded):
        value = with_preset_value(row, loaded.settings).value
        origin = f"  # {row.origin}; {row.help}" if explain else ""
        say(f"{row.key} = {value}{origin}")
    return 0


def _repl(options: dict[str, Any], words: str | None) -> int:
    import asyncio

    from ..ui.repl.repl import Repl
    from .conversation import conversation_place
    from .sessions import offer_former
    from .worktree import enter_worktree, worktree_summary

    loaded = load(options)
    worktree = enter_worktree(options, loaded)
    choice_of(options)
    resume_recording(options, loaded)
    project = project_of(options, loaded)
    offer_former(project)
    check_choice(choice_of(options), project)  # before the prompt appears
    place = conversation_place(options, loaded, has_user=sys.stdout.isatty())
    say_notices(loaded, safe=options["safe"])
    settings = place.launch.settings
    try:
        return asyncio.run(Repl(place.services, settings.ui, settings.keys).run(first=words))
    finally:
        place.end()
        if worktree is not None:
            say(worktree_summary(worktree), err=True)
