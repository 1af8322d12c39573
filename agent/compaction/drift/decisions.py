"""Decisions: what an earlier one ruled out, and whether a reply takes it up after all.

"Use X, not Y", "X instead of Y", "no Y": Y is ruled out. A reply takes it up when it says that it
will, installs it, or writes an import of it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...session.entries import Block
from ..language.signs import arguments_of, path_argument, sentences
from .constraints import MAX_WRITTEN_CHARS, commands_in

_ENDS = (
    r"(?=\W*$|\s*[.,;:!?()—–]|\s+(?:for|because|since|as|in|on|to|so|and|or|which|when|due|at|here"
    r"|with|by|anywhere)\b)"
)
_NAME = (
    r"(?:the |an? |any |using )?"
    rf"(?P<name>`[^`\n]{{2,40}}`|[\w@][\w.@/+#-]*(?: [\w.@/+#-]+)?){_ENDS}"
)
_CHOSE = r"chose|choose|prefer(?:red)?|picked|selected|adopt(?:ed)?"
_RULED_OUT = [
    re.compile(pattern + _NAME, re.I)
    for pattern in (
        rf"\b(?:use[ds]?|using|{_CHOSE}|(?:go|going|went) with|keep|stay(?:ing)? (?:on|with)"
        r"|switch(?:ed)? to)\b [^;\n]{1,80}?(?:, not|\(not|\binstead of|\brather than) ",
        rf"\b(?:{_CHOSE})\b [^;\n]{{1,80}}?\bover ",
        r"\b(?:do not|don['’]t|never|won['’]t|not to|no longer) "
        r"(?:use|install|add|depend on|introduce|import) ",
        r"\bavoid(?:ing)? ",
        r"^no ",
        r"\b(?:switched|moved|migrated) (?:away )?from ",
        r"\b(?:rejected|ruled out|dropped) ",
    )
]
_WORDS = """
any all the this that only just yet now new more both needed need it them because adding using
making having being changing relying modifying code files file tests test things other another one
same
"""
_ORDINARY = frozenset(_WORDS.split())
_PLAN = re.compile(
    r"\b(?:I['’]ll|I will|I['’]m going to|I am going to|let me|let['’]s|we['’]ll|we will|now I"
    r"|switching to|decided to)\b",
    re.I,
)
_AGAINST = re.compile(
    r"\b(?:not|never|no|instead of|rather than|without|avoid|over|remov\w+|replac\w+|drop\w*"
    r"|uninstall|earlier|as (?:agreed|decided)|decision|whether|check|verify)\b|n['’]t\b",
    re.I,
)
_INSTALL = re.compile(
    r"(?:pip3?|uv|poetry|pdm|npm|pnpm|yarn|bun|cargo|go|gem|apt|apt-get|brew|conda|composer)"
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something that a decision ruled out."""

    name: str
    said: str  # the decision


def rejections_in(decisions: Sequence[str]) -> list[Rejection]:
    """Return what decisions ruled out, less what another decision took up after all."""
    found = []
    for said in decisions:
        for sentence in sentences(said.removeprefix("The person said: ")):
            for pattern in _RULED_OUT:
                for match in pattern.finditer(sentence):
                    name = match["name"].strip("`").rstrip(".").lower()
                    if len(name) > 1 and not set(name.split()) & _ORDINARY:
                        found.append(Rejection(name, said))
    return [r for r in found if not any(_takes_up(r.name, d) for d in decisions if d != r.said)]


def _takes_up(name: str, sentence: str) -> bool:
    use = (
        r"\b(?:us(?:e[ds]?|ing)|switch(?:ed|ing)? to|install(?:ed)?|add|go(?:ing)? with|migrate to"
    )
    pattern = rf"{use}|adopt(?:ed)?|import|chose)\s+(?:the |an? )?`?{re.escape(name)}(?![\w-])"
    match = re.search(pattern, sentence, re.I)
    return match is not None and _AGAINST.search(sentence) is None


def adoption_evidence(rejection: Rejection, blocks: Sequence[Block]) -> str | None:
    """Return the words or the call by which a reply takes up what was ruled out, or None."""
    for block in blocks:
        if block.get("type") == "text":
            for sentence in sentences(str(block.get("text", ""))):
                if _PLAN.search(sentence) and _takes_up(rejection.name, sentence):
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
