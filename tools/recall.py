"""Recall: reads an earlier entry of the session again, by the ref that a stub or summary names."""

from pydantic import Field

from .base import Context, Output, Params, Tool, ToolError

MOST = 30_000  # characters given at once


class RecallParams(Params):
    ref: int = Field(ge=1, description="The number of the ref: 42 for `#42`.")
    offset: int = Field(0, ge=0, description="Characters to skip.")
    limit: int = Field(MOST, ge=1, le=MOST, description="Characters to give at most.")


class Recall(Tool[RecallParams]):
    name = "Recall"
    description = (
        "Reads an earlier entry of this session in full: a tool result that a stub stands for, "
        "or what a summary covers. Stubs and summaries name it as `#42`."
    )
    effect = "none"
    Params = RecallParams

    def title(self, params: RecallParams) -> str:
        return f"#{params.ref}"

    async def run(self, params: RecallParams, context: Context) -> Output:
        text = context.recall(params.ref)
        if text is None:
            raise ToolError(f"There is no entry #{params.ref} with text in this session.")
        end = params.offset + params.limit
        if params.offset >= len(text) > 0:
            raise ToolError(f"#{params.ref} has {len(text):,} characters; the offset is past them.")
        part = text[params.offset : end]
        if end < len(text):
            part += f"\n[{end:,} of {len(text):,} characters; go on with offset={end}]"
        return Output(part or "[empty]", {"ref": params.ref, "characters": len(text)})
