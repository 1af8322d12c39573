"""Read the texts of commands and programs: their words, assignments and imports.

Nothing is run, and no grammar is complete: the readers rather find too much.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, partial

from ..lazy import regex

MAX_VALUE_CHARS = 4_000  # of a variable; longer ones are not replaced

# Files that are read, converted or compiled, but not run, although Pygments has a lexer for them.
_DATA_ENDINGS = frozenset((
    ".md", ".mdx", ".markdown", ".rst", ".txt", ".org", ".tex", ".html", ".htm", ".css", ".scss",
    ".sass", ".less", ".jsonl", ".ndjson", ".svg", ".po", ".pot", ".mo", ".diff", ".patch", ".pem",
    ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".s", ".proto", ".f90",
))  # fmt: skip
# Files that are loaded and run, but that Pygments has no lexer for.
_COMPILED_ENDINGS = frozenset((
    ".pyc", ".so", ".dylib", ".dll", ".jar", ".class", ".node", ".wasm", ".mts", ".cts",
))  # fmt: skip
_SETTINGS_ENDINGS = frozenset((".json", ".toml", ".ini", ".cfg", ".conf", ".yaml", ".yml", ".xml"))
_LOCKS = ("-lock.json", "-lock.yaml", ".lock.json")

_CONTINUED = regex(r"\\\n")
_COMMENT = regex(r"^[ \t]*(?:#(?!!)|//).*$", re.M)
_OUTPUT = regex(r"(?:\d|&)?>[>|&]?[ \t]*([^\s;&|()<>]+)")
_QUOTED_WORD = regex(r"""["']([^"'\s]*)["']""")
_QUOTED = regex(r"""["'`]([^"'`\n]*[ \t][^"'`\n]*)["'`]""")
_SEGMENTS = regex(r"[;&|()`\n{}]+")
_WORD = regex(r"[^\s'\"`;|&()<>,]+")
_CODE_WORD = regex(r"[^\s'\"`;|&()<>,\[\]{}=:]+")
_BRACES = regex(r"([^\s{},]*)\{([^\s{},]*,[^\s{}]*)\}([^\s{},]*)")
_ASSIGNED = regex(
    r"(?:^|[\s;&|(])(\w+)[ \t]*[:?+]{0,2}=[ \t]*(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|\"']*)"
)
_VARIABLE = regex(r"\$(?:\{(\w+)(?::?[-=]([^{}\n]*))?\}|\((\w+)\)|(\w+))")
_COMPUTED = regex(r"[$`]")
_UNKNOWN = regex(r"\$\{[^{}]*\}|\$\w+|\$[@*#?]")
_OWN_FOLDER = regex(r"\$\(dirname [^)]*\)|\$\{(?:BASH_SOURCE\[0\]|0)%/\*\}|\$\(cd [^)]*\)")
_SHEBANG = regex(r"#!([^\n]*)")

_RULE = regex(
    r"^(?![ \t#])([^:=#\n]+):(?::(?!=)|(?![:=]))([^\n]*(?:\n\t[^\n]*|\n[ \t]*(?=\n))*)", re.M
)
# A variable of a makefile whose value is no output of a command: it matters where it is used.
_MAKE_VARIABLE = regex(r"^(?!SHELL\b)(\w+)[ \t]*[:?+]*=(?![^\n]*\bshell\b)[^\n]*$", re.M)
_MODULES = r"[\w.]+(?:[ \t]+as[ \t]+\w+)?"
_IMPORT = regex(rf"\bimport[ \t]+({_MODULES}(?:[ \t]*,[ \t]*{_MODULES})*)")
_FROM = regex(r"\bfrom[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)")
_LOADS_BY_NAME = regex(r"import_module|__import__|run_module|find_spec|__all__|pkgutil")
_MODULE_NAME = regex(r"""["']([A-Za-z_][\w.]*)["']""")


def plain(text: str, values: Mapping[str, str], folder: str = "") -> tuple[str, list[str]]:
    """Return a shell text or makefile without comments and output redirections, with the known
    variables replaced, also those that it assigns itself; and the words of these redirections.
    `folder` has the file of the text.
    """
    text = _CONTINUED.sub(" ", text)
    text = _OWN_FOLDER.sub(lambda _: folder, text) if folder else text
    known = dict(values)
    for name, value in _ASSIGNED.findall(text):
        value = value.strip("\"'") if value[:1] in "\"'" else value
        value = _VARIABLE.sub(partial(_value, known), value)
        if len(value) <= MAX_VALUE_CHARS and not _COMPUTED.search(value):
            known[name] = value
    text = _COMMENT.sub("", _VARIABLE.sub(partial(_value, known), text))
    outputs = [word.strip("\"'") for word in _OUTPUT.findall(text)]
    text = _OUTPUT.sub(" ", text)
    text = _QUOTED_WORD.sub(lambda found: found[1], text)
    return _BRACES.sub(_alternatives, text), outputs


def assignments(text: str) -> list[tuple[str, str]]:
    """Return the names and values that a plain text assigns."""
    return [(name, value.strip("\"'")) for name, value in _ASSIGNED.findall(text)]


def segments(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a plain text."""
    for segment in _SEGMENTS.split(text):
        if words := _WORD.findall(segment):
            yield words


def quoted_texts(text: str) -> list[str]:
    """Return the quoted texts with blanks."""
    return list(dict.fromkeys(_QUOTED.findall(text)))


def words_of_code(text: str) -> list[str]:
    """Return the unique words of a program that may name files."""
    words = _CODE_WORD.findall(_COMMENT.sub("", text))
    return list(dict.fromkeys(word for word in words if "/" in word or "." in word))


def quoted_words(text: str) -> list[str]:
    """Return the unique quoted words of a program."""
    return list(dict.fromkeys(filter(None, _QUOTED_WORD.findall(text.replace("`", '"')))))


def without_unknown(word: str) -> str:
    """Return a word without variables whose value is unknown, and without a mark before a
    command.
    """
    return _UNKNOWN.sub("", word).lstrip("!@+")


def interpreters(text: str) -> list[str]:
    """Return the names of the programs in the first line of a script."""
    found = _SHEBANG.match(text)
    return [word.rpartition("/")[2] for word in found[1].split()] if found else []


def reached_rules(text: str, words: set[str]) -> str:
    """Return a makefile without the rules whose targets are not among the words of a command, nor
    needed by the other rules that remain. Add the words that these need. Without a known target,
    all rules remain.
    """
    text = _CONTINUED.sub(" ", text)
    rules = [(found[1].split(), found[2]) for found in _RULE.finditer(text)]
    if words.isdisjoint(target for targets, _ in rules for target in targets):
        return text
    size = -1
    while size != len(words):
        size = len(words)
        for targets, rest in rules:
            if _is_reached(targets, words):
                words.update(_WORD.findall(rest.partition("\n")[0]))
    text = _RULE.sub(lambda each: each[0] if _is_reached(each[1].split(), words) else "", text)
    used = {name for found in _VARIABLE.findall(text) for name in found if name}
    return _MAKE_VARIABLE.sub(lambda each: each[0] if each[1] in used else "", text)


def _is_reached(targets: Sequence[str], words: Set[str]) -> bool:
    computed = any(each[0] == "." or "%" in each or "$" in each for each in targets)
    return computed or not words.isdisjoint(targets)


def imported(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the imports of a Python text: the number of leading dots, the module and the names that
    are imported from it.
    """
    text = _CONTINUED.sub(" ", text)
    for found in _FROM.finditer(text):
        module = found[1].lstrip(".")
        yield len(found[1]) - len(module), module, re.findall(r"\w+", found[2])
    for found in _IMPORT.finditer(_FROM.sub(" ", text)):
        for name in found[1].split(","):
            yield 0, name.split()[0], []
    if _LOADS_BY_NAME.search(text):
        for name in _MODULE_NAME.findall(text):
            yield 0, name, []


def is_code(path: str) -> bool:
    """Return True if a file can be run or loaded, by its mode or name. An unknown ending means
    data: programs keep their state in such files.
    """
    return os.access(path, os.X_OK) or ending_of(path) in _code_endings()


def is_argument_file(path: str) -> bool:
    """Return True if an argument of a command may be code or settings. JSON is mostly data."""
    return is_code(path) or (ending_of(path) in _SETTINGS_ENDINGS and not path.endswith(".json"))


def is_option_file(path: str) -> bool:
    """Return True if the value of an option may be code or settings."""
    hidden = path.rpartition("/")[2][:1] == "."
    return is_code(path) or ending_of(path) in _SETTINGS_ENDINGS or hidden


@cache
def _code_endings() -> frozenset[str]:
    """Return the endings of all languages that Pygments knows, and of compiled files."""
    from pygments.lexers import get_all_lexers

    names = (name for _, _, names, _ in get_all_lexers(plugins=False) for name in names)
    known = {name[1:].lower() for name in names if name.startswith("*.")}
    return frozenset(known | _COMPILED_ENDINGS) - _DATA_ENDINGS - _SETTINGS_ENDINGS


def is_settings_of(name: str, program: str) -> bool:
    """Return True if a file has the name of a program's settings, e.g. `prettier.config.js`."""
    name = name.casefold()
    if name.find(program[:2].casefold(), 0, 3) < 0:  # most names, quickly
        return False
    if ending_of(name) == ".toml" or name.endswith(_LOCKS) or name == ".git":
        return False
    for each in (program.casefold(), program.casefold().replace("-", "")):
        rest = name.removeprefix(".").removeprefix(each)
        if rest != name.removeprefix("."):
            after = next(
                (rest[len(end) :] for end in ("rc", "file", "lists") if end == rest[: len(end)]),
                rest,
            )
            is_whole = not after and (rest != after or name[0] == ".")
            is_read = ending_of(name) in _SETTINGS_ENDINGS | _code_endings()
            if is_whole or (after[:1] in (".", "-", "_") and is_read):
                return True
    return False


def ending_of(path: str) -> str:
    """Return the ending of a path in lower case, with its dot."""
    return os.path.splitext(path)[1].lower()  # noqa: PTH122


def _value(values: Mapping[str, str], found: re.Match[str]) -> str:
    return values.get(found[1] or found[3] or found[4]) or found[2] or found[0]


def _alternatives(found: re.Match[str]) -> str:
    return " ".join(f"{found[1]}{each}{found[3]}" for each in found[2].split(","))
