"""Make log entries from the steps of a recording. Long texts go to files, as in a session."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...api.base import dataclass
from ...api.context import MovedText, Policy, move_message, move_to_file, unnumbered
from ...api.record import ToolResult, User
from ...api.recordings import RecordedCall, RecordedMessage, RecordedReply, TranslatedCall


@dataclass(frozen=True, slots=True)
class EntryStorage:
    """The folder in which a session stores long texts, and the limits that make a text too long for
    the context.
    """

    folder: Path  # of the session
    window: int  # tokens
    policy: Policy
    clean: Callable[[str], str] = str  # removes secrets before a text is cut


def message_entry(message: RecordedMessage, source: str, seq: int, storage: EntryStorage) -> User:
    """Return the log entry of a message to the model. Raises OSError."""
    text = storage.clean(message.text)
    given, offloaded = move_message(
        text, size=storage.window, seq=seq, folder=storage.folder, policy=storage.policy
    )
    return User(content=given, source=source, mid_turn=message.mid_turn, offloaded=offloaded)


def reply_blocks(
    reply: RecordedReply, calls: Sequence[tuple[RecordedCall, TranslatedCall]]
) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a reply, with its calls translated to our tools."""
    if reply.text.strip() or not calls:
        yield {"type": "text", "text": reply.text.strip() or "[nothing]"}
    for call, translated in calls:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": translated.name,
            "input": translated.input,
        }


def result_entry(
    call: RecordedCall, translated: TranslatedCall, seq: int, storage: EntryStorage
) -> tuple[ToolResult, MovedText | None]:
    """Return the log entry of a call's result, and the reference if its text was moved to a
    file. Raises OSError.
    """
    details, offloaded = dict(translated.details), None
    content = storage.clean(call.text) or "[empty]"
    found = move_to_file(
        content, tool=translated.name, seq=seq, folder=storage.folder, policy=storage.policy
    )
    if found is not None:
        plan, offloaded = found
        content, details["tokens_saved"] = plan.reference, plan.saved
    elif not storage.policy.line_numbers:
        details |= unnumbered(translated.name, content)
    result = ToolResult(
        tool_use_id=call.id,
        content=content,
        is_error=translated.is_error,
        details=details,
        offloaded=offloaded,
    )
    return result, found[0] if found else None
