"""/help: the commands by group, their arguments, and the keys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from ...config.keyboard import KeyboardSettings, key_name
from ...errors import UsageError
from ...extensions.command import GROUPS, Command, command
from ..foreign_names import foreign_names
from ..screen import Menu, Option, Styled
from . import completions
from .command_context import CommandContext
from .files import all_commands, read_command_files

# (key, help). A name in braces is an action in the settings `keys`.
_KEYS = (
    ("{send}", "send; while the agent works, it gets the message after the running call"),
    ("{send_other}", "new line; while the agent works, send the message after the turn"),
    (
        "{newline}  \\ {send}",
        "new line, also while the agent works; so is Shift-Enter in most terminals",
    ),
    ("Up  Down", "move in the text, then to queued messages, then to earlier messages"),
    ("{interrupt}  Ctrl-C", "stop what runs; Esc in a question goes back"),
    ("{cycle_mode}", "next permission mode"),
    ("{unfold}", "show the last folded result in full; again: the previous one"),
    ("{history_search}", "search what you typed before; again: older, Ctrl-S: newer"),
    ("{editor}", "continue in your editor, as Ctrl-G does; with vi keys: v"),
    ("Esc Esc", "clear the input; if it is empty, go back to an earlier point"),
    ("Ctrl-S", "set the message aside; again: bring it back"),
    ("Ctrl-T  Alt-P", "show the todo list, or choose a model"),
    ("Ctrl-_", "undo"),
    ("Tab", "complete; the menu opens automatically. Enter completes the path after an @"),
    ("!command", "run a shell command yourself; the agent sees it with your next message"),
    ("#words", "write a note that is kept through every summary"),
    ("@path  #ref", "attach a file or directory, or refer to an entry of the log"),
    ("{paste_image}", "attach the image that is in the clipboard"),
    ("{redraw}", "draw the bottom of the screen again"),
    ("Ctrl-Z", "suspend to the shell; fg resumes"),
    ("{background}", "send the running command or subagent to the background; see /tasks"),
    ("Ctrl-D", "leave; so does Ctrl-C twice"),
)
LINE_KEYS = (  # keys of the plain line screen
    ("Ctrl-C", "stop what runs"),
    *(row for row in _KEYS if row[0][0] in "!#@" or row[0] in ("Ctrl-Z", "Ctrl-D")),
)
KEYS_TOPIC = "keys"
NAME_CELLS = 14  # minimum width of a command in the menu
PREVIEW_ROWS = 4  # separator line and preview of a command


@command(
    "find a command or a key",
    argument="[WORD|keys]",
    group="conversation",
    anytime=True,
    complete=completions.fixed((KEYS_TOPIC, *GROUPS)),
)
async def _help(repl: CommandContext, argument: str) -> None:
    await read_command_files(repl)
    keys = key_rows(repl.screen.keys) if repl.screen.paints else LINE_KEYS
    if argument.lower() == KEYS_TOPIC:
        repl.show_table(keys)
    elif argument:
        _show_matching(repl, argument, keys)
    elif repl.screen.paints and not repl.questions.is_asking:
        await _choose(repl)
    else:
        _show_groups(repl, all_commands(repl).values())
        repl.say(f"{KEYS_TOPIC}:")
        repl.show_table(keys)


def key_rows(keys: KeyboardSettings) -> list[tuple[str, str]]:
    """Return the key bindings in force with their descriptions."""
    names = {each.name: key_name(getattr(keys, each.name)) for each in fields(keys)}
    return [(shown.format(**names), help) for shown, help in _KEYS]


def _show_groups(repl: CommandContext, commands: Iterable[Command]) -> None:
    """Print commands by group, with their arguments."""
    found = list(commands)
    for group in GROUPS:
        if rows := [(_call(each), each.help) for each in found if each.group == group]:
            repl.say(f"{group}:")
            repl.show_table(rows)


def _show_matching(repl: CommandContext, argument: str, keys: Sequence[tuple[str, str]]) -> None:
    """Print the commands and keys that contain these words. Raises UsageError if there are none."""
    words = [word.removeprefix("/") for word in argument.casefold().split()]
    found = [
        each
        for each in all_commands(repl).values()
        if all(word in _searched(each) for word in words)
    ]
    found_keys = [row for row in keys if all(word in "\n".join(row).casefold() for word in words)]
    if not found and not found_keys:
        raise UsageError(f"no command or key matches {argument!r}", hint="/help lists them all.")
    _show_groups(repl, found)
    for each in found:
        if names := _other_names(each):
            repl.say(f"/{each.name} is also {names}")
    if found_keys:
        repl.say(f"{KEYS_TOPIC}:")
        repl.show_table(found_keys)


def _searched(command: Command) -> str:
    parts = (command.name, command.argument, command.help, command.group, _other_names(command))
    return "\n".join(parts).casefold()


def _call(command: Command) -> str:
    return f"/{command.name} {command.argument}".strip()


def _other_names(command: Command) -> str:
    """Return the names of a command in other agents."""
    own = f"/{command.name}"
    return ", ".join(f"/{name}" for name, meant in foreign_names("aliases").items() if meant == own)


async def _choose(repl: CommandContext) -> None:
    """Let the user choose a command. Run it, or put it into the input if it takes an argument."""
    commands = all_commands(repl)
    chosen = await repl.screen.pick(_menu(commands, key_rows(repl.screen.keys)))
    command = commands.get(chosen.key) if chosen else None
    if command is None:
        return
    if command.argument:
        repl.screen.restore(f"/{command.name} ")
    elif command.anytime and command.run:
        await repl.run(command, "")
    else:
        repl.send_next(f"/{command.name}")


def _menu(commands: Mapping[str, Command], rows: Sequence[tuple[str, str]]) -> Menu:
    """Return the menu of all commands, with a scope for each group and one for the keys."""
    groups = [group for group in GROUPS if any(each.group == group for each in commands.values())]

    def load(scope: int) -> Iterator[Sequence[Option]]:
        names = [groups[scope]] if scope < len(groups) else groups
        if scope != len(groups):
            yield [_option(each) for group in names for each in _of(group, commands)]
        if scope >= len(groups):
            yield [Option(f" {keys}", f"{keys:<{NAME_CELLS}}  {help}") for keys, help in rows]

    def preview(name: str) -> Sequence[Styled]:
        if (command := commands.get(name)) is None:
            return ()
        names = _other_names(command)
        about = f"{command.help} · also {names}" if names else command.help
        return [("message", _call(command)), ("", about)]

    return Menu(
        title="Commands",
        load=load,
        action="use it",
        empty_text="there is no command",
        scopes=(*groups, KEYS_TOPIC),
        searches_all=True,
        preview=preview,
        preview_rows=PREVIEW_ROWS,
    )


def _of(group: str, commands: Mapping[str, Command]) -> list[Command]:
    return [each for each in commands.values() if each.group == group]


def _option(command: Command) -> Option:
    name = f"/{command.name}"
    words = f"{command.argument} {command.group} {_other_names(command)}"
    return Option(command.name, f"{name:<{NAME_CELLS}}  {command.help}", words=words)
