"""The order in which a search shows tools."""

from typing import Any

import pytest

from ctxagent.agent.extensions.mcp.catalog import ListedTool, best_tools


def tool(name: str, about: str, **parameters: str) -> ListedTool:
    properties: dict[str, Any] = {key: {"description": text} for key, text in parameters.items()}
    return ListedTool(f"mcp__{name}", "", about, {"type": "object", "properties": properties}, 0)


# Names and descriptions as published servers give them.
TOOLS = [
    tool("memory__create_entities", "Create multiple new entities in the knowledge graph"),
    tool("memory__add_observations", "Add new observations to existing entities in the graph"),
    tool("memory__open_nodes", "Open specific nodes in the knowledge graph by their names"),
    tool("everything__echo", "Echoes back the input string", message="Message to echo"),
    tool("everything__get-tiny-image", "Returns a tiny MCP logo image."),
    tool("everything__get-sum", "Returns the sum of two numbers", a="First number", b="Second"),
    tool("everything__get-annotated-message", "Demonstrates how annotations can be added"),
    tool("files__readTextFile", "Read a file as text", tail="Number of lines from the end"),
    tool("files__moveFile", "Rename", destination="Where the file goes to"),
    tool("odd", "", ключ="Слово"),
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("add two numbers", "everything__get-sum"),
        ("add observation", "memory__add_observations"),
        ("reading files", "files__readTextFile"),
        ("text_file", "files__readTextFile"),
        ("destination", "files__moveFile"),
        ("moveFile", "files__moveFile"),
        ("слово", "odd"),
        ('"sum" OR name:* NEAR(', "everything__get-sum"),
        ("sum \ud800", "everything__get-sum"),
    ],
)
def test_the_tool_that_fits_best_is_first(query: str, first: str) -> None:
    assert best_tools(TOOLS, query, 8)[0].name == f"mcp__{first}"


@pytest.mark.parametrize("query", ["walrus", "?!", "", '"'])
def test_a_query_without_matches_finds_nothing(query: str) -> None:
    assert best_tools(TOOLS, query, 8) == []


def test_the_number_of_results_is_limited() -> None:
    assert len(best_tools([tool(f"s__{n}", "same words") for n in range(20)], "words", 8)) == 8
