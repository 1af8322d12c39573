"""The transport to a Messages API server, using the `anthropic` SDK.

Only this module, `cloud_transports` and `lazy_sdk` use the SDK. Its import takes up to a second, so
it runs in a thread (`start_import`), never at start-up. The SDK provides authentication, headers,
connection pooling and typed errors.
"""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ...errors import NoCredentials, conceal
from ..http_client import Timeouts, import_in_background, open_client, timeout_of
from ..keys import ANY_TOKEN
from ..providers import DEFAULT_PROVIDER, Endpoint, check_address
from ..transport import ErrorAnswer, NotConnected, parse_error
from . import lazy_sdk
from .credentials import KEY_VAR, TOKEN_VAR, find_key

if TYPE_CHECKING:
    import anthropic
    import httpx2


@cache
def start_import(client: str = lazy_sdk.CLIENT) -> "Future[None]":
    """Start to import the SDK with one of its clients in a thread. Later calls return the same
    future. The future completes when the import ends, and has the ImportError of a failed import.
    """
    return import_in_background(partial(lazy_sdk.load, client), "import-anthropic")


class SdkTransport:
    """A transport using the SDK's client for API keys. See `transport.Transport`."""

    client_name = lazy_sdk.CLIENT

    def __init__(self, endpoint: Endpoint, environ: Mapping[str, str], timeouts: Timeouts) -> None:
        self._endpoint, self._environ, self._timeouts = endpoint, environ, timeouts
        self._client: Any = None

    async def connect(self) -> None:
        if self._client is None:
            endpoint = self._endpoint
            find_key(endpoint, self._environ)
            if endpoint.address:
                check_address(endpoint.address, endpoint.provider.address_variable)
            await asyncio.wrap_future(start_import(self.client_name))
        if self._client is None:  # a concurrent call may have connected
            self._client = self._build(**self._options())

    def _options(self) -> dict[str, Any]:
        """Return the common options of the SDK's clients."""
        import anthropic

        endpoint = self._endpoint
        variable = endpoint.provider.address_variable
        if not os.environ.get(variable, "set").strip():
            del os.environ[variable]  # otherwise the SDK uses "" as the base URL
        return {
            "base_url": endpoint.address or None,
            "default_headers": {**endpoint.provider.headers},
            "max_retries": 0,
            "timeout": timeout_of(self._timeouts),
            "http_client": open_client(anthropic.DefaultAsyncHttpxClient, endpoint.address),
        }

    def _build(self, **options: Any) -> Any:
        import anthropic

        endpoint, environ = self._endpoint, self._environ
        if endpoint.provider.name == DEFAULT_PROVIDER:
            key, token = environ.get(KEY_VAR) or None, environ.get(TOKEN_VAR) or None
        else:
            key, token = None, environ.get(find_key(endpoint, environ)) or ANY_TOKEN
        return anthropic.AsyncAnthropic(api_key=key, auth_token=None if key else token, **options)

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send the bytes of a request. Bypass `client.messages.create`, which would copy every
        block of every message to produce the same bytes, and import hundreds of modules.
        """
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
            kind, words = parse_error(error.body) or ("", error.message)
            raise ErrorAnswer(
                error.status_code, kind, words, error.response.headers, error.request_id
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

    async def get_local(self, path: str) -> object:
        return await self.get(path)

    async def post_local(self, path: str, body: dict[str, Any]) -> object:
        import anthropic

        with suppress(ValueError, anthropic.AnthropicError):
            return await self._connected().post(path, cast_to=object, body=body)
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _connected(self) -> "anthropic.AsyncAnthropic":
        if self._client is None:
            raise NotConnected
        client: anthropic.AsyncAnthropic = self._client  # or a cloud's client with the same methods
        return client
