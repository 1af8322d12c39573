"""Settings of the features that add-ons provide. They are part of the kernel because all settings
are read before an add-on is imported.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

from ..lazy import dataclass
from .keys import (
    LANGUAGE_SERVERS,
    SWITCH,
    loosens_if_different,
    loosens_if_later,
    loosens_if_turned,
    one_of,
    setting,
)

LspMode = Literal["off", "auto", "on"]
FeatureNeed = Literal["no", "optional", "requested"]  # of a session, for a feature


class AddOnSettings(Protocol):
    """The settings of a feature that an add-on provides."""

    def need(self, *, has_user: bool) -> FeatureNeed:
        """Return whether a session needs the feature, for a user who can answer questions or
        without one.
        """


@dataclass(frozen=True, slots=True)
class LspSettings:
    """[lsp]"""

    enabled: LspMode = setting(
        "auto",
        one_of(LspMode),
        'Whether language servers check edits. "auto": with a sandbox, a user and a small '
        "repository.",
        loosens=loosens_if_later(LspMode),
    )
    servers: tuple[str, ...] = setting(
        (),
        LANGUAGE_SERVERS,
        'Language servers in addition to the built-in ones, each as "SUFFIX …: COMMAND".',
        loosens=loosens_if_different,
    )

    def need(self, *, has_user: bool) -> FeatureNeed:
        """Return whether a session needs language servers."""
        if self.enabled == "on":
            return "requested"
        return "optional" if has_user else "no"


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

    def need(self, *, has_user: bool) -> FeatureNeed:
        """Return whether a session sends telemetry."""
        return "requested" if self.on else "no"


# The section with the settings of a feature, by the name of the feature.
ADD_ON_SECTIONS: Mapping[str, str] = {"diagnostics": "lsp", "telemetry": "telemetry"}
