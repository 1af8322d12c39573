"""Request bodies of clients: one module per wire protocol."""

from .base import BodyFormat
from .chat import ChatBody
from .messages import MessagesBody
from .responses import ResponsesBody

# By the end of the request path.
BODY_FORMATS: dict[str, BodyFormat] = {
    "/messages": MessagesBody(),
    "/responses": ResponsesBody(),
    "/chat/completions": ChatBody(),
}
