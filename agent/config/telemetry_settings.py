"""The settings of traces and metrics."""

from ..lazy import dataclass
from .keys import SWITCH, loosens_if_turned, setting


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """[telemetry]"""

    on: bool = setting(
        False,
        SWITCH,
        "Whether to send traces and metrics by OpenTelemetry, as configured by the variables "
        "OTEL_*.",
        loosens=loosens_if_turned(True),
    )
    contents: bool = setting(
        False,
        SWITCH,
        "Whether traces include your messages, the answers, and the inputs and results of tools.",
        loosens=loosens_if_turned(True),
    )
