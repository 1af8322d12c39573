"""Names from other agents and their equivalents in ctxagent, read from `foreign_names.toml`.

The file is read only when an unknown name is typed or completed.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

ForeignKind = Literal["aliases", "commands", "words", "options"]


NO_EQUIVALENT = {
    "commands": "It has no equivalent here; `/help` lists the commands.",
    "options": "It has no equivalent here; `ctxagent guide` has the documentation.",
}


@cache
def _table() -> dict[str, dict[str, str]]:
    import tomllib

    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for kind, names in found.pop("absent").items():
        found[kind] |= dict.fromkeys(names, NO_EQUIVALENT[kind])
    return found


def foreign_names(kind: ForeignKind) -> Mapping[str, str]:
    """Return the foreign names of one kind with their meaning: a command for aliases,
    else a text.
    """
    return _table()[kind]
