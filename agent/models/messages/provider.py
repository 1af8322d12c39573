"""The Messages API as `base.Provider`. Imports nothing heavy."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .credentials import find_credentials as find_key
from .servers import server_environment as environment

if TYPE_CHECKING:
    from ...config.settings import ModelSettings
    from ...context.request import Request
    from ..base import Model, ServerAnswer

__all__ = ["check_server", "environment", "find_key", "make", "rebuild", "start_import"]


def make(chosen: "ModelSettings", environ: Mapping[str, str], state: Path) -> "Model":
    """Return a model behind the server of the settings or the environment."""
    from ..shared_wait import SharedWait
    from .gaps import FILE_NAME
    from .model import MessagesModel

    return MessagesModel(
        chosen.id,
        base_url=chosen.base_url,
        context_window=chosen.context_window,
        environ=environ,
        learned=state / FILE_NAME,
        shared_wait=SharedWait(chosen.wait_file),
    )


def start_import() -> None:
    """Start to import the SDK in a thread."""
    from .model import start_import

    start_import()


def rebuild(request: "Request", sent: Mapping[str, Any]) -> bytes:
    """Return the bytes of a request that was sent before."""
    from .body import rebuild

    return rebuild(request, sent)


def check_server(model: "Model") -> "AsyncIterator[ServerAnswer]":
    """Yield what the server takes, as it is found. Raises NoCredentials."""
    from .model import MessagesModel
    from .probe import check_server

    assert isinstance(model, MessagesModel)
    return check_server(model)
