"""The settings, and where they are stored."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.config.compaction_settings import (
        PRESET_NAMES,
        PresetName,
        StateSettings,
        TelemetrySettings,
    )
    from ..agent.config.keys import SCRIPTED
    from ..agent.config.load import LoadedSettings, flag_value_text, settings_from_flags
    from ..agent.config.places import can_be_written, config_home
    from ..agent.config.settings import HookSettings, ModelSettings, SandboxSettings, Settings

__all__ = [
    "PRESET_NAMES",
    "SCRIPTED",
    "HookSettings",
    "LoadedSettings",
    "ModelSettings",
    "PresetName",
    "SandboxSettings",
    "Settings",
    "StateSettings",
    "TelemetrySettings",
    "can_be_written",
    "config_home",
    "flag_value_text",
    "settings_from_flags",
]

__getattr__ = names_on_demand(__name__, __file__)
