"""The question whether an MCP server may ask the model. It is judged and asked about like a call of
a tool, but no model can make it: a server does, in the middle of a call.
"""

from .base import Context, Output, Params, Tool
from .system.shorten import one_line

MAX_TITLE_CHARS = 200


class SamplingParams(Params):
    server: str
    system: str
    messages: list[str]
    max_tokens: int


class SamplingTool(Tool[SamplingParams]):
    name = "Sampling"
    description = "An MCP server asks the model."
    effect = "run"
    Params = SamplingParams

    def subject(self, params: SamplingParams) -> str:
        return params.server

    def title(self, params: SamplingParams) -> str:
        return one_line(f"{params.server}: {params.messages[-1]}", MAX_TITLE_CHARS)

    async def run(self, params: SamplingParams, context: Context) -> Output:
        return Output("")
