from pathlib import Path

import pytest

from ctxagent.agent.errors import ConfigError
from ctxagent.agent.library.launch_parts import load


def test_an_unreadable_home_is_reported(tmp_path: Path) -> None:
    """`models.toml` is opened there before the settings are read."""
    home = tmp_path / ("x" * 300)  # too long for a name, so that root cannot look into it either
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {"XDG_CONFIG_HOME": str(home)}, [])
