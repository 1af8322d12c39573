"""The one task of a session whose id was given: it is done once, however often it is asked for.

The first time its digest is recorded and it is a turn like any other. After that its turn is gone
on with where something cut it, and where it came to an answer the answer is given again.
"""

import asyncio
import hashlib
from collections.abc import Iterable

from ..errors import UsageError
from ..events import Notice, TurnFinished
from ..session.entries import Assistant, End, Entry, Note, ToolResult, User
from .agent import AgentState
from .model_call import text_of

TASK_TOPIC = "task"
FINAL_STOP_REASONS = ("end_turn", "stop_sequence")


async def find_answer(agent: AgentState, task: str, *, needs_end: bool) -> TurnFinished | None:
    """Return how the task of this session was answered, None where it was not yet.

    Without `needs_end` a whole answer counts also where a kill came before the end was recorded.
    Raises UsageError where the session was begun with another task, and RecordError.
    """
    digest = hashlib.sha256(task.encode(errors="surrogatepass")).hexdigest()
    known = await asyncio.to_thread(_recorded_digest, agent.log.entries())
    if known is None and not agent.totals.turns:
        await agent.prepare()
        agent.open()
        agent.record(
            Note(topic=TASK_TOPIC, text="the session is for one task", data={"of": digest})
        )
        return None
    if known != digest:
        id = agent.log.path.parent.name
        hint = f"Take another id, or say more in this session: --resume {id}"
        raise UsageError(f"the session {id} was begun with another task", hint=hint)
    plan = agent.ledger.plan.text if agent.ledger.plan else ""
    answer = _answer(reversed(agent.log.entries()), plan, needs_end=needs_end)
    if agent.totals.turns:
        told = "goes on with the task" if answer is None else "has done the task: its result stands"
        agent.emit(Notice("info", f"the session {told}"))
    return answer


def _recorded_digest(entries: Iterable[Entry]) -> str | None:
    """Return the digest of the task that a session is for; it stands before its first turn."""
    for entry in entries:
        if isinstance(entry, Note) and entry.topic == TASK_TOPIC:
            return str(entry.data.get("of"))
        if isinstance(entry, User):
            break
    return None


def _answer(entries: Iterable[Entry], plan: str, *, needs_end: bool) -> TurnFinished | None:
    """Return the answer that the newest turn came to, from the entries in reverse."""
    ended = False
    for entry in entries:
        if isinstance(entry, End):
            if entry.status != "ok":
                return None
            ended = True
        elif isinstance(entry, Assistant) and entry.purpose == "turn":
            calls = any(block.get("type") == "tool_use" for block in entry.content)
            text = text_of(entry.content)
            final = not calls and entry.stop_reason in FINAL_STOP_REASONS and text.strip()
            if ended or (final and not needs_end):
                return TurnFinished("ok", plan if calls else text)
            return None
        elif isinstance(entry, ToolResult | User) and not ended:
            return None
    return None
