"""Make log entries from the steps of a recording. Long texts go to files, as in a session."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..compaction.layers.demote import Demotion, demote_to_file, demote_words
from ..compaction.policy import Policy
from ..lazy import dataclass
from ..session.entries import ToolResult, User
from .recording import RecordedCall, RecordedReply, RecordedWords
from .tool_names import TranslatedCall


@dataclass(frozen=True, slots=True)
class EntryTerms:
    """Where a session stores its texts, and which texts are too long for the context."""

    folder: Path  # of the session
    window: int  # tokens
    policy: Policy
    clean: Callable[[str], str] = str  # removes secrets before a text is cut


def words_entry(words: RecordedWords, source: str, seq: int, terms: EntryTerms) -> User:
    """Return the log entry of a message to the model. Raises OSError."""
    text = terms.clean(words.text)
    given, offloaded = demote_words(
        text, size=terms.window, seq=seq, folder=terms.folder, policy=terms.policy
    )
    return User(content=given, source=source, mid_turn=words.mid_turn, offloaded=offloaded)


def reply_blocks(
    reply: RecordedReply, calls: Sequence[tuple[RecordedCall, TranslatedCall]]
) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a reply, with its calls translated to our tools."""
    if reply.text.strip() or not calls:
        yield {"type": "text", "text": reply.text.strip() or "[nothing]"}
    for call, ours in calls:
        yield {"type": "tool_use", "id": call.id, "name": ours.name, "input": ours.input}


def result_entry(
    call: RecordedCall, ours: TranslatedCall, seq: int, terms: EntryTerms
) -> tuple[ToolResult, Demotion | None]:
    """Return the log entry of a call's result, and its demotion if the text went to a file. Raises
    OSError.
    """
    details, content, offloaded = dict(ours.details), terms.clean(call.text) or "[empty]", None
    found = demote_to_file(
        content, tool=ours.name, seq=seq, folder=terms.folder, policy=terms.policy
    )
    if found is not None:
        plan, offloaded = found
        content, details["tokens_saved"] = plan.reference, plan.saved
    result = ToolResult(
        tool_use_id=call.id,
        content=content,
        is_error=ours.is_error,
        details=details,
        offloaded=offloaded,
    )
    return result, found[0] if found else None
