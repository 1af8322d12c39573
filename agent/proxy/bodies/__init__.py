"""Bodies of requests as clients send them: a module for each wire protocol."""

from .base import BodyFormat
from .chat import ChatBody
from .messages import MessagesBody
from .responses import ResponsesBody

# By the end of the path that a client sends them to.
BODY_FORMATS: dict[str, BodyFormat] = {
    "/messages": MessagesBody(),
    "/responses": ResponsesBody(),
    "/chat/completions": ChatBody(),
}
