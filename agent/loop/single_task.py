"""The single task of a session with a given ID. It is done once, however often it is requested.

The first request records a digest of the task and starts a normal turn. A later request continues
an interrupted turn, or returns the answer of a finished one.
"""

import asyncio
import hashlib
from collections.abc import Iterable

from ..errors import UsageError
from ..events import Notice, TurnFinished
from ..models.base import text_of
from ..session.entries import Assistant, End, Entry, Note, ToolResult, User
from .agent import AgentState

TASK_TOPIC = "task"
FINAL_STOP_REASONS = ("end_turn", "stop_sequence")


async def find_answer(agent: AgentState, task: str, *, needs_end: bool) -> TurnFinished | None:
    """Return the answer to the task of this session, None if there is none yet.

    Without `needs_end`, a complete answer also counts if the process was killed before the end of
    the turn was recorded. Raises UsageError if another task is recorded, and RecordError.
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
        hint = f"Use another ID, or continue this session: --resume {id}"
        raise UsageError(f"the session {id} was begun with another task", hint=hint)
    plan = agent.ledger.plan.text if agent.ledger.plan else ""
    answer = _answer(reversed(agent.log.entries()), plan, needs_end=needs_end)
    if agent.totals.turns:
        told = "continues the task" if answer is None else "has already done the task"
        agent.emit(Notice("info", f"the session {told}"))
    return answer


def _recorded_digest(entries: Iterable[Entry]) -> str | None:
    """Return the digest of the session's task, which is recorded before the first turn."""
    for entry in entries:
        if isinstance(entry, Note) and entry.topic == TASK_TOPIC:
            return str(entry.data.get("of"))
        if isinstance(entry, User):
            break
    return None


def _answer(entries: Iterable[Entry], plan: str, *, needs_end: bool) -> TurnFinished | None:
    """Return the answer of the newest turn. `entries` are in reverse order."""
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
