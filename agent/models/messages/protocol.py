"""The Messages API as a `base.ProtocolModule`. Imports nothing slow."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .credentials import find_key as find_key
from .credentials import needs_sdk

if TYPE_CHECKING:
    from ...config.settings import ModelSettings
    from ...context.request import Request
    from ..base import Model
    from ..providers import Endpoint


def make(chosen: "ModelSettings", environ: Mapping[str, str], state: Path) -> "Model":
    """Return the model of the settings."""
    from ..gaps import FILE_NAME
    from ..shared_wait import SharedWait
    from .model import MessagesModel

    return MessagesModel(
        chosen.id,
        base_url=chosen.base_url,
        context_window=chosen.context_window,
        environ=environ,
        learned=state / FILE_NAME,
        shared_wait=SharedWait(chosen.wait_file),
    )


def start_import(endpoint: "Endpoint", environ: Mapping[str, str]) -> None:
    """Start to import the client in a thread: the SDK's only where it is needed."""
    if needs_sdk(endpoint, environ):
        from .sdk_transport import start_import
    else:
        from ..http_client import start_import

    start_import()


def rebuild(request: "Request", sent: Mapping[str, Any]) -> bytes:
    """Return the bytes of an earlier request."""
    from .body import WIRE

    return WIRE.rebuild(request, sent)
