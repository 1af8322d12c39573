"""The tools that a conversation offers, and texts for the model that name no other tool.

A preset, a rule, a setting or a type of subagent can remove any tool. So no text for the model has
the name of a tool as a plain word. A text has names in braces, and alternatives for other sets of
tools: `Offered.say` chooses. `{Read}` is a tool; `{Read or Grep}` stands for those of them that are
offered; `{path}` is a value. The ways to common aims are here, the best way first.
"""

from collections.abc import Callable, Collection
from typing import Any

from ..agent.lazy import regex

# A part of a text. A tuple has alternatives: the first one whose tools are offered is used. A part
# is left out if none can be used.
Phrase = str | tuple[str, ...]

_TOOL = r"[A-Z]\w*"
_FIELD = regex(
    rf"\{{(?:(?P<value>[a-z][a-z0-9_]*)|(?P<tools>{_TOOL}(?:(?:, | and | or ){_TOOL})*))\}}"
)
_NAME = regex(_TOOL)

# Aims, as sentences that follow another one.
LIST_DIRECTORY: Phrase = (
    " List it with {Glob}, or with ls in {Bash}.",
    " List it with {Glob}.",
    " List it with ls in {Bash}.",
    " {Grep} with pattern='' lists the files in it.",
)
FIND_FILE: Phrase = (
    " {Glob} **/{file} searches for it.",
    " {Bash} (find . -name {quoted}) searches for it.",
    " {Grep} with pattern='' and glob={file} searches for it.",
)
# Aims, as phrases.
READ_AGAIN: Phrase = ("{Read} it again", "Look at it again with cat in {Bash}", "Look at it again")
READ_FIRST: Phrase = ("{Read} it first", "Look at it first with cat in {Bash}", "Look at it first")
SEARCH_FILE: Phrase = (
    "{Read} it, or {Grep} for a word of it",
    "{Read} it",
    "{Grep} for a word of it",
    "Look at it with cat or grep in {Bash}",
    "Look at it again",
)
JOB_WAYS: Phrase = ". The {Job} tool reads it, waits for it and ends it"


class Offered:
    """The names of the tools that a conversation offers. Without names, it is every tool."""

    def __init__(self, names: Callable[[], Collection[str]] | None = None) -> None:
        """`names` returns the names at each use, since a server may lack a tool or an extension may
        bring one.
        """
        self._names = names

    def __contains__(self, name: str) -> bool:
        return self._names is None or name in self._names()

    def say(self, *parts: Phrase, **values: object) -> str:
        """Return a text with the names of offered tools and with these values."""
        return "".join(self._chosen(part, values) for part in parts)

    def rendered(self, node: Any) -> Any:
        """Return a prompt or a schema in which each `Wording` is the text for these tools."""
        if isinstance(node, Wording):
            return self.say(*node.parts, **node.values)
        if isinstance(node, dict):
            return {key: self.rendered(value) for key, value in node.items()}
        return [self.rendered(value) for value in node] if isinstance(node, list) else node

    def _chosen(self, part: Phrase, values: dict[str, object]) -> str:
        for way in (part,) if isinstance(part, str) else part:
            if all(self._named(each["tools"]) for each in _FIELD.finditer(way) if each["tools"]):
                return _FIELD.sub(
                    lambda found: (
                        self._named(found["tools"])
                        if found["tools"]
                        else str(values[found["value"]])
                        if found["value"] in values
                        else found[0]
                    ),
                    way,
                )
        return ""

    def _named(self, tools: str) -> str:
        """Return the offered tools among these as a list in words; "" for none."""
        names = [name for name in _NAME.findall(tools) if name in self]
        word = " or " if " or " in tools else " and "
        return word.join(filter(None, (", ".join(names[:-1]), *names[-1:])))


EVERY = Offered()


class Wording(str):
    """A prompt or a text of a schema in parts, of which `Offered.rendered` chooses. As a string it
    is the text for a conversation with every tool.
    """

    parts: tuple[Phrase, ...]
    values: dict[str, str]  # texts from elsewhere: a brace in them stays as it is

    def __new__(cls, *parts: Phrase, **values: str) -> "Wording":
        made = super().__new__(cls, EVERY.say(*parts, **values))
        made.parts, made.values = parts, values
        return made
