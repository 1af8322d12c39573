"""An MCP server based on the SDK: `python sdk.py stdio` or `python sdk.py http PORT`."""

import sys
from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("sdk", instructions="Adds numbers.")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Guest(BaseModel):
    name: str
    age: int


def guest() -> Elicit[Guest]:
    return Elicit("Who comes?", Guest)


def bird() -> Sample:
    asked = TextContent(type="text", text="Name a bird.")
    return Sample([SamplingMessage(role="user", content=asked)], max_tokens=50)


@server.tool()
def invite(
    who: Annotated[Guest, Resolve(guest)], gift: Annotated[CreateMessageResult, Resolve(bird)]
) -> str:
    """Invite somebody."""
    given = gift.content
    return f"{who.name}, {who.age}, gets {given.text if given.type == 'text' else '?'}"


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
