"""WebSearch: a web search that the model's server runs while it answers.

See https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool. The request lists
the tool in the API's own form and in the version that every model supports and that runs no code.
The reply contains the results. Nothing runs here: only a server without web search leaves the call
to the client, and then it fails.
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
        """The tool's name in requests to the model."""
        return "web_search"

    def schema(self) -> dict[str, Any]:
        return {"type": TOOL_TYPE, "name": self.wire_name, "max_uses": MAX_USES}

    async def run(self, params: WebSearchParams, context: Context) -> Output:
        raise ToolError(
            context.offered.say(
                "This server leaves the search to the client, which has none. Do without",
                ", or look with {Mcp} for a tool that searches",
                ".",
            )
        )
