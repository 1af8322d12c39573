"""Why a command needs approval: the parts that no rule allows, dangerous parts first."""

from collections.abc import Iterator, Sequence

from ..lazy import regex
from .shell.command_table import keeps_history
from .shell.parser import Script, SimpleCommand
from .verdict import Verdict, quoted_command

Cause = tuple[str, str]  # the text of a part, and why it needs approval
# The part (None for a file), its text, and its verdict.
Judged = tuple[SimpleCommand | None, str, Verdict]

MAX_TEXT_LINES = 20  # dangerous lines shown from an embedded script
# Calls that delete, overwrite or change privileges, in bash or in an embedded script.
_DANGEROUS = regex(
    r"(?<![\w.-])(?:(?:rm|rmdir|shred|dd|mkfs(?:\.\w+)?|wipefs|unlink|truncate|sudo|doas|chmod|chown)"
    r"\s+[-/~$.\w\"']|find\s[^\n]*-delete\b|git\s[^\n;&|]*(?:\s-f\b|--(?:force|hard|delete|mirror)))"
    r"|(?:rmtree|os\.(?:remove|unlink|system|removedirs)|subprocess\.\w+|rmSync|unlinkSync|execSync)\("
)
_HOLDS_TEXT = regex(r"\n|\s-\w*[ce]\s|<<")  # a script for a shell or another program


def causes_of(script: Script, judged: Sequence[Judged]) -> list[Cause]:
    """Return the parts that need approval, and dangerous lines in a text that is passed to a
    program. The shell does not run these lines, but the program may.
    """
    asked = [
        (_is_dangerous(part, text), text, verdict.reason)
        for part, text, verdict in judged
        if verdict.action == "ask"
    ]
    named = [text for _, text, _ in asked]
    asked += [(True, line, reason) for line, reason in _dangerous_lines(script.text, named)]
    asked.sort(key=lambda each: not each[0])
    return list(dict.fromkeys((text, reason) for _, text, reason in asked))


def _is_dangerous(part: SimpleCommand | None, text: str) -> bool:
    throws_away = part is not None and part.name == "git" and not keeps_history(part)
    return throws_away or _DANGEROUS.match(text) is not None


def _dangerous_lines(text: str, named: Sequence[str]) -> Iterator[Cause]:
    """Yield lines with a dangerous command that is not already among the named commands."""
    if not _HOLDS_TEXT.search(text):
        return
    count = 0
    for line in text.split("\n"):
        for found in _DANGEROUS.finditer(line):
            if count < MAX_TEXT_LINES and not any(each.startswith(found[0]) for each in named):
                count += 1
                shown = line[found.start() :].strip()
                yield shown, f"a program may run {quoted_command(shown)}"
                break
