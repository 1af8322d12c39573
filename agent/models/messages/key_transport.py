"""The transport to a Messages API server with a key from the environment, without the SDK.

The import of the SDK takes twice the CPU time of that of `httpx2`. Requests, errors and their texts
are those of the SDK's client for keys.
"""

import json
from typing import TYPE_CHECKING

from ..keys import ANY_TOKEN
from ..transport import HttpTransport, parse_error
from .body import API_HOST
from .credentials import find_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

    from ..http_client import Timeouts
    from ..providers import Endpoint

API_VERSION = "2026-10-21"  # that of the SDK


class KeyTransport(HttpTransport):
    """A transport that sends a key as a bearer token. See `transport.Transport`."""

    def __init__(
        self, endpoint: "Endpoint", environ: "Mapping[str, str]", timeouts: "Timeouts"
    ) -> None:
        """Create the transport without connecting."""
        super().__init__(endpoint, environ, timeouts)
        self._address = endpoint.address or f"https://{API_HOST}"

    def _headers(self) -> dict[str, str]:
        endpoint = self._endpoint
        key = self._environ.get(find_key(endpoint, self._environ)) or ANY_TOKEN
        own = {name.lower(): value for name, value in endpoint.provider.headers.items()}
        return {
            "accept": "application/json",
            "anthropic-version": API_VERSION,
            "authorization": f"Bearer {key}",
            **own,
        }

    def _error_of(self, response: "httpx2.Response", text: str) -> tuple[str, str]:
        text = text.strip()
        code = f"Error code: {response.status_code}"
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            return "", text or code
        return parse_error(answer) or ("", f"{code} - {answer}")
