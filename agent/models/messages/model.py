"""A model behind the Messages API, and its abilities.

The abilities are from the table of models and the server's gaps.
"""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ...context.items import COMPACTION, begins_with_block, compaction_in
from ...context.request import Request
from ..base import Abilities, Reply
from ..catalog import cache_terms, known_model
from ..gaps import IMAGES, ServerGaps
from ..http_client import Timeouts
from ..keys import secrets_of
from ..providers import CLOUDS, DEFAULT_PROVIDER, Endpoint, endpoint_of
from ..refusals import ServerHints
from ..retry import RetryPolicy
from ..server_model import ServerAccess, ServerModel
from ..shared_wait import SharedWait
from ..transport import Transport
from .body import GAPS, WIRE, is_public
from .credentials import BASE_URL_VAR, KEY_VAR, TOKEN_VAR, needs_sdk
from .key_transport import KeyTransport


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


HINTS = ServerHints(BASE_URL_VAR, f"{KEY_VAR} or {TOKEN_VAR}", "before /v1")


class MessagesModel(ServerModel):
    """A model behind the Messages API. See `base.Model`."""

    def __init__(
        self,
        id: str,
        *,
        base_url: str | None = None,
        context_window: int | None = None,
        max_output: int | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        environ: Mapping[str, str] = os.environ,
        learned: Path | None = None,
        shared_wait: SharedWait | None = None,
    ) -> None:
        """Create the model without connecting. `environ` has the variables of the SDK.
        The file `learned` stores the server's gaps. See `ServerModel` for the other parameters.
        """
        endpoint = endpoint_of(id, base_url, environ)
        super().__init__(
            id,
            WIRE,
            _access(endpoint, environ, timeouts),
            ServerGaps(learned, endpoint.address, id, GAPS),
            context_window=context_window,
            max_output=max_output,
            timeouts=timeouts,
            retry=retry,
            shared_wait=shared_wait,
        )

    @property
    def abilities(self) -> Abilities:
        return abilities_of(self.id, self.access.endpoint, self.gaps)

    def _gaps_for(self, request: Request) -> tuple[str, ...]:
        names = self.gaps.names
        if request.compaction is not None or not begins_with_block(request.messages):
            return names
        if takes_block(self.access.endpoint, self.gaps):
            return names
        return tuple(dict.fromkeys((*names, COMPACTION)))

    def _learn_from_reply(self, request: Request, reply: Reply, gaps: Collection[str]) -> None:
        """Record that the server accepted a request, and whether it made the requested compaction
        block.
        """
        super()._learn_from_reply(request, reply, gaps)
        if request.compaction is None:
            return
        if compaction_in(reply.content):
            self.gaps.mark_supported(COMPACTION)
        elif any(block["type"] != COMPACTION for block in reply.content):
            self.gaps.add(COMPACTION)


def _access(
    endpoint: Endpoint, environ: Mapping[str, str], timeouts: Timeouts | None
) -> ServerAccess:
    provider, hints = endpoint.provider, HINTS
    make: Callable[[Endpoint, Mapping[str, str], Timeouts], Transport] = KeyTransport
    secrets = secrets_of(provider, environ)
    if provider.name in CLOUDS:
        from .cloud_transports import SECRETS, TRANSPORTS

        make = TRANSPORTS[provider.name]
        hints = hints._replace(key=f"the credentials for {provider.name}")
        secrets += tuple(filter(None, map(environ.get, SECRETS)))
    else:
        if needs_sdk(endpoint, environ):
            from .sdk_transport import SdkTransport

            make = SdkTransport
        if provider.name != DEFAULT_PROVIDER:
            hints = hints._replace(key=" or ".join(provider.keys))
    return ServerAccess(
        endpoint,
        make(endpoint, environ, timeouts or Timeouts()),
        hints._replace(address=endpoint.set_by),
        secrets,
    )
