"""Request bodies of clients: one module per wire protocol."""

from .base import BodyFormat
from .chat import ChatBody
from .gemini import GeminiBody
from .messages import MessagesBody
from .responses import ResponsesBody

BODY_FORMATS: tuple[BodyFormat, ...] = (MessagesBody(), ResponsesBody(), ChatBody(), GeminiBody())


def format_at(path: str) -> BodyFormat | None:
    """Return the format of the bodies at a path, None for bodies that the proxy does not read."""
    found = (each for each in BODY_FORMATS if path.endswith((*each.paths, *each.count_paths)))
    return next(found, None)
