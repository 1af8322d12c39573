"""Write: create a file, or replace the whole content of a file that the model has read."""

from functools import partial
from typing import Any

from .base import Context, Output, Params, Tool
from .file_access import Change, applied, check_text, locate
from .offered import Wording
from .system.take_turn import in_thread
from .whole_file import draft_whole, report


class WriteParams(Params):
    path: str
    content: str
    encoding: str | None = None


class WriteTool(Tool[WriteParams]):
    name = "Write"
    description = Wording(
        "Writes a whole file and creates missing folders.",
        " {Read} an existing file first.",
        " To change a part, use {Edit}.",
    )
    effect = "edit"
    Params = WriteParams

    def subject(self, params: WriteParams) -> str:
        return params.path

    async def run(self, params: WriteParams, context: Context) -> Output:
        change = await in_thread(_plan, params, context)
        return await applied(change, context, partial(report, change, params.content))

    async def preview(self, params: WriteParams, context: Context) -> dict[str, Any]:
        change = await in_thread(_plan, params, context)
        return {"diff": change.diff.whole}


def _plan(params: WriteParams, context: Context) -> Change:
    check_text("content", params.content)
    return draft_whole(locate(context, params.path), params.content, params.encoding, context)
