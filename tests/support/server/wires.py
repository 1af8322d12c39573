"""A strict server of each wire protocol, for tests that run over all of them.

@over_each_wire
def test_it(place: Place, wire: Wire) -> None:
    with wire([Say("Done.")]) as server:
        place.run("-p", "go", env=place.environ(server.variables))
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import ModelSettings
from ctxagent.agent.models.factory import PROTOCOLS
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.models.server_model import ServerModel

from .chat import ChatServer
from .loopback import Server
from .responses import ResponsesServer

Wire = type[Server]
WIRES: Mapping[str, Wire] = {wire.protocol: wire for wire in (Server, ChatServer, ResponsesServer)}
QUICK = RetryPolicy(attempts=8, first_wait=0.001, longest_wait=0.004, longest_requested_wait=0.02)

over_each_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


def model_of(server: Server, state: Path, retry: RetryPolicy = QUICK, **chosen: Any) -> ServerModel:
    """Return a model in this process that uses the server, with very short retry waits."""
    settings = ModelSettings(id=server.model, **chosen)
    model = PROTOCOLS[server.protocol]().make(settings, server.variables, state)
    assert isinstance(model, ServerModel)
    model.retry = retry
    return model
