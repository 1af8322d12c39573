"""The command of recovery: what left the context, found by topic, or how the session stands."""

import asyncio

from ...errors import CtxagentError, UsageError
from .registry import Desk, command


@command(
    "find what left the context, or tell how the session stands",
    argument="TOPIC|1|2|3",
    anytime=True,
)
async def _recover(desk: Desk, argument: str) -> None:
    from ..look import render

    if not argument:
        raise UsageError("recover what?", hint="/recover TOPIC, or a level: /recover 1, 2 or 3.")
    if argument in ("1", "2", "3"):
        from ...recovery import recovered

        entries = desk.loop.log.entries()
        told = await asyncio.to_thread(recovered, entries, int(argument), disk=True)
        desk.put(*([render.dim(told.failure)] if told.failure else []), render.verbatim(told.text))
        return
    findings = await asyncio.to_thread(desk.loop.context.search, argument, "project")
    if not findings.passages:
        raise CtxagentError(f"nothing found: {argument}", hint=f"Searched: {findings.searched}.")
    for passage in findings.passages:
        head = f"{passage.ref} · {passage.what} · {passage.at}"
        desk.put(render.dim(head), render.verbatim(passage.excerpt))
    desk.put(
        render.dim(f"searched: {findings.searched} · /log REF shows one of this session whole")
    )
