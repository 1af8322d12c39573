"""The user's messages, computed from the log, each with the state of its turn."""

from dataclasses import field, replace
from typing import Literal

from ..lazy import dataclass
from .entries import ATTACHMENT, Assistant, End, Entry, ToolResult, User, attachment_call
from .store import content_text

MessageState = Literal["answered", "interrupted", "open"]

PREVIEW_MARK = "> "  # prefix of each line in the preview of a file
FILE_TOOLS = ("Read", "Glob")  # attachments in the form of these calls are files on disk
ANSWERED_STATUSES = ("ok", "denied")  # statuses of a turn that answered its messages


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A user message, an attachment, or the reason for declining a call."""

    ref: int
    text: str  # as sent to the model: for a very long message, the reference to its file
    is_attached: bool = False
    is_file: bool = False  # attached from disk, so it can be read again
    is_in_file: bool = False  # the session's folder has a file with the whole text
    state: MessageState = "open"  # how its turn ended; "open" while the turn runs

    @property
    def opening(self) -> str:
        """The text, or its preview if the text was moved to a file."""
        if not self.is_in_file:
            return self.text
        lines = (line for line in self.text.split("\n") if line.startswith(PREVIEW_MARK))
        return "\n".join(line.removeprefix(PREVIEW_MARK) for line in lines)


@dataclass(slots=True)
class UserMessages:
    """All messages, oldest first."""

    messages: list[LoggedMessage] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)  # refs of the messages that started turns
    _turn_start: int = 0  # index in `messages` of the newest turn's first message

    def add(self, entry: Entry) -> None:
        """Process one entry. Most entries are ignored."""
        if isinstance(entry, User):
            if entry.source in ("person", ATTACHMENT):
                self._add_message(entry)
        elif isinstance(entry, ToolResult):
            details = entry.details if isinstance(entry.details, dict) else {}
            if details.get("declined") and isinstance(details.get("reason"), str):
                self.messages.append(LoggedMessage(entry.seq, details["reason"]))
        elif isinstance(entry, Assistant):
            if entry.purpose == "turn" and entry.stop_reason == "end_turn":
                self._end_turn("answered")
        elif isinstance(entry, End):
            self._end_turn("answered" if entry.status in ANSWERED_STATUSES else "interrupted")

    def _add_message(self, entry: User) -> None:
        if entry.begins_turn:
            self._end_turn("interrupted", only_open=True)
            self._turn_start = len(self.messages)
            self.turns.append(entry.seq)
        is_attached = entry.source == ATTACHMENT
        is_file = is_attached and attachment_call(entry)[0] in FILE_TOOLS
        text = content_text(entry.content)
        message = LoggedMessage(entry.seq, text, is_attached, is_file, bool(entry.offloaded))
        self.messages.append(message)

    def _end_turn(self, state: MessageState, *, only_open: bool = False) -> None:
        """Set the state of the messages of the newest turn."""
        for place in range(self._turn_start, len(self.messages)):
            message = self.messages[place]
            if message.state == "open" or not only_open:
                self.messages[place] = replace(message, state=state)
