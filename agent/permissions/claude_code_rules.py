"""Convert permission rules of Claude Code to ctxagent rules with the same meaning.

The format is that of https://code.claude.com/docs/en/permissions.
"""

import re

from ..errors import UsageError
from ..lazy import regex
from .rules import parse_rule

_RULE = regex(r"\s*([A-Za-z_][\w*-]*)(?:\((.+)\))?\s*", re.DOTALL)
_TOOLS = {
    "MultiEdit": "Edit", "NotebookEdit": "Edit", "LS": "Glob", "TodoWrite": "Todo", "Agent": "Task",
    "BashOutput": "Job", "KillShell": "Job", "AskUserQuestion": "AskUser", "ExitPlanMode": "Plan",
}  # fmt: skip
_TYPES = {"Explore": "explore", "general-purpose": "general"}  # of subagents
_READING, _EDITING = ("Read", "Grep", "Glob", "LS"), ("Edit", "Write", "MultiEdit", "NotebookEdit")
_DOMAIN = "domain:"


def convert_rule(text: str, *, allows: bool, in_project: bool) -> str:
    """Return the equivalent ctxagent rule. `in_project` is False for rules from the user's own
    settings. Raises ValueError with the reason if there is no equivalent.
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError("it is not a rule")
    tool, subject = _TOOLS.get(found[1], found[1]), found[2]
    if subject and found[1] in (*_READING, *_EDITING):
        tool = "Read" if found[1] in _READING else "Edit"
        subject = _convert_path(subject, allows=allows, in_project=in_project)
    elif subject and tool == "WebFetch":
        if not subject.startswith(_DOMAIN):
            raise ValueError("it names no domain")
        host = subject.removeprefix(_DOMAIN)
        subject = None if host == "*" else host
    elif subject and tool == "Task":
        subject = _TYPES.get(subject, subject)
    rule = tool if subject is None else f"{tool}({subject})"
    try:
        return str(parse_rule(rule))
    except UsageError as error:
        raise ValueError(error.message) from None


def _convert_path(pattern: str, *, allows: bool, in_project: bool) -> str:
    """Convert a gitignore-style path pattern to ctxagent's form. Raises ValueError."""
    if pattern.startswith("!"):
        raise ValueError("patterns with ! are not supported")
    if pattern.startswith(("//", "~")):
        return pattern
    if pattern.startswith("/"):  # relative to the folder of the settings
        if not in_project:
            raise ValueError("a path from the folder of the user's settings")
        return pattern.lstrip("/")
    plain = pattern.removeprefix("./")
    is_name = plain == pattern and "/" not in plain.rstrip("/")
    # Claude Code searches a plain name in every folder. Our deny rules do that without `**/`.
    return f"**/{plain}" if is_name and plain != "**" and (allows or "*" in plain) else plain
