"""Protocols that need only a key in a header, as `base.ProtocolModule`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..lazy import dataclass
from . import keys

if TYPE_CHECKING:
    from ..config.settings import ModelSettings
    from ..context.request import Request
    from .base import Model
    from .providers import Endpoint
    from .wire import Wire


@dataclass(frozen=True, slots=True)
class HttpProtocol:
    """A protocol over plain HTTP. `wire` imports its translation."""

    wire: "Callable[[], Wire]"

    def make(self, chosen: "ModelSettings", environ: Mapping[str, str], state: Path) -> "Model":
        """Return the model of the settings."""
        from .gaps import FILE_NAME, ServerGaps
        from .providers import endpoint_of
        from .refusals import ServerHints
        from .server_model import ServerAccess, ServerModel
        from .shared_wait import SharedWait
        from .transport import HttpTransport

        endpoint, wire = endpoint_of(chosen.id, chosen.base_url, environ), self.wire()
        provider = endpoint.provider
        hints = ServerHints(
            endpoint.set_by, " or ".join(provider.keys) or "the key in providers.toml"
        )
        secrets = keys.secrets_of(provider, environ)
        access = ServerAccess(endpoint, HttpTransport(endpoint, environ), hints, secrets)
        return ServerModel(
            chosen.id,
            wire,
            access,
            ServerGaps(state / FILE_NAME, endpoint.address, chosen.id, wire.gaps),
            context_window=chosen.context_window,
            shared_wait=SharedWait(chosen.wait_file),
        )

    def find_key(self, endpoint: "Endpoint", environ: Mapping[str, str]) -> str:
        """Return the variable with the key, "" if none is needed. Raises NoCredentials."""
        return keys.find_key(endpoint, environ)

    def start_import(self, endpoint: "Endpoint", environ: Mapping[str, str]) -> None:
        """Start to import the client in a thread."""
        from .http_client import start_import

        start_import()

    def rebuild(self, request: "Request", sent: Mapping[str, Any]) -> bytes:
        """Return the bytes of an earlier request."""
        return self.wire().rebuild(request, sent)
