"""The Responses API as a wire protocol."""

from ..providers import RESPONSES
from ..wire import Wire
from .body import body, parameters
from .draft import draft_of
from .gaps import GAPS

WIRE = Wire(
    name=RESPONSES,
    title="Responses API",
    path="/responses",
    models_path="/models",
    gaps=GAPS,
    parameters=parameters,
    body=body,
    draft=draft_of,
)
