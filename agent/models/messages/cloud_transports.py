"""The ways to Amazon Bedrock and Google Vertex AI, by the SDK's own clients for them.

A client signs each request, or gets a token for it. The libraries of the clouds are imported by the
client when it does so; here their errors are known by their names alone.
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
_OF_NETWORK = {"TransportError", "HTTPClientError"}  # classes of errors of these libraries


class _CloudTransport(SdkTransport):
    """A way by a client that looks for credentials when it sends."""

    def _options(self) -> dict[str, Any]:
        # Their libraries log what they look for, and would do so on the terminal.
        for name in ("boto3", "botocore", "google"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        return super()._options()

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        with _credentials_told():
            return await super().post(path, data, headers)

    async def get(self, path: str) -> object:
        with suppress(NoCredentials, NotConnected), _credentials_told():
            return await super().get(path)
        return None

    def _key(self) -> str | None:
        """Return the key or token of the environment."""
        return first_set(self._endpoint.provider.keys, self._environ)


class BedrockTransport(_CloudTransport):
    """A way to Amazon Bedrock, which speaks the Messages API as it is. See `SdkTransport`."""

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
    """A way to Google Vertex AI, which has the model in the path. See `SdkTransport`."""

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
        """Return None: Vertex AI does not say what it serves."""
        return None


TRANSPORTS = {BEDROCK: BedrockTransport, VERTEX: VertexTransport}


@contextmanager
def _credentials_told() -> Iterator[None]:
    """Raise errors of the clouds' libraries as errors of this program."""
    try:
        yield
    except _errors() as error:
        if type(error) is RuntimeError and "resolve" not in str(error):
            raise  # no credentials are meant
        classes = {each.__name__ for each in type(error).__mro__}
        if classes & _OF_NETWORK or getattr(error, "retryable", False):
            raise NotConnected from error
        words = " ".join(str(error).split())
        raise NoCredentials(f"The cloud's credentials do not work: {words}") from error


def _errors() -> tuple[type[Exception], ...]:
    """Return the errors of the libraries that are imported, and that of the SDK for credentials
    that were not found."""
    loaded = [(sys.modules[name], kinds) for name, kinds in _ERRORS.items() if name in sys.modules]
    return (RuntimeError, *(getattr(module, kind) for module, kinds in loaded for kind in kinds))
