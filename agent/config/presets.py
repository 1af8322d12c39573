"""The names of the presets. Their numbers are in `compaction.policy`."""

from typing import Literal, get_args

PresetName = Literal["default", "v5", "ctx-001", "anchored", "ledger", "lean", "append", "small"]
PRESET_NAMES: tuple[PresetName, ...] = get_args(PresetName)
