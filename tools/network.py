"""Network: the question whether a sandboxed command may reach a host. It is judged and asked like a
tool call, but the sandbox makes it, not the model, when a command wants to connect.
"""

from pydantic import Field

from .base import Context, Output, Params, Tool


class NetworkParams(Params):
    host: str = Field(min_length=1)


class NetworkTool(Tool[NetworkParams]):
    name = "Network"
    description = "A command wants to reach a host."
    effect = "run"
    Params = NetworkParams

    def subject(self, params: NetworkParams) -> str:
        return params.host

    async def run(self, params: NetworkParams, context: Context) -> Output:
        return Output("")
