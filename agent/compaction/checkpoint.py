"""What a checkpoint holds of a conversation: the newest summary brought up to date from the ledger,
or the mechanical one where there is none yet. No model is asked, so it can be taken at any time."""

import asyncio

from ..errors import RecordError
from ..events import Notice, waiting
from ..record.checkpoints import Checkpoints, Facts
from ..record.entries import Checkpoint
from .host import Host
from .summary import Document, mechanical, with_facts
from .writer import document_of


async def take(
    host: Host, checkpoints: Checkpoints, trigger: str, *, mode: str
) -> Checkpoint | None:
    """Take a checkpoint and record it; None, with a warning told, when it cannot be written."""
    held, newest = facts(host, mode=mode), host.view.last_seq
    try:
        with waiting(host.emit, "taking a checkpoint"):
            taken = await asyncio.to_thread(checkpoints.take, held, trigger, newest)
    except RecordError as error:
        host.emit(Notice("warning", str(error)))
        return None
    recorded = host.record(taken)
    assert isinstance(recorded, Checkpoint)
    return recorded


def facts(host: Host, *, mode: str) -> Facts:
    """How the conversation stands now. `mode` is the permission mode."""
    ledger, window, document = host.ledger, host.measured(), document_now(host)
    return Facts(
        intent=document.intent,
        document=document.to_json(),
        ledger=ledger.to_json(),
        todos=[dict(todo) for todo in ledger.todos],
        tokens=window.tokens,
        window=window.size,
        model=host.model_id,
        mode=mode,
    )


def document_now(host: Host) -> Document:
    """How the conversation stands, as a summary says it. The one that stands in the context still
    says what comes next as long as nothing was said since."""
    summary = host.view.summary
    previous = document_of(summary)
    since = [text for ref, text in host.ledger.words if summary is None or ref > summary.seq]
    if previous is not None and not since:
        return with_facts(previous, host.ledger)
    return mechanical(host.ledger, since, previous)
