"""The settings, and where they are stored."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.config.add_on_settings import TelemetrySettings
    from ..agent.config.compaction_settings import (
        PRESET_NAMES,
        PresetName,
        StateSettings,
    )
    from ..agent.config.keys import SCRIPTED
    from ..agent.config.load import (
        PROJECT_FILE,
        LoadedSettings,
        flag_value_text,
        settings_from_flags,
    )
    from ..agent.config.places import can_be_written, config_home, home_folder, user_file
    from ..agent.config.settings import HookSettings, ModelSettings, SandboxSettings, Settings
    from ..agent.config.user_settings import (
        USER_FILE_MODE,
        read_settings_file,
        with_section,
        write_settings_file,
    )
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "PRESET_NAMES",
    "PROJECT_FILE",
    "SCRIPTED",
    "USER_FILE_MODE",
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
    "home_folder",
    "read_settings_file",
    "settings_from_flags",
    "user_file",
    "with_section",
    "write_settings_file",
]
