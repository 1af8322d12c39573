"""WebSearch: a search of the web that the model's server makes by itself, while it answers.

https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool. Nothing runs here:
the tool stands in the list of tools as the API has it, in the version that is there for every model
and runs no code, and what was found comes in the reply. A call that comes all the same is of a
server that does not know the tool.
"""

from typing import Any

from ..agent.errors import ToolError
from .base import Context, Output, Params, Tool

TOOL_TYPE = "web_search_20250305"
MAX_USES = 8  # searches in one reply


class WebSearchParams(Params):
    query: str


class WebSearchTool(Tool[WebSearchParams]):
    name = "WebSearch"
    description = "The model's server searches the web by itself, while the model answers."
    effect = "none"
    Params = WebSearchParams

    @property
    def wire_name(self) -> str:
        """The name by which the model calls the tool."""
        return "web_search"

    def schema(self) -> dict[str, Any]:
        return {"type": TOOL_TYPE, "name": self.wire_name, "max_uses": MAX_USES}

    async def run(self, params: WebSearchParams, context: Context) -> Output:
        raise ToolError(
            "This server leaves the search to the client, which has none. Do without, or look with "
            "Mcp for a tool that searches."
        )
