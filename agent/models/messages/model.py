"""A model behind the Messages API, using the `anthropic` SDK."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...context.compaction_block import COMPACTION, begins_with_block, compaction_in
from ...context.request import Request
from ...errors import RequestRejected
from ..base import Abilities, Reply
from ..gaps import ServerGaps
from ..http_client import Timeouts
from ..keys import secrets_of
from ..providers import CLOUDS, DEFAULT_PROVIDER, Endpoint, endpoint_of
from ..retry import Fault, RetryPolicy
from ..server_model import ServerAccess, ServerModel
from ..shared_wait import SharedWait
from .abilities import abilities_of, takes_block
from .body import WIRE
from .gaps import gaps_at
from .refusals import HINTS, classify_error
from .sdk_transport import SdkTransport


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
        """Create the model without connecting. `environ` has the variables that the SDK would read.
        The file `learned` stores the server's gaps. See `ServerModel` for the other parameters.
        """
        endpoint = endpoint_of(id, base_url, environ)
        super().__init__(
            id,
            WIRE,
            _access(endpoint, environ, timeouts),
            ServerGaps(learned, endpoint.address, id, gaps_at(endpoint)),
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

    def _learn_from_reply(self, request: Request, reply: Reply) -> None:
        """Record that the server accepted a request, and whether it made the requested compaction
        block.
        """
        super()._learn_from_reply(request, reply)
        if request.compaction is None:
            return
        if compaction_in(reply.content):
            self.gaps.mark_supported(COMPACTION)
        elif any(block["type"] != COMPACTION for block in reply.content):
            self.gaps.add(COMPACTION)

    def _classify(
        self, status: int, kind: str, words: str, headers: Any, request_id: str | None
    ) -> Fault | RequestRejected:
        return classify_error(
            status,
            kind,
            self._cleaned(words),
            model=self.id,
            headers=headers,
            request_id=request_id,
            hints=self.access.hints,
        )


def _access(
    endpoint: Endpoint, environ: Mapping[str, str], timeouts: Timeouts | None
) -> ServerAccess:
    provider, transport, hints = endpoint.provider, SdkTransport, HINTS
    secrets = secrets_of(provider, environ)
    if provider.name in CLOUDS:
        from .cloud_transports import SECRETS, TRANSPORTS

        transport = TRANSPORTS[provider.name]
        hints = hints._replace(key=f"the credentials for {provider.name}")
        secrets += tuple(filter(None, map(environ.get, SECRETS)))
    elif provider.name != DEFAULT_PROVIDER:
        hints = hints._replace(key=" or ".join(provider.keys))
    return ServerAccess(
        endpoint,
        transport(endpoint, environ, timeouts or Timeouts()),
        hints._replace(address=endpoint.set_by),
        secrets,
    )
