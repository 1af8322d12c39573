"""Whether a reply takes up what an earlier decision ruled out: it says that it will, installs it,
or writes an import of it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...session.entries import Block
from ..language.decisions import Rejection, takes_up
from ..language.signs import arguments_of, path_argument, sentences
from .constraints import MAX_WRITTEN_CHARS, commands_in

_PLAN = re.compile(
    r"\b(?:I['’]ll|I will|I['’]m going to|I am going to|let me|let['’]s|we['’]ll|we will|now I"
    r"|switching to|decided to)\b",
    re.I,
)
_INSTALL = re.compile(
    r"(?:pip3?|uv|poetry|pdm|npm|pnpm|yarn|bun|cargo|go|gem|apt|apt-get|brew|conda|composer)"
)


def adoption_evidence(rejection: Rejection, blocks: Sequence[Block]) -> str | None:
    """Return the words or the call by which a reply takes up what was ruled out, or None."""
    for block in blocks:
        if block.get("type") == "text":
            for sentence in sentences(str(block.get("text", ""))):
                if _PLAN.search(sentence) and takes_up(rejection.name, sentence):
                    return sentence
        elif block.get("type") == "tool_use" and " " not in rejection.name:
            arguments = arguments_of(block)
            for words in commands_in(str(arguments.get("command", ""))):
                if _installs(words, rejection.name):
                    return " ".join(words)
            if line := _imports(arguments, rejection.name):
                return line
    return None


def _installs(words: Sequence[str], name: str) -> bool:
    if words[0].startswith("python") and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    verbs = {"install", "i", "add", "get", "require"} & set(words[1:3])
    if _INSTALL.fullmatch(words[0]) is None or not verbs:
        return False
    return any(re.split(r"[<>=~^\[]|(?<=.)@", w.lower())[0] == name for w in words[2:])


def _imports(arguments: Mapping[str, Any], name: str) -> str | None:
    """Return the line of an import that a call newly writes, or None."""
    new = str(arguments.get("content") or arguments.get("new_string") or "")[:MAX_WRITTEN_CHARS]
    if path_argument(arguments).endswith((".md", ".txt", ".rst")):
        return None
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    pattern = (
        rf"^[ \t]*(?:import\s[^\n#]*{word}|from\s+[\w.]*{word}[\w.]*\s+import\b"
        rf"|use\s[^\n;]*{word}[^\n;]*;|[^\n#]*\brequire\(['\"]{word})"
    )
    match = re.search(pattern, new, re.I | re.MULTILINE)
    old = str(arguments.get("old_string") or "").lower()
    return match[0].strip() if match and match[0].strip().lower() not in old else None
