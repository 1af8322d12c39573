"""Take a checkpoint: the newest summary, updated from the ledger.

This needs no model call, so a checkpoint can be taken at any time.
"""

import asyncio

from ..errors import RecordError
from ..events import Notice, waiting
from ..session.checkpoints import CheckpointFacts, Checkpoints
from ..session.entries import Checkpoint
from .document import SummaryDocument
from .host import EngineHost
from .summary.merge import document_from_ledger, with_ledger_facts
from .summary.writer import document_of


async def take_checkpoint(
    host: EngineHost, checkpoints: Checkpoints, trigger: str, *, mode: str
) -> Checkpoint | None:
    """Take a checkpoint and record it. Return None, after a warning, if it cannot be written."""
    facts, newest = checkpoint_facts(host, mode=mode), host.view.last_seq
    try:
        with waiting(host.emit, "taking a checkpoint"):
            taken = await asyncio.to_thread(checkpoints.take, facts, trigger, newest)
    except RecordError as error:
        host.emit(Notice("warning", str(error)))
        return None
    recorded = host.record(taken)
    assert isinstance(recorded, Checkpoint)
    return recorded


def checkpoint_facts(host: EngineHost, *, mode: str) -> CheckpointFacts:
    """Return the state of the conversation for a checkpoint. `mode` is the permission mode."""
    ledger, window, document = host.ledger, host.current_window(), current_document(host)
    return CheckpointFacts(
        intent=document.intent,
        document=document.to_json(),
        ledger=ledger.to_json(),
        todos=[dict(todo) for todo in ledger.todos],
        tokens=window.tokens,
        window=window.size,
        model=host.model_id,
        mode=mode,
    )


def current_document(host: EngineHost) -> SummaryDocument:
    """Return a summary document of the current conversation. The next steps of the newest summary
    are kept if there is no newer user message.
    """
    summary = host.view.summary
    previous = document_of(summary)
    since = [
        text for ref, text in host.ledger.typed_messages if summary is None or ref > summary.seq
    ]
    if previous is not None and not since:
        return with_ledger_facts(previous, host.ledger)
    return document_from_ledger(host.ledger, previous)
