"""The Responses API as a `Wire`."""

from ..providers import RESPONSES
from ..wire import Wire
from .body import body, parameters
from .draft import draft_of
from .gaps import GAPS

WIRE = Wire(RESPONSES, "Responses API", "/responses", "/models", GAPS, parameters, body, draft_of)
