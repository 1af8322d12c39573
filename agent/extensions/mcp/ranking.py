"""Rank the tools of MCP servers for a search, with BM25.

SQLite's FTS5 ranks in an in-memory database. English words are stemmed.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from ...lazy import regex
from .catalog import ListedTool

NAME_WEIGHT, DESCRIPTION_WEIGHT, PARAMETER_WEIGHT = 2.0, 1.0, 0.5
MAX_WORDS = 50  # per search
MAX_PARAMETER_CHARS = 4_000  # of the names and descriptions of a tool's parameters
_JOINT = regex(r"(?<=[a-z0-9])(?=[A-Z])|_")
_WORD = regex(r"\w+")


def best_tools(tools: Sequence[ListedTool], query: str, most: int) -> list[ListedTool]:
    """Return up to `most` tools that match the query, the best first. Blocking."""
    import sqlite3

    words = list(dict.fromkeys(_WORD.findall(_searchable(query).lower())))[:MAX_WORDS]
    rows = ((place, *_columns(tool)) for place, tool in enumerate(tools))
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE VIRTUAL TABLE tools USING "
            "fts5(name, description, parameters, tokenize = 'porter unicode61')"
        )
        db.executemany(
            "INSERT INTO tools(rowid, name, description, parameters) VALUES (?, ?, ?, ?)", rows
        )
        found = db.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? "
            "ORDER BY bm25(tools, ?, ?, ?), rowid LIMIT ?",
            (
                " OR ".join(f'"{word}"' for word in words) or '""',
                NAME_WEIGHT,
                DESCRIPTION_WEIGHT,
                PARAMETER_WEIGHT,
                most,
            ),
        )
        return [tools[place] for (place,) in found]


def _columns(tool: ListedTool) -> tuple[str, str, str]:
    """Return the searchable texts of a tool: name, description and parameters."""
    parameters = " ".join(_parameter_texts(tool.schema))[:MAX_PARAMETER_CHARS]
    name = tool.name.removeprefix("mcp__")
    name, about, parameters = map(_searchable, (name, tool.description, parameters))
    return name, about, parameters


def _parameter_texts(schema: Any) -> Iterator[str]:
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, dict) else ():
        yield str(name)
        if isinstance(about, dict) and isinstance(about.get("description"), str):
            yield about["description"]


def _searchable(text: str) -> str:
    """Split camelCase and snake_case into words. Replace what UTF-8 cannot encode."""
    return _JOINT.sub(" ", text).encode(errors="replace").decode()
