"""Run the proxy in this process."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import field
from pathlib import Path

import uvicorn

from ...api.base import RequestRejected, UsageError, dataclass
from ...api.context import Policy
from ...api.files import make_private_folder, replace_file
from ...api.models import check_address
from ...api.record import Project
from ...api.tools import Output
from .app import Proxy
from .conversations import Conversations
from .exchange import Exchanges
from .forward import HOST, UPSTREAMS, Upstream, is_at
from .mcp_server import SessionServer
from .routes import ProxyPages
from .session_tools import ServedSessions
from .status import RUNNING_NAME, StatusReader

KEEP_ALIVE_S = 600  # idle timeout of a client's connection
SHUTDOWN_S = 2  # for running requests


@dataclass(frozen=True)
class ProxyOptions:
    """The options of a proxy."""

    project: Project
    policy: Policy
    port: int = 0  # 0 for any free port
    upstreams: Mapping[str, str] = field(default_factory=dict)  # overrides of the defaults
    summaries: bool = True
    window: int | None = None
    report: Callable[[str], None] = lambda text: None
    redact: Callable[[Output], Output] = lambda output: output  # of the MCP server


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers; the command handles signals."""
        yield


@contextmanager
def _announced(folder: Path, address: str) -> Iterator[None]:
    """Write the proxy's address to a file of the project until the block ends. A newer proxy
    overwrites it. Ignore write errors.
    """
    file, told = folder / RUNNING_NAME, {"pid": os.getpid(), "address": address}
    with suppress(OSError):
        make_private_folder(folder)
        replace_file(file, json.dumps(told).encode(), durable=False)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(file.read_bytes()) == told:
                file.unlink()


def upstreams_of(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the base URLs: from `given`, else from the environment, else the defaults. Raises
    UsageError for an invalid URL.
    """
    found = {
        name: given.get(name) or environ.get(default.variable, "").strip() or default.url
        for name, default in UPSTREAMS.items()
    }
    for name, url in found.items():
        variable = UPSTREAMS[name].variable
        try:
            check_address(url, variable)
        except RequestRejected as error:
            hint = f"Write {variable} or --upstream {name}= as https://HOST[:PORT]."
            raise UsageError(error.message, hint=hint) from None
    return found


@asynccontextmanager
async def serving(options: ProxyOptions, environ: Mapping[str, str]) -> AsyncIterator[str]:
    """Run the proxy until the block ends, and yield its address. Raises UsageError if the port is
    in use.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, options.port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {HOST}:{options.port}: {error.strerror}",
                hint="Use another --port, or 0 for any free port.",
            ) from error
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        conversations = Conversations(
            options.project, options.policy, summaries=options.summaries, window=options.window
        )
        upstreams = upstreams_of(options.upstreams, environ)
        for name, url in upstreams.items():
            if is_at(url, address):
                hint = f"Unset {UPSTREAMS[name].variable}, or give --upstream {name}=URL."
                raise UsageError(f"the proxy would send requests to itself: {url}", hint=hint)
        proxy = Proxy(Exchanges(conversations, Upstream()), upstreams, options.report)
        recall = SessionServer(ServedSessions(options.project), options.redact)
        pages = ProxyPages(proxy, StatusReader(options.window), recall)
        server = _Server(
            uvicorn.Config(
                proxy.app(pages.routes()),
                log_level="critical",
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
                server_header=False,
                date_header=False,
            )
        )
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        await server.ready.wait()
        try:
            with _announced(options.project.folder, address):
                yield address
        finally:
            server.should_exit = True
            await running
