"""What a model behind the Messages API can do, by the table and by what its server refused."""

from ...context.compaction_block import COMPACTION
from ..base import Abilities
from ..catalog import cache_terms, known_model
from ..gaps import IMAGES, ServerGaps
from ..providers import Endpoint
from .gaps import is_public


def abilities_of(id: str, endpoint: Endpoint, gaps: ServerGaps) -> Abilities:
    """Return what a model can do on the server that has these gaps."""
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
    """Return True if the server takes a compaction block in the messages, as far as is known. One
    that was never seen to make one might leave it out, and the model would know nothing."""
    seen = is_public(endpoint) or COMPACTION in gaps.seen
    return COMPACTION not in gaps.names and seen
