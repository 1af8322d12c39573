"""The settings of the state directory: its place, and how much of the disk it may take."""

from pathlib import Path

from ..lazy import dataclass
from .keys import SWITCH, loosens_if_different, loosens_if_turned, or_none, setting
from .value_types import DAYS_OR_OFF, FOLDER, GIGABYTES_OR_OFF


@dataclass(frozen=True, slots=True)
class StateSettings:
    """[state]"""

    dir: Path | None = setting(
        None,
        or_none("auto", FOLDER),
        'Where sessions are kept. "auto": $XDG_STATE_HOME/ctxagent or ~/.local/state/ctxagent.',
        loosens=loosens_if_different,
    )
    redact: bool = setting(
        False,
        SWITCH,
        "Whether to remove apparent keys and tokens from results before they are stored.",
        loosens=loosens_if_turned(False),
    )
    max_gb: float | None = setting(
        5,
        GIGABYTES_OR_OFF,
        "The limit of the state directory in GB. To meet it, the oldest sessions that no one used "
        'for 30 days are removed. "off": no limit.',
        loosens=loosens_if_different,
    )
    max_age_days: int | None = setting(
        None,
        DAYS_OR_OFF,
        "The days without use after which a session is removed; below 30, only by `ctxagent "
        'sessions prune`. "off": never.',
        loosens=loosens_if_different,
    )
