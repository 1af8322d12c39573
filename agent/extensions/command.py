"""The slash command, for the commands of ctxagent and of extensions.

A command is a function, marked with `command`: a method of a feature, or a function of a module
whose first parameter is the front end. Its other parameter is the text after the command's name.
The groups of commands are in the order in which /help shows them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isfunction
from typing import Any, Literal, TypeVar, get_args

from ..lazy import dataclass, regex

CommandGroup = Literal[
    "conversation", "context", "files and work", "model and cost", "setup", "your own"
]
GROUPS: tuple[CommandGroup, ...] = get_args(CommandGroup)
OWN: CommandGroup = "your own"  # commands from files, plugins, servers and extensions

MESSAGE = "[/{call}, a command from {path}:]\n\n{text}"  # for the model
_MESSAGE = regex(r"\[/[^\n]+, a command from [^\n]+:\]\n")

Offers = Sequence[tuple[str, str]]  # (text, description) of completions
F = TypeVar("F", bound=Callable[..., Any])


def group_named(name: str) -> CommandGroup:
    """Return the group of this name, OWN for an unknown name."""
    return next((group for group in GROUPS if group == name), OWN)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The result of a command that sends a message to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command."""

    name: str  # without the slash
    help: str
    # Takes the text after the name. Returns a text to show, a Prompt or None; may be async. Raises
    # CtxagentError on failure. None if the message itself is sent to the model.
    run: Callable[..., Any] | None
    argument: str = ""  # shown after the name in help, such as [FILE]
    group: CommandGroup = OWN  # section in help
    anytime: bool = False  # whether it may run during a turn, which it must not disturb
    complete: Callable[..., Awaitable[Offers]] | None = None  # returns offers for the argument
    plugin: str = ""  # name of its plugin, if any

    def bound(self, owner: Any) -> "Command":
        """Return the command with the first argument of its functions: a feature or a front end."""
        run, complete = self.run, self.complete
        return replace(
            self,
            run=run and partial(run, owner),
            complete=complete and partial(complete, owner),
        )


def command(
    help: str,
    *,
    argument: str = "",
    name: str = "",
    group: str = OWN,
    anytime: bool = False,
    complete: Callable[..., Awaitable[Offers]] | None = None,
) -> Callable[[F], F]:
    """Make a method of a feature, async or not, a slash command. The method takes the text after
    the command's name, and returns a text to show or a Prompt. `group` is the section in /help; an
    unknown name selects the default. A command with `anytime` also runs during a turn. `complete`
    is another method, which returns (text, description) of completions for the argument.
    """

    if not isinstance(help, str):
        raise TypeError("write @command(HELP), with a text for /help")

    def mark(run: F) -> F:
        shown = name or run.__name__.strip("_").replace("_", "-")
        run.__dict__["command"] = Command(
            shown, help, run, argument, group_named(group), anytime, complete
        )
        return run

    return mark


def commands_in(functions: Mapping[str, Any]) -> list[Command]:
    """Return the commands among the functions of a class or module, given its `vars`."""
    marked = (vars(each) for each in functions.values() if isfunction(each))
    return [each["command"] for each in marked if "command" in each]


def is_command_message(words: Any) -> bool:
    """Return True for the message of a command. The user did not type file names in it."""
    return isinstance(words, str) and _MESSAGE.match(words) is not None
