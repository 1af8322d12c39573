"""What every part uses: errors, the version, and dataclasses and patterns made at first use."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.border.entry_points import service
    from ..agent.errors import (
        CompactionFailed,
        ConfigError,
        CtxagentError,
        LimitReached,
        LogDamaged,
        ModelError,
        NoCredentials,
        NoSuchSession,
        PromptTooLong,
        RecordError,
        RequestRejected,
        SessionBusy,
        SessionError,
        ToolError,
        UsageError,
        conceal,
    )
    from ..agent.lazy import dataclass, regex
    from ..agent.version import __version__
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "CompactionFailed",
    "ConfigError",
    "CtxagentError",
    "LimitReached",
    "LogDamaged",
    "ModelError",
    "NoCredentials",
    "NoSuchSession",
    "PromptTooLong",
    "RecordError",
    "RequestRejected",
    "SessionBusy",
    "SessionError",
    "ToolError",
    "UsageError",
    "__version__",
    "conceal",
    "dataclass",
    "regex",
    "service",
]
