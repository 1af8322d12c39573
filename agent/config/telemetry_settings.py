"""The settings of traces and metrics."""

from ..lazy import dataclass
from .keys import SWITCH, loosens_if_turned, setting


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """[telemetry]"""

    on: bool = setting(
        False,
        SWITCH,
        "Whether traces and metrics are sent by OpenTelemetry, to where the variables OTEL_* say.",
        loosens=loosens_if_turned(True),
    )
    contents: bool = setting(
        False,
        SWITCH,
        "Whether they have your messages, the answers, and what tools were given and returned.",
        loosens=loosens_if_turned(True),
    )
