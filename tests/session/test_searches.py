"""Web searches in a reply, as text."""

from typing import Any

import pytest

from ctxagent.agent.session import searches

PAGES = [
    {"title": "One\npage", "url": "https://a.org", "page_age": "1 day"}, {"title": "Two",
    "url": "https://b.org"}, "garbled",
    {"title": 3, "url": "https://c.org/\u200b"},
]  # fmt: skip


def found(content: Any) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "content": content}


def asked(**arguments: Any) -> dict[str, Any]:
    return {"type": "server_tool_use", "name": "web_search", "input": arguments}


def test_queries_of_search_blocks() -> None:
    assert searches.is_search(asked())
    assert not searches.is_search({"type": "server_tool_use", "name": "other"})
    assert not searches.is_search({"type": "tool_use", "name": "web_search"})
    assert searches.query_of(asked(query="a\n b")) == "a b"
    assert searches.query_of(asked()) == searches.query_of({"input": "x"}) == ""
    assert searches.query_of(asked(query=3)) == ""
    assert len(searches.query_of(asked(query="x" * 900))) == searches.MAX_QUERY_CHARS + 1


def test_the_pages_that_were_found() -> None:
    rows = list(searches.pages(found(PAGES)))
    assert rows[:2] == [("One page", "https://a.org", "1 day"), ("Two", "https://b.org", "")]
    assert rows[2][0] == ""
    assert "\u200b" not in rows[2][1]
    assert searches.addresses(found(PAGES)) == {
        "https://a.org",
        "https://b.org",
        "https://c.org/\u200b",
    }
    assert list(searches.pages(found({"error_code": "x"}))) == []


def test_a_line_for_each_page() -> None:
    lines = searches.listing(found(PAGES)).splitlines()
    assert lines[:2] == ["One page · https://a.org · 1 day", "Two · https://b.org"]
    assert len(lines) == 3
    assert searches.listing(found([])) == "[nothing was found]"
    assert searches.listing(found({"error_code": "too_many"})) == "[the search failed: too_many]"
    assert searches.failure(found(PAGES)) == searches.failure(found({})) == ""


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (asked(query="q"), "[WebSearch]\nquery: q"),
        (found(PAGES[1:2]), "Found:\nTwo · https://b.org"),
        ({"type": "text", "text": "x"}, ""),
    ],
)  # fmt: skip
def test_as_text(block: dict[str, Any], text: str) -> None:
    assert searches.search_text(block) == text
