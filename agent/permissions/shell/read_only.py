"""Read-only simple commands, and the files that a command names.

A command is read-only if its program is (`commands.toml`) and the table lists all its options. sed
and awk can write files and start commands from their program text. Their program counts as
print-only if every part of it is recognised.

The files that a command may read are judged elsewhere: `path_arguments` returns the words that may
be files. `touched_paths` is for watching changes; no permission depends on it.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...lazy import regex
from ..paths import expand_glob
from .command_table import Arguments, git_options, known_command, read_arguments, table_of
from .parser import Script, SimpleCommand, Word
from .wrappers import find_inner_commands, name_set

_SED_OPTION = regex(r"-[nErsuz]+|--quiet|--silent|--regexp-extended|--separate|--null-data")
_SED_ADDRESS = regex(r"\d+(?:~\d+)?|\$|\+\d+|~\d+")
_SED_COMMAND = regex(r"[pdPDgGhHxnN=l{}]|q\d*|Q\d*")
_ODD_BRACKET = regex(r"\[\^?\]|\[[.=]")  # the first closing bracket does not end it
_SED_FLAGS = regex(r"[gpiI\d]*")
_AWK_DANGER = regex(
    r"system|extension|close|fflush|\\\n|getline|ARGV|ARGC|PROCINFO|@|(?<!\|)\|(?!\|)"
)
_AWK_CALL = regex(r"([A-Za-z_]\w*)\s*\(")
_AWK_FUNCTIONS = name_set(
    "and asort asorti atan2 compl cos exp gensub gsub if in index int length log lshift match "
    "mktime or patsplit print printf rand return rshift sin split sprintf sqrt srand strftime "
    "strtonum sub substr switch systime tolower toupper typeof while xor else do for function"
)
_AWK_OPTION = regex(r"-F.*|-v[A-Za-z_]\w*=.*", re.DOTALL)
_AWK_VARIABLE = regex(r"[A-Za-z_]\w*=.*", re.DOTALL)


def sed_only_prints(arguments: Sequence[str]) -> bool:
    """Return True if sed with these arguments only prints."""
    scripts: list[str] = []
    operands: list[str] = []
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word in ("-e", "--expression") and place + 1 < len(arguments):
            scripts.append(arguments[place + 1])
            place += 1
        elif _SED_OPTION.fullmatch(word):
            pass
        elif word.startswith("-") and word != "-":
            return False
        else:
            operands.append(word)
        place += 1
    if not scripts:
        scripts = operands[:1]
    return bool(scripts) and all(map(_sed_script_prints, scripts))


def _sed_script_prints(script: str) -> bool:
    rest = script
    while rest := rest.lstrip(" \t\n;"):
        found = _after_sed_command(rest)
        if found is None:
            return False
        rest = found
    return True


def _after_sed_command(text: str) -> str | None:
    """Return the text after the first command; None if the command may do more than print."""
    rest = text
    for _ in range(2):  # addresses
        after = _after_sed_address(rest)
        if after is None:
            return None
        if after == rest:
            break
        rest = after.lstrip(" \t")
        if not rest.startswith(","):
            break
        rest = rest[1:].lstrip(" \t")
    rest = rest.removeprefix("!").lstrip(" \t")
    if rest[:1] in ("s", "y") and len(rest) > 1:
        parts = _delimited(rest[1:], 2)
        if parts is None:
            return None
        if rest[0] == "y":
            return parts
        flags = _SED_FLAGS.match(parts)
        return parts[flags.end() :] if flags else parts
    command = _SED_COMMAND.match(rest)
    return rest[command.end() :] if command else None


def _after_sed_address(text: str) -> str | None:
    """Return the text after an address; the text itself if there is no address."""
    if text.startswith("/"):
        after = _delimited(text, 1)
        return None if after is None else re.sub(r"^[IM]+", "", after)
    found = _SED_ADDRESS.match(text)
    return text[found.end() :] if found else text


def _delimited(text: str, count: int) -> str | None:
    """Return the text after `count` delimited texts; the first character is the delimiter. Return
    None if the end is not certain, since versions of sed differ about delimiters in brackets.
    """
    delimiter, rest = text[0], text[1:]
    if delimiter in "\\\n" or delimiter.isalnum() or delimiter.isspace():
        return None
    for _ in range(count):
        found = re.match(rf"((?:\\.|[^\\{re.escape(delimiter)}\n])*){re.escape(delimiter)}", rest)
        if found is None:
            return None
        plain = re.sub(r"\\.", "", found[1])
        if plain.count("[") != plain.count("]") or _ODD_BRACKET.search(plain):
            return None
        rest = rest[found.end() :]
    return rest


def awk_only_prints(arguments: Sequence[str]) -> bool:
    """Return True if awk with these arguments only prints and reads only its operands."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("-"):
        word = arguments[place]
        if word == "-F":
            place += 1
        elif word == "-v":
            place += 1
            if place >= len(arguments) or not _AWK_VARIABLE.fullmatch(arguments[place]):
                return False
        elif not _AWK_OPTION.fullmatch(word):
            return False
        place += 1
    if place >= len(arguments) or any(re.match("-.", w) for w in arguments[place + 1 :]):
        return False
    program = arguments[place]
    if _AWK_DANGER.search(program) or not _AWK_FUNCTIONS.issuperset(_AWK_CALL.findall(program)):
        return False
    _, printing, rest = program.partition("print")
    return not printing or not re.search(r">(?!=)", rest)


MAX_TOUCHED_PATHS = 64  # of one command
# Commands that change everything in a folder argument.
_WHOLE_FOLDER_COMMANDS = name_set("rm mv cp ln install rsync tar unzip chmod chown")

_STRICTNESS = regex(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace")
_PS_WORD = regex(
    r"-[efAaFlNT]+|a?u?x|aux?f?|axu?f?|--(?:no-headers|forest|sort=[-+\w,%]+)|\d+(?:,\d+)*"
)
_PS_VALUED = ("-o", "-p", "-u", "-C", "--pid", "--format")
_FILE_OPTION_LETTERS = frozenset("fmSX")  # short options with a file value in some command


def _stores_nothing(arguments: Sequence[str]) -> bool:
    """Return True if a printf format sets no variable, such as PATH, with `%n`."""
    counts = any(re.search(r"%[-+ #0'*.\d]*[hlLjztq]*n", word) for word in arguments)
    return not counts and not any(word.startswith("-") for word in arguments[:1])


def _loads_no_module(arguments: Sequence[str]) -> bool:
    """Return True if a jq program loads no module, which could come from any folder."""
    return not any(re.search(r"\b(?:import|include|modulemeta)\b", word) for word in arguments)


def _shows_processes(arguments: Sequence[str]) -> bool:
    """Return True if ps shows no process environment, which may contain API keys (`ps eww`)."""
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in _PS_VALUED and words and re.fullmatch(r"(?!.*env)[\w,=%.-]+", words[0]):
            del words[0]
        elif not _PS_WORD.fullmatch(word):
            return False
    return True


# Further checks of a program's arguments.
_CHECKS: dict[str, Callable[[Sequence[str]], bool]] = {
    "sed": sed_only_prints,
    **dict.fromkeys(name_set("awk gawk mawk nawk"), awk_only_prints),
    "jq": _loads_no_module,
    "ps": _shows_processes,
    "printf": _stores_nothing,
    "test": lambda words: not {"-v", "-R"} & set(words),  # they evaluate subscripts
    "command": lambda words: words[:1] in (["-v"], ["-V"]),
    "set": lambda words: bool(words) and all(map(_STRICTNESS.fullmatch, words)),
}


def has_read_only_form(name: str) -> bool:
    """Return True if a command is read-only with the listed options."""
    table = table_of(name)
    return table is not None and table.read_only and not table.any_rule


def reads_files(name: str) -> bool:
    """Return True if a command is known to read the files in its arguments."""
    table = table_of(name)
    reads = table is not None and table.read_only and not (table.raw or table.any_rule)
    return reads and table is not None and table.operands in ("files", "pattern")


def is_read_only(part: SimpleCommand) -> bool:
    """Return True if the command changes nothing, whichever files it names."""
    found = _listed(part)
    if found is None or part.doubt or not found.table.read_only:
        return False
    words = part.words[1:]
    if part.name == "printf" and words and words[0].fixed and not words[0].glob:
        return _stores_nothing([words[0].text])  # the other words are printed
    check = _CHECKS.get(part.name)
    if check or not found.table.raw:
        if not all(word.fixed for word in words):
            return False
        if check and any(word.glob for word in words):
            return False
    return check is None or check([word.text for word in words])


def is_plainly_read_only(part: SimpleCommand) -> bool:
    """Return True if a command is read-only and has no program text among its arguments."""
    return part.name not in _CHECKS and is_read_only(part)


def arguments_may_change(part: SimpleCommand) -> bool:
    """Return True if a program's arguments, apart from options, may change something, such as a sed
    script that writes. Return False for programs whose arguments are not checked.
    """
    check = _CHECKS.get(part.name.rpartition("/")[2])
    words = part.words[1:]
    return check is not None and not (
        all(word.fixed for word in words) and check([word.text for word in words])
    )


def stays_read_only(part: SimpleCommand) -> bool:
    """Return True if a read-only command stays read-only with any further words."""
    known = known_command(part)
    return known is not None and known.table.any_option and is_read_only(part)


def passes_names_to_read_only(part: SimpleCommand) -> bool:
    """Return True if xargs or `find -exec` only passes file names to read-only commands. A name
    from find is never an option, since it begins with a folder.
    """
    if not part.passes_names:
        return False
    spans = find_inner_commands([word.text for word in part.words]).spans
    plain = replace(part, doubt="", passes_names=False)
    inner = [replace(plain, words=part.words[start:stop]) for start, stop in spans]
    if part.name != "find":
        return all(map(stays_read_only, inner))
    kept = [
        word
        for place, word in enumerate(part.words)
        if not any(start - 1 <= place <= stop for start, stop in spans)
    ]
    return all(map(is_read_only, [replace(plain, words=tuple(kept)), *inner]))


def _listed(part: SimpleCommand) -> Arguments | None:
    """Return the arguments of a command if a table lists all its words; else None."""
    known = known_command(part)
    if known is None:
        return None
    own = git_options(known)
    if own.unlisted or own.files():  # files(): git runs in another folder
        return None
    found = read_arguments(known.table, known.words)
    return found if found.match_table() else None


def searched_folders(part: SimpleCommand) -> list[Word]:
    """Return the folders in which a command reads files that it does not name; [] if there are
    none. Without a named folder, this is the current folder.
    """
    if part.name == "diff":  # reads at least one level of folders by default
        return list(path_arguments(part))
    if part.name == "git" and any(word.text == "diff" for word in part.words):
        return list(path_arguments(part))  # may compare folders outside the repository
    found = _listed(part)
    if found is None:
        return []
    if not ("always" in found.table.recursive or found.has(found.table.recursive)):
        return []
    skipped = set(map(id, found.file_values()))
    return [word for word in found.files() if id(word) not in skipped] or [Word(".")]


def may_read_folders(part: SimpleCommand) -> bool:
    """Return True if a command may read the files in the folders of its arguments. A command with a
    table of its operands does so only if the table has options for that.
    """
    table = table_of(part.name)
    known = table is not None and not table.any_rule
    return part.name != "git" and (table is None or not known or bool(table.recursive))


def follows_links(part: SimpleCommand, bases: Sequence[str]) -> bool:
    """Return True if a command may follow links below a folder to any target. `bases` are the
    folders that its words may be relative to.
    """
    if part.name == "diff":
        return any(_may_be_folder(word, base) for word in path_arguments(part) for base in bases)
    found = _listed(part)
    return found is not None and found.has(found.table.follows)


def _may_be_folder(word: Word, base: str) -> bool:
    """Return True if a word is or may be the name of a folder."""
    found = expand_glob(word.text, base) if word.glob else [word.text]
    if found is None or "\0" in word.text:
        return True
    there = (os.path.join(base, os.path.expanduser(path)) for path in found)  # noqa: PTH111, PTH118
    return any(os.path.isdir(path) for path in there)  # noqa: PTH112


def path_arguments(part: SimpleCommand) -> Iterator[Word]:
    """Yield the arguments that may be files.

    If a table lists the whole command, yield its files, and patterns, since the shell lists folders
    to expand them. For other commands, yield all words and the values glued to options
    (`--file=x`).
    """
    found = _listed(part)
    if found is not None:
        words = [word for word in found.files() if word.text not in ("", "-")]
        known = set(map(id, words))
        yield from (word for word in part.words[1:] if word.glob and id(word) not in known)
    else:
        end = next((i for i, word in enumerate(part.words) if word.text == "--"), len(part.words))
        options = [word for word in part.words[1:end] if word.text.startswith("-")]
        words = [w for w in part.words[1:end] if w.text and not w.text.startswith("-")]
        words += part.words[end + 1 :]
        table = table_of(part.name)
        if table and table.operands == "pattern" and not any(map(_may_bring_pattern, options)):
            del words[:1]
        for word in options:
            for value in _glued_values(word.text):
                yield Word(value, word.fixed, word.glob)
    for word in words:
        yield word
        for separator in ("=", ":"):  # dd if=x, git show HEAD:x
            if tail := word.text.partition(separator)[2]:
                yield Word(tail, word.fixed, word.glob)


def _may_bring_pattern(option: Word) -> bool:
    return bool(re.match(r"-(?!-).*[ef]|--(?:re|f|ex)", option.text))


def _glued_values(option: str) -> Iterator[str]:
    """Yield the values that may be glued to an option: `--file=x`, `-fx`, `-nfx`."""
    if value := option.partition("=")[2]:
        yield value
    if option.startswith("--"):
        return
    for place, letter in enumerate(option[1:], 2):
        if not letter.isalnum():
            return
        if letter in _FILE_OPTION_LETTERS and option[place:]:
            yield option[place:]


def changes_no_file(script: Script) -> bool:
    """Return True if a command certainly changes no file."""
    return not (script.doubt or script.writes) and all(
        part.wrapper or passes_names_to_read_only(part) or is_read_only(part)
        for part in script.parts
    )


def touched_paths(script: Script, cwd: str) -> list[str]:
    """Return the absolute paths that a command may change: files, existing or not, and folders that
    it changes as a whole. Links are resolved except in the last component.
    """
    found: dict[str, None] = {}
    for path, whole in _candidate_paths(script, cwd):
        if len(found) == MAX_TOUCHED_PATHS:
            break
        folder, name = os.path.split(os.path.normpath(path))
        there = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
        if name and _can_exist(folder) and (whole or not there):
            found[os.path.join(os.path.realpath(folder), name)] = None  # noqa: PTH118
    return list(found)


def _can_exist(folder: str) -> bool:
    """Return True if a folder exists or could be created."""
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):  # noqa: PTH120
        folder = os.path.dirname(folder)  # noqa: PTH120
    return os.path.isdir(folder)  # noqa: PTH112


def _candidate_paths(script: Script, cwd: str) -> Iterator[tuple[str, bool]]:
    """Yield each possible path, from every folder it may be relative to, and whether a folder
    counts as a whole.
    """
    bases = [cwd]
    for part in script.parts:
        if part.name in ("cd", "pushd") and len(part.words) == 2:
            bases += [path for base in bases[-2:] for path in _absolute_paths(part.words[1], base)]
    words = [(word, False) for word in script.writes]
    for part in script.parts:
        if part.name != "cd" and not is_read_only(part):
            whole = part.name.rpartition("/")[2] in _WHOLE_FOLDER_COMMANDS
            words += [(word, whole) for word in path_arguments(part)]
    for word, whole in words:
        for base in dict.fromkeys(bases):
            yield from ((path, whole) for path in _absolute_paths(word, base))


def _absolute_paths(word: Word, base: str) -> list[str]:
    if not word.fixed or not word.text or "\0" in word.text:
        return []
    texts = (expand_glob(word.text, base) or []) if word.glob else [word.text]
    return [os.path.join(base, os.path.expanduser(text)) for text in texts]  # noqa: PTH111, PTH118
