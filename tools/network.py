"""The question whether a command in the sandbox may reach a host. It is judged and asked about like
a call of a tool, but no model can make it: the sandbox does, when a command wants to connect.
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
