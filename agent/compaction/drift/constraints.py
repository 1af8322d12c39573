"""Constraints to check calls against: rules that name a path, and calls that the user denied.

The code does not decide whether a rule forbids or demands something, since that depends on the
language. A rule that names a path is only checked when a call changes a file there for the first
time.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from ...lazy import dataclass
from ...session.entries import Block
from ...session.ledger import DENIAL_REASON
from ..language.words import named_paths
from .calls import CHANGING, command_of, path_argument, simple_commands, written_paths

DENIED = "not authorised: "  # prefix of a denied call in the ledger


@dataclass(frozen=True, slots=True)
class PathRule:
    """A rule of the user that names paths."""

    ref: int  # of its message
    text: str
    paths: tuple[str, ...]  # files, folders and patterns


def path_rules(rules: Iterable[tuple[int, str]]) -> list[PathRule]:
    """Return the rules that name a path. The input rules are (ref, text) pairs."""
    named = ((ref, text, named_paths(text)) for ref, text in rules)
    return [PathRule(ref, text, paths) for ref, text, paths in named if paths]


def changed_under(call: Block, names: Sequence[str], shown: Callable[[str], str]) -> str | None:
    """Return the first path that a call changes and that matches `names`, else None. `shown`
    converts a path to the session's notation.
    """
    paths = (shown(path) for path in written_paths(call))
    return next((path for path in paths if is_under(path, names)), None)


def is_under(path: str, names: Sequence[str]) -> bool:
    """Return True if a path equals one of the names, is in one of the folders, or matches one of
    the patterns.
    """
    base = path.rpartition("/")[2]
    for name in names:
        bare = name.rstrip("/*") if name.endswith(("/", "/**", "/*")) else name
        if path == bare or path.startswith(f"{bare}/"):
            return True
        if "*" in name and (fnmatchcase(path, name) or fnmatchcase(base, name)):
            return True
    return False


def is_denied_again(
    denial: str, call: Block, made: Callable[[Block], bool], shown: Callable[[str], str]
) -> bool:
    """Return True if a call does what the user denied.

    A command matches if it runs all parts of the denied command, even with more arguments or other
    commands. An edit, or a command of several lines, only matches if the same call was `made`
    before.
    """
    tool, _, title = denial.removeprefix(DENIED).partition(DENIAL_REASON)[0].partition(" ")
    if call.get("name") != tool or not title:
        return False
    if tool in CHANGING:
        return shown(path_argument(call)) == shown(title) and made(call)
    command = command_of(call).strip()
    if title.endswith(" …"):
        return made(call) and command.startswith(f"{title.removesuffix(' …')}\n")
    run = simple_commands(command)
    return bool(command) and all(_covers(run, words) for words in simple_commands(title))


def _covers(run: Collection[Sequence[str]], denied: Sequence[str]) -> bool:
    return any(words[0] == denied[0] and set(denied) <= set(words) for words in run)
