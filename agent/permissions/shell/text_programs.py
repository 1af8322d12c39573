"""Check whether sed and awk programs only print.

Both languages can write files and start commands from their program text. A program counts as
print-only if every part of it is recognised.
"""

import re
from collections.abc import Sequence

from ...lazy import regex
from .wrappers import name_set

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
