"""An MCP server by the SDK: `python sdk.py stdio`, or `python sdk.py http PORT` on 127.0.0.1."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("sdk", instructions="Adds numbers.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.prompt()
def greet(who: str) -> str:
    """Greet somebody."""
    return f"Say hello to {who}."


@server.resource("note://one")
def one() -> str:
    """A note."""
    return "the words of the note"


if sys.argv[1] == "stdio":
    server.run()
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
