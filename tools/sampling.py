"""Sampling: the question whether an MCP server may use the model. It is judged and asked like a
tool call, but a server makes it during a call, not the model.
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
