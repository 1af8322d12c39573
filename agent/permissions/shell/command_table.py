"""Commands with known options, from `commands.toml`.

An option that the table does not list is unknown, and so is an abbreviation. A command is known
only if all its words are known.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...lazy import dataclass, regex
from .parser import SimpleCommand, Word

_MAX_NAME_WORDS = 5  # `uv run python -m pytest`
_VERSION = regex(r"(?<=[a-z])[\d.]+$")
_GIT_VALUED_OPTIONS = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_URL = regex(r"(?:https?|ssh|git)://|[\w.-]+@[\w.-]+:")
_MAKE_OWN = regex(r"(?:\.?SHELL\w*|G?(?:NU)?MAKE\w*)[:+?]*|.*!", re.DOTALL)  # make's own settings
_MAKE_VALUE = regex(r"[\w.,:+@%][\w.,:+@%/-]*|")
_OPTION_SETS = ("flags", "values", "optional", "files")


@dataclass(frozen=True, slots=True)
class CommandTable:
    """The options of a program or a subcommand. The fields are the keys of `commands.toml`."""

    name: str
    read_only: bool = False
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    patterns: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    operands: str = "files"
    operand: re.Pattern[str] | None = None
    min: int = 0
    max: int | None = None
    operands_with: frozenset[str] = frozenset()
    pattern_from: frozenset[str] = frozenset()
    digits: bool = False
    raw: bool = False
    any_option: bool = False
    recursive: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()
    bundles: bool = True
    dashes: bool = False
    system: bool = False
    any_rule: bool = False
    rule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_git(self) -> bool:
        return self.name.partition(" ")[0] == "git"

    @property
    def is_bounded(self) -> bool:
        """Whether a rule for the program covers only operands in the project."""
        return self.is_git or self.operands in ("project", "tests", "make", "remote")

    def takes_value(self, option: str) -> bool:
        if option in self.optional:
            return False
        return option in self.values or option in self.files or option in self.patterns

    def with_rule(self) -> "CommandTable":
        """Return the table with the additional options that a rule for the program covers."""
        added = {key: getattr(self, key) | value for key, value in _sets(self.rule).items()}
        return replace(self, **added, operands_with=frozenset(), max=None) if self.rule else self


@dataclass(slots=True)
class Arguments:
    """The words of a command after its name, classified by its table."""

    table: CommandTable
    operands: list[Word] = field(default_factory=list)
    options: list[tuple[str, Word | None]] = field(default_factory=list)  # with their values
    unlisted: str = ""  # the first word that the table does not list

    def has(self, options: frozenset[str]) -> bool:
        return any(name in options for name, _ in self.options)

    def file_values(self) -> list[Word]:
        return [value for name, value in self.options if value and name in self.table.files]

    def files(self) -> list[Word]:
        """Return the operands and values that may be files or folders."""
        table = self.table
        if table.raw or table.operands in ("text", "none"):
            return self.file_values()
        skip = int(table.operands == "pattern" and not self.has(table.pattern_from))
        return self.file_values() + self.operands[skip:]

    def match_table(self) -> bool:
        """Return True if all options are listed and the operands satisfy the table."""
        table, count = self.table, len(self.operands)
        if self.unlisted or (count and table.operands == "none"):
            return False
        if count < table.min or (table.any_rule and not self.options):
            return False
        if table.max is not None and (count > table.max or any(w.glob for w in self.operands)):
            return False
        if count and table.operands_with and not self.has(table.operands_with):
            return False
        return table.operand is None or all(
            word.fixed and table.operand.fullmatch(word.text) for word in self.operands
        )


def _sets(keys: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    return {key: frozenset(keys[key].split()) for key in _OPTION_SETS if key in keys}


@cache
def _sources() -> Mapping[str, tuple[str, str]]:
    """Return the name and the text of each table, keyed by its name and its aliases. A table is
    parsed on first use, since parsing all of them takes longer than running a command.
    """
    text = Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
    found = {}
    for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        name = head.strip('[]"')
        aliases = re.search(r"^alias = .*", rest, re.MULTILINE)
        for each in (name, *re.findall(r'"([^"]+)"', aliases[0] if aliases else "")):
            found[each] = (name, rest)
    return found


@cache
def _keys(name: str) -> Mapping[str, Any]:
    return tomllib.loads(_sources()[name][1])


def table_of(name: str) -> CommandTable | None:
    """Return the table of a command by its name or alias; None if there is none."""
    found = _sources().get(name)
    return _table(found[0]) if found else None


@cache
def _table(name: str) -> CommandTable:
    keys = _keys(name)
    plain = {k: v for k, v in keys.items() if k not in ("alias", "use", *_OPTION_SETS)}
    sets = _sets(keys)
    patterns = dict(keys.get("patterns", {}))
    for used in map(_keys, keys.get("use", "").split()):
        patterns |= used.get("patterns", {})
        plain["digits"] = plain.get("digits", False) or used.get("digits", False)
        sets |= {key: sets.get(key, frozenset()) | value for key, value in _sets(used).items()}
    for key in ("operands_with", "pattern_from", "recursive", "follows"):
        plain[key] = frozenset(keys.get(key, "").split())
    plain["patterns"] = {key: regex(value, re.DOTALL) for key, value in patterns.items()}
    if "operand" in keys:
        plain["operand"] = regex(keys["operand"], re.DOTALL)
    return CommandTable(name, **{**plain, **sets})


@dataclass(frozen=True, slots=True)
class KnownCommand:
    """A command line whose program or subcommand has a table."""

    table: CommandTable
    words: Sequence[Word]  # after the name
    own: Sequence[Word] = ()  # git's own options, before the subcommand


def known_command(part: SimpleCommand) -> KnownCommand | None:
    """Return a command with its table; None if no table has its name as written."""
    texts = []
    for word in part.words[:_MAX_NAME_WORDS]:
        if not word.fixed or word.glob:
            break
        texts.append(word.text)
    for count in range(len(texts), 0, -1):
        if table := table_of(" ".join(texts[:count])):
            return _git_command(part) if table.is_git else KnownCommand(table, part.words[count:])
    return None


def _git_command(part: SimpleCommand) -> KnownCommand:
    place = first_operand([word.text for word in part.words])
    own, rest = part.words[1:place], part.words[place:]
    names = [word.text for word in rest[:2] if word.fixed and not word.glob]
    for count in range(len(names), 0, -1):
        if table := table_of(" ".join(["git", *names[:count]])):
            return KnownCommand(table, rest[count:], own)
    return KnownCommand(_git(), part.words[1:])


def git_options(known: KnownCommand, granted: Collection[str] = ()) -> Arguments:
    """Return git's own options, before the subcommand, as rules cover them."""
    return read_arguments(_git().with_rule(), known.own, granted)


def _git() -> CommandTable:
    table = table_of("git")
    assert table is not None
    return table


def first_operand(words: Sequence[str]) -> int:
    """Return the index of a program's first operand; the number of words if there is none."""
    place = 1
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[0] == "git" and words[place] in _GIT_VALUED_OPTIONS else 1
    return place


def read_arguments(
    table: CommandTable, words: Sequence[Word], granted: Collection[str] = ()
) -> Arguments:
    """Classify the words of a command by the table, up to the first unlisted word. Words in
    `granted` count as listed.
    """
    found = Arguments(table)
    rest = list(words)
    while rest and not found.unlisted:
        word = rest.pop(0)
        if table.raw:
            found.operands.append(word)
        elif word.text == "--" and word.fixed:
            if not table.dashes:
                found.operands += rest
                break
        elif not _may_be_option(word, table):
            found.operands.append(word)
        elif options := _options(table, word, rest):
            found.options += options
        elif not (word.fixed and word.text in granted):
            found.unlisted = word.text
    return found


def _options(table: CommandTable, word: Word, rest: list[Word]) -> list[tuple[str, Word | None]]:
    """Return the options in a word with their values; [] if the table does not list them. A value
    may be taken from `rest`.
    """
    text = word.text
    name, equals, glued = text.partition("=")
    if text in table.flags or (word.fixed and table.digits and re.fullmatch(r"-\d+", text)):
        return [(text, None)]
    found: list[tuple[str, Word | None]]
    if table.takes_value(text):
        found = [(text, rest.pop(0))] if rest and _is_value(table, rest[0]) else []
    elif text in table.optional:
        return [(text, None)]
    elif equals and (table.takes_value(name) or name in table.optional):
        found = [(name, replace(word, text=glued))]
    elif table.bundles and word.fixed and not text.startswith("--"):
        return _bundle(table, word, rest)
    else:
        return []
    return found if all(_is_allowed(table, *option) for option in found) else []


def _bundle(table: CommandTable, word: Word, rest: list[Word]) -> list[tuple[str, Word | None]]:
    """Return the short options in one word (-la, -n5, -nfFILE); [] if one of them is unknown."""
    options: list[tuple[str, Word | None]] = []
    for place, letter in enumerate(word.text[1:], 2):
        name, glued = f"-{letter}", word.text[place:]
        if name in table.flags:
            options.append((name, None))
            continue
        if name in table.optional:
            value: Word | None = replace(word, text=glued)
        elif table.takes_value(name) and (glued or (rest and _is_value(table, rest[0]))):
            value = replace(word, text=glued) if glued else rest.pop(0)
        else:
            return []
        return [*options, (name, value)] if _is_allowed(table, name, value) else []
    return options


def _is_value(table: CommandTable, word: Word) -> bool:
    """Return True if the next word is certainly the value of an option and remains one word.
    Programs disagree about a value that looks like an option, except those with long single-dash
    options (find).
    """
    if word.glob and not table.any_option:  # a file may be named like an option
        return False
    return not table.bundles or bool(re.fullmatch(r"(?!-)(?s:.*)|-\d*", word.text))


def _is_allowed(table: CommandTable, name: str, value: Word | None) -> bool:
    """Return True if an option may have this value and the shell keeps the value as one word."""
    if value is None:
        return True
    if value.glob and (name in table.files or "/" in value.text):
        return False
    if not (value.fixed or value.whole):
        return False
    pattern = table.patterns.get(name)
    return pattern is None or (value.fixed and pattern.fullmatch(value.text) is not None)


def _may_be_option(word: Word, table: CommandTable) -> bool:
    """Return True if a word is an option or may become one when the shell expands it."""
    if word.fixed:
        found = word.text[:1] == "-" and word.text != "-"
        return found or (word.glob and word.text[0] in "*?[" and not table.any_option)
    start = re.split(r"[$`{]", word.text.replace('"', ""), maxsplit=1)[0]
    return start[:1] in ("", "-", "'", "\\") or not word.whole


def stray_word(part: SimpleCommand, start: int, spelled: str, inside: Callable[[str], bool]) -> str:
    """Return the first word of a command that a rule for its program does not cover, "" if there is
    none. Such a word is an unlisted option or a path outside the project.

    The rule covers the first `start` words of the command and the words in `spelled`, its text.
    `inside` tests whether a path, as written, is in the project. For a program without a table the
    result is "".
    """
    known = known_command(_by_file_name(part))
    if known is None or known.table.any_rule:
        return ""
    granted = {word.text for word in part.words[:start]} | set(spelled.split())
    table = known.table.with_rule()
    found = read_arguments(table, known.words, granted)
    if not found.match_table():
        return found.unlisted or next((word.text for word in found.operands), part.name)
    own = git_options(known, granted)
    if own.unlisted or not all(inside(word.text) for word in own.files()):
        return own.unlisted or own.files()[0].text
    words = [*found.operands, *found.file_values()] if table.is_bounded else []
    strays = (word.text for word in words if not _is_inside(word, table, inside))
    return next((text for text in strays if text not in granted), "")


def keeps_history(part: SimpleCommand) -> bool:
    """Return True if a git command discards no commit and no stash: its subcommand and options are
    listed.
    """
    known = known_command(_by_file_name(part))
    if known is None or not known.table.name.startswith("git "):
        return False
    found = read_arguments(known.table.with_rule(), known.words)
    return found.match_table() and not git_options(known).unlisted


def _by_file_name(part: SimpleCommand) -> SimpleCommand:
    """Return a command with its program's file name, without a version number that no table has."""
    first = part.words[0]
    name = first.text.rpartition("/")[2] if first.text.startswith("/") else first.text
    if table_of(name) is None:
        name = _VERSION.sub("", name)
    return replace(part, words=(replace(first, text=name), *part.words[1:]))


def _is_inside(word: Word, table: CommandTable, inside: Callable[[str], bool]) -> bool:
    """Return True if an operand names nothing outside the project and nothing to run."""
    text = word.text
    if not word.fixed:
        return False
    if table.operands == "tests":
        path = text.partition("::")[0]
        return not (text.startswith("@") or "://" in text) and inside(path)
    if table.operands == "make":
        name, equals, value = text.partition("=")
        plain = not equals or (_MAKE_VALUE.fullmatch(value) and not _MAKE_OWN.fullmatch(name))
        return bool(plain) and text != "-" and inside(value if equals else text)
    if table.operands == "remote":
        return _is_remote(text, table.name) and inside(text)
    return inside(text)


def _is_remote(text: str, command: str) -> bool:
    """Return True if an operand names a remote repository or its refs. Remote helpers, local
    repositories and refspecs that overwrite local refs do not count.
    """
    if "::" in text or re.match(r"file:|\+|\.{0,2}/|\.{1,2}$|~", text):
        return False
    return command == "git push" or ":" not in text or bool(_URL.match(text))


def plainly_inside(path: str) -> bool:
    """Return True if a path, as written, can only be below the current folder."""
    return path[:1] not in ("/", "~") and ".." not in path.split("/")
