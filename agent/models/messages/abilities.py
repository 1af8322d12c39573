"""The abilities of a model behind the Messages API, from the table of models and the
server's gaps.
"""

from ...context.compaction_block import COMPACTION
from ..base import Abilities
from ..catalog import cache_terms, known_model
from ..gaps import IMAGES, ServerGaps
from ..providers import Endpoint
from .gaps import is_public


def abilities_of(id: str, endpoint: Endpoint, gaps: ServerGaps) -> Abilities:
    """Return the abilities of a model on the server with these gaps."""
    row = known_model(id)
    return Abilities(
        cache_terms(id),
        images=IMAGES not in gaps.names,
        makes_blocks=row is not None and row.compaction and COMPACTION not in gaps.names,
        takes_blocks=takes_block(endpoint, gaps),
        searches_web=is_public(endpoint) or None,
        slots=endpoint.provider.slots,
    )


def takes_block(endpoint: Endpoint, gaps: ServerGaps) -> bool:
    """Return True if the server is known to accept a compaction block in the messages. Return False
    for a server that has not yet made a block: it might ignore the block, and the model would lose
    the summary.
    """
    seen = is_public(endpoint) or COMPACTION in gaps.supported
    return COMPACTION not in gaps.names and seen
