"""The protocol's view of a tool call: its kind, its locations and its changes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import ContentToolCallContent, FileEditToolCallContent, ToolCallLocation, ToolKind

from ...lazy import regex

KINDS: dict[str, ToolKind] = {
    "Bash": "execute",
    "Shell": "execute",
    "Job": "execute",
    "Network": "fetch",
    "Read": "read",
    "Recall": "read",
    "Skill": "read",
    "Grep": "search",
    "Glob": "search",
    "Edit": "edit",
    "Write": "edit",
    "Todo": "think",
    "Plan": "switch_mode",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
}
TERMINAL_TOOLS = ("Bash", "Shell", "Job")  # tools whose output is command output
MAX_CONTENT_CHARS = 50_000  # of a result shown in an editor
MAX_TITLE_CHARS = 300

_HUNK = regex(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,\d+)? @@")


def kind_of(name: str) -> ToolKind:
    """Return the protocol's kind of a tool."""
    return KINDS.get(name, "other")


def title_of_call(name: str, title: str) -> str:
    """Return a one-line title of a call."""
    line = " ".join(title.split())[:MAX_TITLE_CHARS]
    return line if name in TERMINAL_TOOLS and line else f"{name} {line}".rstrip()


def locations_of(
    name: str, given: Mapping[str, Any], details: Mapping[str, Any], cwd: Path
) -> list[ToolCallLocation]:
    """Return the files that a call reads or changes: absolute paths, with line numbers from 1."""
    changed = details.get("changes")
    rows = changed if isinstance(changed, list) else []
    paths = [row["path"] for row in rows if isinstance(row, dict) and row.get("path")]
    named = details.get("path") or given.get("path")
    line = given.get("offset") if name == "Read" else _first_line(details.get("diff"))
    found = [ToolCallLocation(path=str(cwd / str(path))) for path in paths if path != named]
    if named and isinstance(named, str):
        there = line if isinstance(line, int) and line > 0 else None
        found.insert(0, ToolCallLocation(path=str(cwd / Path(named).expanduser()), line=there))
    return found


def diff_contents(diff: object, named: object, cwd: Path) -> list[FileEditToolCallContent]:
    """Convert a unified diff of one file to the protocol's form: the old and new lines of each
    hunk. A new file has no old lines.
    """
    if not (isinstance(diff, str) and isinstance(named, str) and named):
        return []
    path, is_new = str(cwd / Path(named).expanduser()), diff.startswith("--- /dev/null")
    return [tool_diff_content(path, new, None if is_new else old) for old, new in _hunks(diff)]


def text_contents(text: str, *, fenced: bool = False) -> list[ContentToolCallContent]:
    """Return a text as the content of a call, `fenced` for program output; [] for an empty text."""
    shown = text.strip("\n")
    if len(shown) > MAX_CONTENT_CHARS:
        left = len(shown) - MAX_CONTENT_CHARS
        shown = f"{shown[:MAX_CONTENT_CHARS]}\n… {left:,} more characters"
    if not shown:
        return []
    if fenced:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
        shown = f"{fence}\n{shown}\n{fence}"
    return [tool_content(text_block(shown))]


def _first_line(diff: object) -> int | None:
    found = _HUNK.search(diff) if isinstance(diff, str) else None
    return int(found[2]) if found else None


def _hunks(diff: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new text of each hunk."""
    old, new = list[str](), list[str]()
    is_within, last = False, ""
    for line in diff.split("\n"):
        if _HUNK.match(line):
            if is_within:
                yield "".join(old), "".join(new)
            old, new, is_within = [], [], True
        elif is_within and line[:1] in (" ", "-", "+"):
            last = line[0]
            for side, marks in ((old, " -"), (new, " +")):
                if last in marks:
                    side.append(f"{line[1:]}\n")
        elif is_within and line.startswith("\\"):  # no newline at the end of the file
            for side, marks in ((old, " -"), (new, " +")):
                if last in marks and side:
                    side[-1] = side[-1].removesuffix("\n")
    if is_within:
        yield "".join(old), "".join(new)
