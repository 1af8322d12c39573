"""The settings of the memory: the folder of the project's facts, and when the model may save
facts.
"""

from pathlib import Path
from typing import Literal

from ..lazy import dataclass
from .keys import loosens_if_different, loosens_if_later, one_of, or_none, setting, text_matching

MemoryOffer = Literal["auto", "always"]
_PLACE = text_matching(
    'a folder: within the project, absolute, or below "~/"',
    r"(?!\s)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+",
    Path,
)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """[memory]"""

    path: Path | None = setting(
        None,
        or_none("auto", _PLACE),
        'The folder of the facts about the project, such as ".ctxagent/memory". "auto": in '
        "your state folder.",
        loosens=loosens_if_different,
    )
    offer: MemoryOffer = setting(
        "auto",
        one_of(MemoryOffer),
        'When the model can save facts. "auto": in projects that already have facts.',
        loosens=loosens_if_later(MemoryOffer),
    )
