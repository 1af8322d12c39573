"""What a model behind the Messages API can do, by the table and by what its server refused."""

from ...context.compaction_block import COMPACTION
from ..base import Abilities
from ..catalog import cache_terms, known_model
from .gaps import IMAGES, ServerGaps


def abilities_of(id: str, gaps: ServerGaps) -> Abilities:
    """Return what a model can do on the server that has these gaps."""
    row = known_model(id)
    return Abilities(
        cache_terms(id),
        images=IMAGES not in gaps.names,
        makes_blocks=row is not None and row.compaction and COMPACTION not in gaps.names,
        takes_blocks=gaps.takes_compaction_block,
        searches_web=gaps.is_public or None,
    )
