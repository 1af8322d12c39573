"""Decisions that name alternatives, and calls that bring in another alternative than before.

The code does not read the sentence: which name was chosen depends on the language. It checks a name
of a decision only when a call installs it, imports it or names a file for it, for the first time
and without a request.
"""

from collections.abc import Iterable, Iterator

from ...lazy import dataclass, regex
from ...session.entries import Block
from .calls import arguments_of, command_of, path_argument, simple_commands, written_text

MIN_NAME_CHARS = 3
MAX_DECISION_CHARS = 1_000
MAX_NAMES = 4  # of a decision between alternatives; more names are a list

_ADDING = ("install", "add", "get", "i", "require", "create", "init", "new", "download", "clone")
_ADDING_PLACES = 4  # first words of a command that may say what it adds: `python -m pip install`
_NAME = regex(r"[^\W\d_][\w+#-]*(?:\.[^\W\d_][\w+#-]*)*")
_CODE = regex(r"`([^`\s]+)`")
_SENTENCE = regex(r"(?:^|[.!?:;]\s+|\n)\W*")
_IMPORT = regex(
    r"\s*(?:import|from|export|use|using|#include|require|(?:const|let|var)\b.*\brequire)\b"
)
_MODULE = regex(r"['\"<]([^'\"<>\s]+)['\">]|\b(?:import|from|use|using)\s+([\w.]+)")
_DOCUMENTS = (".md", ".rst", ".txt")  # endings of files that are not code
_LISTS_PACKAGES = regex(
    r"(?:package|requirements[\w-]*|pyproject|cargo|go|gemfile|pom|build|composer"
    r"|(?:docker-)?compose|dockerfile)(?:\.\w+)?"
)
_PARTS = regex(r"[^\W_]+")
_PACKAGE = regex(r"@|[\w.-]*\.[\w-]+/|[^-/][^/]*$")  # not an option, a path or a branch
_VERSION = regex(r"[=<>~!^\[;].*|(?<=.)@.*")


@dataclass(frozen=True, slots=True)
class Alternatives:
    """A decision, and the names in it after the first, in lower case."""

    text: str
    names: tuple[str, ...]


def alternatives_in(decisions: Iterable[str]) -> list[Alternatives]:
    """Return the decisions that name two to four things."""
    found = ((text, [*dict.fromkeys(_names(text[:MAX_DECISION_CHARS]))]) for text in decisions)
    return [
        Alternatives(text, tuple(names[1:])) for text, names in found if 1 < len(names) <= MAX_NAMES
    ]


def _names(text: str) -> Iterator[str]:
    """Yield the names in a text, in lower case: code, and words with a capital letter that no
    sentence begins with.
    """
    coded = {found[1] for found in _CODE.finditer(text)}
    starts = {found.end() for found in _SENTENCE.finditer(text)}
    for word in _NAME.finditer(text):
        name = word[0]
        is_cased = any(char.isupper() for char in (name[1:] if word.start() in starts else name))
        if len(name) >= MIN_NAME_CHARS and (is_cased or name in coded):
            yield name.casefold()


def brought_in(call: Block) -> set[str]:
    """Return the names that a call installs, imports or names a file for, in lower case."""
    found = set[str]()
    for words in simple_commands(command_of(call)):
        verbs = [place for place in range(1, len(words)) if words[place] in _ADDING]
        if verbs and verbs[0] < _ADDING_PLACES:
            for word in words[verbs[0] + 1 :]:
                found |= _forms(_VERSION.sub("", word)) if _PACKAGE.match(word) else set()
    if text := written_text(call):
        before = set(str(arguments_of(call).get("old_string", "")).splitlines())
        base = path_argument(call).rpartition("/")[2].casefold()
        found |= set(_PARTS.findall(base.rpartition(".")[0]))
        lists_packages = _LISTS_PACKAGES.fullmatch(base)
        for line in text.splitlines():
            if line in before:
                continue
            if lists_packages:
                found |= {form for name in _NAME.findall(line) for form in _forms(name)}
            elif _IMPORT.match(line) and not base.endswith(_DOCUMENTS):
                found |= _forms(_module(line))
    return found


def _module(line: str) -> str:
    """Return the module that an import names; "" for a file of the project."""
    found = _MODULE.search(line)
    name = (found[1] or found[2]) if found else ""
    return "" if name.startswith((".", "/")) else name


def adds_something(words: list[str]) -> bool:
    """Return True if a simple command installs, downloads or creates something."""
    return any(word in _ADDING for word in words[1:_ADDING_PLACES])


def _forms(name: str) -> set[str]:
    """Return a name and its parts, in lower case."""
    name = name.casefold()
    return {name, *_PARTS.findall(name)} - {""}
