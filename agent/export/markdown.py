"""A session as Markdown: messages, calls and results in order, without compaction."""

import json
import re
from collections.abc import Sequence

from ..session.entries import Assistant, Entry, ToolResult, User, shell_result
from ..session.searches import search_text
from ..session.store import content_text


def markdown(name: str, entries: Sequence[Entry]) -> str:
    """Return a session as Markdown."""
    parts = [f"# Session {name}", *filter(None, map(_section, entries))]
    return "\n\n".join(parts) + "\n"


def _section(entry: Entry) -> str:
    if isinstance(entry, User) and entry.source == "shell":
        return _shell_command(entry)
    if isinstance(entry, User):
        whose = "User" if entry.source == "person" else entry.source.capitalize()
        return f"## {whose} · #{entry.seq}\n\n{content_text(entry.content)}"
    if isinstance(entry, Assistant):
        parts = [f"## Assistant · #{entry.seq}"]
        for block in entry.content:
            if block.get("type") == "text":
                parts.append(str(block.get("text")))
            elif block.get("type") == "tool_use":
                given = json.dumps(block.get("input"), ensure_ascii=False, indent=1)
                parts.append(f"**{block.get('name')}**\n\n{_fenced(given, 'json')}")
            elif text := search_text(block):
                parts.append(_fenced(text))
        return "\n\n".join(parts)
    return _result(entry) if isinstance(entry, ToolResult) else ""


def _shell_command(entry: User) -> str:
    """Return a command that the user ran, with its output."""
    told = content_text(entry.content[:-1]) if isinstance(entry.content, list) else ""
    return f"## The user ran · #{entry.seq}\n\n{_fenced(told)}\n\n{_result(shell_result(entry))}"


def _result(entry: ToolResult) -> str:
    head = f"### Result · #{entry.seq}" + (" · error" if entry.is_error else "")
    return f"{head}\n\n{_fenced(content_text(entry.content))}"


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
