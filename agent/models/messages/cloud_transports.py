"""Transports to Amazon Bedrock and Google Vertex AI, using the SDK's clients for them.

A client signs each request or fetches a token for it, and imports the cloud's library then. This
module refers to the libraries' errors only by name.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...errors import NoCredentials
from ..keys import ANY_TOKEN
from ..providers import BEDROCK, VERTEX
from ..transport import NotConnected
from .cloud_keys import (
    ACCESS_KEY_VAR,
    LOCATION_VAR,
    PROFILE_VARS,
    PROJECT_VARS,
    REGION_VARS,
    SECRET_KEY_VAR,
    SESSION_VAR,
    find_key,
    first_set,
)
from .sdk_transport import SdkTransport

if TYPE_CHECKING:
    import httpx2

SECRETS = (SECRET_KEY_VAR, SESSION_VAR)
_ERRORS = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "google.auth.exceptions": ("GoogleAuthError",),
}
_OF_NETWORK = {"TransportError", "HTTPClientError"}  # names of network error classes


class _CloudTransport(SdkTransport):
    """A transport whose client looks up credentials when it sends."""

    def _options(self) -> dict[str, Any]:
        # Keep the libraries from logging to the terminal.
        for name in ("boto3", "botocore", "google"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        return super()._options()

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        with _translated_errors():
            return await super().post(path, data, headers)

    async def get(self, path: str) -> object:
        with suppress(NoCredentials, NotConnected), _translated_errors():
            return await super().get(path)
        return None

    def _key(self) -> str | None:
        """Return the key or token from the environment."""
        return first_set(self._endpoint.provider.keys, self._environ)


class BedrockTransport(_CloudTransport):
    """A transport to Amazon Bedrock, which supports the Messages API unchanged. See
    `SdkTransport`.
    """

    client_name = "AsyncAnthropicBedrockMantle"

    def _build(self, **options: Any) -> Any:
        from anthropic import AsyncAnthropicBedrockMantle

        environ, key = self._environ, self._key()
        given: dict[str, Any] = {}
        if not key and environ.get(ACCESS_KEY_VAR) and environ.get(SECRET_KEY_VAR):
            given = {
                "aws_access_key": environ[ACCESS_KEY_VAR],
                "aws_secret_key": environ[SECRET_KEY_VAR],
                "aws_session_token": environ.get(SESSION_VAR) or None,
            }
        elif not key:
            given = {"aws_profile": first_set(PROFILE_VARS, environ)}
        return AsyncAnthropicBedrockMantle(
            api_key=key,
            aws_region=first_set(REGION_VARS, environ),
            skip_auth=not find_key(self._endpoint, environ),
            **given,
            **options,
        )


class VertexTransport(_CloudTransport):
    """A transport to Google Vertex AI, which expects the model in the URL path. See
    `SdkTransport`.
    """

    client_name = "AsyncAnthropicVertex"

    def _build(self, **options: Any) -> Any:
        from anthropic import AsyncAnthropicVertex

        environ = self._environ
        needs_none = not find_key(self._endpoint, environ)
        return AsyncAnthropicVertex(
            region=environ[LOCATION_VAR],
            project_id=first_set(PROJECT_VARS, environ) or "",
            access_token=ANY_TOKEN if needs_none else self._key(),
            **options,
        )

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        project = first_set(PROJECT_VARS, self._environ) or ""
        parts = (project, self._environ[LOCATION_VAR], self._endpoint.name)
        where = "/projects/{}/locations/{}/publishers/anthropic/models/{}:streamRawPredict"
        path = where.format(*(quote(part, safe="@:") for part in parts))
        return await super().post(path, data, headers)

    async def get(self, path: str) -> object:
        """Return None: Vertex AI cannot list its models."""
        return None


TRANSPORTS = {BEDROCK: BedrockTransport, VERTEX: VertexTransport}


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Convert errors of the clouds' libraries to errors of this program."""
    try:
        yield
    except _errors() as error:
        if type(error) is RuntimeError and "resolve" not in str(error):
            raise  # not about credentials
        classes = {each.__name__ for each in type(error).__mro__}
        if classes & _OF_NETWORK or getattr(error, "retryable", False):
            raise NotConnected from error
        words = " ".join(str(error).split())
        raise NoCredentials(
            f"The cloud's credentials do not work: {words}",
            hint="Log in with your cloud's tools; `ctxagent guide models` names the variables.",
        ) from error


def _errors() -> tuple[type[Exception], ...]:
    """Return the error classes of the imported libraries, and RuntimeError, which the SDK raises if
    it finds no credentials.
    """
    loaded = [(sys.modules[name], kinds) for name, kinds in _ERRORS.items() if name in sys.modules]
    return (RuntimeError, *(getattr(module, kind) for module, kinds in loaded for kind in kinds))
