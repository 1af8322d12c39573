"""Sessions that other agents recorded, in one form."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.recordings.builder import (
        ADDED_FORMATS,
        RecordedReplyDraft,
        RecordedResult,
        TranscriptBuilder,
    )
    from ..agent.recordings.other_sessions import (
        MAX_COMPARISON_S,
        ComparedSessions,
        FoundRecording,
        ImportedSession,
    )
    from ..agent.recordings.recording import (
        RecordedCall,
        RecordedCompaction,
        RecordedMessage,
        RecordedReply,
        RecordedStep,
        Recording,
    )
    from ..agent.recordings.tool_names import TranslatedCall, our_name, translate
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "ADDED_FORMATS",
    "MAX_COMPARISON_S",
    "ComparedSessions",
    "FoundRecording",
    "ImportedSession",
    "RecordedCall",
    "RecordedCompaction",
    "RecordedMessage",
    "RecordedReply",
    "RecordedReplyDraft",
    "RecordedResult",
    "RecordedStep",
    "Recording",
    "TranscriptBuilder",
    "TranslatedCall",
    "our_name",
    "translate",
]
