"""Network access by host name: an HTTP proxy for commands in a sandbox without a network.

In the sandbox a short program listens at PORT on the sandbox's loopback interface. It passes the
listening socket (SCM_RIGHTS, unix(7)) to this process, which accepts and connects outside. So
commands can only reach allowed hosts, whatever they do with the proxy's address. The proxy serves
`CONNECT` and requests with an absolute URL (RFC 9110, 9.3.6; RFC 9112, 3.2.2). It does not inspect
the traffic.

Connections, buffered bytes per connection and time are limited. Further connections wait in the
queue of the listening socket, and the agent keeps file descriptors for itself.
"""

import asyncio
import ipaddress
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from ...tools.system.descriptors import spare_descriptor
from ..lazy import dataclass, regex

PORT = 3128  # on the sandbox's private loopback interface
MAX_CONNECTIONS = 64  # of one command at once; each takes two descriptors
MAX_HEAD_BYTES = 16 * 1024  # of a request, before its body
HEAD_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 900.0  # without traffic; a model request can take that long
MAX_LOOKUPS = 4  # address lookups at once; a thread in a lookup cannot be stopped
ACCEPT_RETRY_S = 0.1  # delay after an error, which may repeat at once
MAX_NAME_CHARS = 253  # of a host (RFC 1035, 2.3.4)
MAX_ASKED = 20  # new hosts per command to ask about; others are refused
_CHUNK_BYTES = 64 * 1024  # buffer limit per direction of a connection
_DROPPED = regex(rb"(?i)(proxy-[\w-]+|connection):")
_NAME = regex(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|[0-9a-f:.]+")

# Runs in the sandbox before the command; its first argument is the descriptor of a socket.
_LISTEN = f"""import socket, sys
listening = socket.create_server(("127.0.0.1", {PORT}), backlog=64)
with socket.socket(fileno=int(sys.argv[1])) as out:
    socket.send_fds(out, [b"x"], [listening.fileno()])
"""


def listener_command(descriptor: int) -> list[str]:
    """Return the command that listens in the sandbox and passes the socket out through this
    descriptor.
    """
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", _LISTEN, str(descriptor)]


def proxy_variables() -> dict[str, str]:
    """Return the environment variables that point programs to the proxy."""
    address = f"http://127.0.0.1:{PORT}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    found = {spelt: address for name in names for spelt in (name, name.upper())}
    here = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return {**found, **here, "NODE_USE_ENV_PROXY": "1"}


def is_named(host: str, names: Sequence[str]) -> bool:
    """Return True if a host matches one of the names and patterns (`*.npmjs.org`)."""
    return any(fnmatchcase(host, name.lower()) for name in names)


@dataclass(slots=True)
class NameProxy:
    """The proxy of one command. `decide` returns why a host that is not in `names` is refused, ""
    if it is allowed. It is awaited once per host.
    """

    names: Sequence[str]
    decide: Callable[[str], Awaitable[str]]
    environ: Mapping[str, str] = field(default_factory=dict)  # may name the user's own proxy
    refused: list[str] = field(default_factory=list)  # refused hosts, in order
    reached: list[str] = field(default_factory=list)  # hosts that it was connected to, in order
    descriptor: int = field(init=False)  # for the sandbox; closed by the code that starts it
    _decided: "dict[str, asyncio.Future[str]]" = field(init=False, default_factory=dict)
    _own: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self.descriptor = theirs.detach()

    async def serve(self) -> None:
        """Serve connections from the sandbox until cancelled."""
        with self._own as own:
            own.setblocking(False)
            passed = await _received(own)
        if passed is None:  # the sandbox ended before
            return
        try:
            with passed as listening:
                listening.setblocking(False)
                await self._accept_all(listening)
        finally:
            for task in self._decided.values():
                task.cancel()

    async def _accept_all(self, listening: socket.socket) -> None:
        places = asyncio.Semaphore(MAX_CONNECTIONS)
        async with asyncio.TaskGroup() as served:
            while True:
                await places.acquire()
                task = served.create_task(self._serve_one(await _accepted(listening)))
                task.add_done_callback(lambda _: places.release())

    async def _serve_one(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            try:
                async with asyncio.timeout(HEAD_TIMEOUT_S):
                    head, rest = await _head(client)
                host, port, first = _target(head)
            except TimeoutError:
                await _send(client, _refusal(408, f"no request came in {HEAD_TIMEOUT_S:.0f} s"))
                return
            except ValueError as error:
                await _send(client, _refusal(400, f"it is no request for a proxy: {error}"))
                return
            if why := await self._why_refused(host):
                if host not in self.refused and len(self.refused) <= MAX_ASKED:
                    self.refused.append(host)
                await _send(client, _refusal(403, f"{host} may not be reached: {why}"))
                return
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    there, early = await self._connect(host, port)
            except (OSError, ValueError) as error:
                what = f"{host}:{port} could not be reached: {error}"
                await _send(client, _refusal(502, what))
                return
            with there:
                if host not in self.reached:
                    self.reached.append(host)
                if not first:
                    await _send(client, b"HTTP/1.1 200 Connection established\r\n\r\n" + early)
                await _send(there, first + rest)
                await _join(client, there)

    async def _why_refused(self, host: str) -> str:
        if is_named(host, self.names):
            return ""
        if host not in self._decided and len(self._decided) >= MAX_ASKED:
            return f"{MAX_ASKED} hosts have been asked about for this command"
        if host not in self._decided:
            self._decided[host] = asyncio.ensure_future(self.decide(host))
        return await asyncio.shield(self._decided[host])

    async def _connect(self, host: str, port: int) -> tuple[socket.socket, bytes]:
        """Return a connection to a host and the bytes already received. Raises OSError and
        ValueError.
        """
        if upstream := self.environ.get("HTTPS_PROXY") or self.environ.get("https_proxy"):
            return await _connect_through(upstream, host, port)
        found = await _look_up(host, port)
        if not is_named(host, [name for name in self.names if "*" not in name]):
            # A pattern may match the name of a stranger, who can point it into the user's network.
            found = [each for each in found if ipaddress.ip_address(each[4][0]).is_global]
        if not found:
            raise OSError(f"{host} has no public address. Name it in sandbox.network")
        return await _connect_to_one(found), b""


async def _readable(waited: socket.socket) -> None:
    """Wait until a socket is readable or has a connection to accept."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(waited, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(waited)


async def _received(own: socket.socket) -> socket.socket | None:
    """Wait for the listening socket from the sandbox; None if the other end closes first."""
    await _readable(own)
    try:
        _, passed, _, _ = socket.recv_fds(own, 1, 1)
    except OSError:
        return None
    if not passed:
        return None
    listening = socket.socket(fileno=passed[0])
    if listening.family == socket.AF_INET and listening.type == socket.SOCK_STREAM:
        return listening
    listening.close()
    return None


async def _accepted(listening: socket.socket) -> socket.socket:
    """Accept a connection once the agent has descriptors to spare."""
    while True:
        await _readable(listening)
        await spare_descriptor()
        try:
            client, _ = listening.accept()
        except OSError:  # the client left, or the command broke the socket
            await asyncio.sleep(ACCEPT_RETRY_S)
            continue
        return _prepared(client)


def _prepared(connection: socket.socket) -> socket.socket:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


async def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a request or a response, and the bytes received after it. Raises
    ValueError if the head is too long, OSError if the connection ends first.
    """
    loop, held = asyncio.get_running_loop(), b""
    while b"\r\n\r\n" not in held:
        if len(held) == MAX_HEAD_BYTES:
            raise ValueError(f"its head has more than {MAX_HEAD_BYTES:,} bytes")
        data = await loop.sock_recv(connection, MAX_HEAD_BYTES - len(held))
        if not data:
            raise ConnectionResetError
        held += data
    head, end, rest = held.partition(b"\r\n\r\n")
    return head + end, rest


async def _send(connection: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, data)


@cache
def _lookup_threads() -> ThreadPoolExecutor:
    """Return a thread pool only for lookups, so that slow lookups do not block the threads of
    tools.
    """
    return ThreadPoolExecutor(MAX_LOOKUPS, "lookup")


async def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    """Return the addresses of a host, as `socket.getaddrinfo` does. Raises OSError."""
    threads, kind = _lookup_threads(), socket.SOCK_STREAM
    loop = asyncio.get_running_loop()
    return list(await loop.run_in_executor(threads, socket.getaddrinfo, host, port, 0, kind))


async def _connect_to_one(found: Sequence[tuple[Any, ...]]) -> socket.socket:
    """Connect to the first address that answers. Raises OSError."""
    for last, (family, kind, protocol, _, address) in enumerate(found, 1 - len(found)):
        await spare_descriptor()
        with ExitStack() as stack:
            there = stack.enter_context(_prepared(socket.socket(family, kind, protocol)))
            try:
                await asyncio.get_running_loop().sock_connect(there, address)
            except OSError:
                if last == 0:
                    raise
                continue
            stack.pop_all()
            return there
    raise OSError("it has no address")


def _target(head: bytes) -> tuple[str, int, bytes]:
    """Return the host and port of a request and the bytes to forward, b"" for `CONNECT`. Raises
    ValueError.
    """
    line, _, rest = head.partition(b"\r\n")
    method, _, target = line.decode("latin-1").partition(" ")
    target, _, version = target.rpartition(" ")
    if method == "CONNECT":
        address = urlsplit(f"//{target}")
        port = address.port
    else:
        address = urlsplit(target)
        port = address.port or 80
        if address.scheme != "http":
            raise ValueError(f"{method} needs a whole http:// address")
    host = (address.hostname or "").lower().rstrip(".")
    is_name = len(host) <= MAX_NAME_CHARS and _NAME.fullmatch(host)
    if not port or not version.startswith("HTTP/1.") or not is_name:
        raise ValueError("its address names no host and port")
    if method == "CONNECT":
        return host, port, b""
    path = address._replace(scheme="", netloc="").geturl() or "/"
    kept = [each for each in rest.split(b"\r\n") if each and not _DROPPED.match(each)]
    lines = [f"{method} {path} {version}".encode("latin-1"), *kept, b"Connection: close", b"", b""]
    return host, port, b"\r\n".join(lines)


def _refusal(code: int, why: str) -> bytes:
    words = {400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 502: "Bad Gateway"}[code]
    body = f"ctxagent: {why}\n".encode()
    head = f"HTTP/1.1 {code} {words}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


async def _connect_through(proxy: str, host: str, port: int) -> tuple[socket.socket, bytes]:
    """Connect through the user's own proxy. Raises OSError and ValueError."""
    address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    with ExitStack() as stack:
        there = await _connect_to_one(await _look_up(address.hostname or "", address.port or 80))
        stack.enter_context(there)
        await _send(
            there, f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        )
        answer, early = await _head(there)
        if answer.split(b" ")[1:2] != [b"200"]:
            raise OSError(f"the proxy answers {answer[:60]!r}")
        stack.pop_all()
        return there, early


async def _join(one: socket.socket, other: socket.socket) -> None:
    """Forward data in both directions until both sides end, one fails, or no data moves for
    IDLE_TIMEOUT_S. Raises OSError.
    """
    loop = asyncio.get_running_loop()

    async def carry(source: socket.socket, target: socket.socket) -> None:
        while data := await loop.sock_recv(source, _CHUNK_BYTES):
            await _send(target, data)
            idle.reschedule(loop.time() + IDLE_TIMEOUT_S)
        target.shutdown(socket.SHUT_WR)

    try:
        async with asyncio.timeout(IDLE_TIMEOUT_S) as idle, asyncio.TaskGroup() as both:
            both.create_task(carry(one, other))
            both.create_task(carry(other, one))
    except* OSError as errors:
        raise ConnectionError from errors
