"""Chat Completions as a `Wire`."""

from ..providers import CHAT
from ..wire import Wire
from .body import body, parameters
from .draft import draft
from .gaps import GAPS

WIRE = Wire(CHAT, "Chat Completions", "/chat/completions", "/models", GAPS, parameters, body, draft)
