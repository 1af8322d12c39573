"""A model behind the Messages API, by way of the `anthropic` SDK.

Only this module and `lazy_sdk`, which imports the SDK, know it. The import takes up to a second,
so it happens in a thread (`start_import`) and never at start-up. The SDK gives authentication,
headers, pooling and typed errors.
"""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...context.compaction_block import COMPACTION, begins_with_block, compaction_in
from ...context.request import Request
from ...errors import NoCredentials, RequestRejected, conceal
from ..address import check_address
from ..base import Abilities, Reply
from ..gaps import ServerGaps
from ..http_client import Timeouts, client_options, import_in_background, timeout_of
from ..keys import ANY_TOKEN, secrets_of
from ..providers import DEFAULT_PROVIDER, Endpoint, endpoint_of
from ..retry import Fault, RetryPolicy
from ..server_model import ServerAccess, ServerModel
from ..shared_wait import SharedWait
from ..transport import ErrorAnswer, NotConnected
from . import lazy_sdk
from .abilities import abilities_of, takes_block
from .body import WIRE
from .credentials import KEY_VAR, TOKEN_VAR, find_key
from .gaps import gaps_at
from .refusals import HINTS, classify_error

if TYPE_CHECKING:
    import anthropic
    import httpx2


@cache
def start_import() -> "Future[None]":
    """Start importing the SDK in a thread; later calls change nothing. The future is done when the
    SDK is there, or has the ImportError."""
    return import_in_background(lazy_sdk.load, "import-anthropic")


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
        """Set the model up without connecting. `environ` holds the variables that the SDK would
        read, and the file `learned` what servers do not take. See `ServerModel` for the others."""
        endpoint = endpoint_of(id, base_url, environ)
        super().__init__(
            id,
            WIRE,
            _access(endpoint, environ, timeouts),
            ServerGaps(learned, endpoint.address, id, gaps_at(endpoint.address)),
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
        """Note that the server took a request, and whether it summarises by itself or answered as
        if it had not been asked."""
        super()._learn_from_reply(request, reply)
        if request.compaction is None:
            return
        if compaction_in(reply.content):
            self.gaps.see(COMPACTION)
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
    provider = endpoint.provider
    hints = HINTS._replace(address=endpoint.set_by)
    if provider.name != DEFAULT_PROVIDER:
        hints = HINTS._replace(address=endpoint.set_by, key=" or ".join(provider.keys))
    transport = SdkTransport(endpoint, environ, timeouts or Timeouts())
    return ServerAccess(endpoint, transport, hints, secrets_of(provider, environ))


class SdkTransport:
    """A way to a server of the Messages API, by the SDK. See `transport.Transport`."""

    def __init__(self, endpoint: Endpoint, environ: Mapping[str, str], timeouts: Timeouts) -> None:
        self._endpoint, self._environ, self._timeouts = endpoint, environ, timeouts
        self._client: anthropic.AsyncAnthropic | None = None

    async def connect(self) -> None:
        if self._client is None:
            endpoint = self._endpoint
            find_key(endpoint, self._environ)
            if endpoint.address:
                check_address(endpoint.address, endpoint.provider.address_variable)
            await asyncio.wrap_future(start_import())
        if self._client is None:  # a concurrent call may have been faster
            self._client = self._build()

    def _build(self) -> "anthropic.AsyncAnthropic":
        import anthropic

        endpoint, environ = self._endpoint, self._environ
        if endpoint.provider.name == DEFAULT_PROVIDER:
            key, token = environ.get(KEY_VAR) or None, environ.get(TOKEN_VAR) or None
        else:
            key, token = None, environ.get(find_key(endpoint, environ)) or ANY_TOKEN
        return anthropic.AsyncAnthropic(
            api_key=key,
            auth_token=None if key else token,
            base_url=endpoint.address or None,
            default_headers={**endpoint.provider.headers},
            max_retries=0,
            timeout=timeout_of(self._timeouts),
            http_client=anthropic.DefaultAsyncHttpxClient(**client_options(endpoint.address)),
        )

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send the bytes of a request. They go past `client.messages.create`, which would copy
        every block of every message before it makes the same bytes of them, and needs hundreds of
        modules to be imported."""
        import anthropic

        try:
            opened = await self._connected().post(
                path,
                cast_to=object,
                content=data,
                options={"headers": headers},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        except anthropic.APIStatusError as error:
            raise ErrorAnswer(
                error.status_code,
                error.type if isinstance(error.type, str) else "",
                error.api_message or error.message,
                error.response.headers,
                error.request_id,
            ) from error
        except anthropic.CredentialsError as error:
            words = conceal(str(error), *map(self._environ.get, (KEY_VAR, TOKEN_VAR)))
            raise NoCredentials(f"The SDK found no credentials that work: {words}") from error
        except anthropic.APIConnectionError as error:
            raise NotConnected from (error.__cause__ or error)
        response: httpx2.Response = opened.response
        return response

    async def get(self, path: str) -> object:
        import anthropic

        with suppress(ValueError, anthropic.AnthropicError):
            return await self._connected().get(path, cast_to=object)
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _connected(self) -> "anthropic.AsyncAnthropic":
        if self._client is None:
            raise NotConnected
        return self._client
