"""Web searches that the server makes during a reply: reading their blocks.

A search is a `server_tool_use` block followed by a `web_search_tool_result` block with the same ID,
whose content is a list of results or an error
(https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool). Text from pages is
untrusted: each title and address is put on one line, with invisible characters made visible.
"""

import re
from collections.abc import Iterator
from typing import Any

from ...tools.system.phrasing import one_line
from ...tools.system.unicode import clean, reveal_invisible
from ..lazy import regex
from .entries import Block

SEARCH_TOOL = "WebSearch"  # name in the UI, rules and stubs
WIRE_NAME = "web_search"  # name in the API
SEARCH = "server_tool_use"
FOUND = "web_search_tool_result"
CITATION = "web_search_result_location"
MAX_TITLE_CHARS = 200
MAX_ADDRESS_CHARS = 500
MAX_QUERY_CHARS = 500
_NAMES_SEARCH = regex(r"web[ _-]?search|server_tool_use|srvtoolu", re.I)


def is_search(block: Block) -> bool:
    """Return True if a block requests a web search from the server."""
    return block.get("type") == SEARCH and block.get("name") == WIRE_NAME


def names_search(words: str) -> bool:
    """Return True if an error message names web searches."""
    return bool(_NAMES_SEARCH.search(words))


def query_of(block: Block) -> str:
    """Return the query of a search, on one line."""
    arguments = block.get("input")
    query = arguments.get("query", "") if isinstance(arguments, dict) else ""
    return _visible(query, MAX_QUERY_CHARS)


def failure(block: Block) -> str:
    """Return the error code of a failed search, or ""."""
    content = block.get("content")
    return _visible(content.get("error_code", ""), 100) if isinstance(content, dict) else ""


def pages(block: Block) -> Iterator[tuple[str, str, str]]:
    """Yield (title, address, age) of each page found; an unknown age is ""."""
    for page in results_of(block):
        yield (
            _visible(page.get("title"), MAX_TITLE_CHARS),
            _visible(page.get("url"), MAX_ADDRESS_CHARS),
            _visible(page.get("page_age"), 100),
        )


def results_of(block: Block) -> list[dict[str, Any]]:
    """Return the raw results of a search, or [] for an error."""
    content = block.get("content")
    return [page for page in content if isinstance(page, dict)] if isinstance(content, list) else []


def addresses(block: Block) -> set[str]:
    """Return the raw addresses of the pages, as used in citations."""
    return {str(page.get("url")) for page in results_of(block)}


def listing(block: Block) -> str:
    """Return the results of a search, one line per page."""
    if code := failure(block):
        return f"[the search failed: {code}]"
    lines = [" · ".join(filter(None, page)) for page in pages(block)]
    return "\n".join(lines) or "[nothing was found]"


def search_text(block: Block) -> str:
    """Return a search block as text, or "" for any other block."""
    if is_search(block):
        return f"[{SEARCH_TOOL}]\nquery: {query_of(block)}"
    return f"Found:\n{listing(block)}" if block.get("type") == FOUND else ""


def _visible(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else ""
    return one_line(reveal_invisible(clean(text)), most)
