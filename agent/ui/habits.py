"""Names that users of other agents type, and the right way here, from `habits.toml`.

The file is read when a name is typed that does not exist here, or completed.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

HabitKind = Literal["aliases", "commands", "words", "options"]


@cache
def _table() -> dict[str, dict[str, str]]:
    import tomllib

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def habits(kind: HabitKind) -> Mapping[str, str]:
    """Return what names of one kind mean here: a command for aliases, else a text."""
    return _table()[kind]
