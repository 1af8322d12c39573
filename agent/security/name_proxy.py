"""The network by name: an HTTP proxy for the commands of a sandbox that has no network of its own.

In the sandbox a short program listens at PORT of the sandbox's own loopback and hands the listening
socket out (SCM_RIGHTS, unix(7)) to this process, which lies outside: it accepts there and connects
here. So nothing in the sandbox can reach more than the names that are let through, whatever it
does with the proxy's address. Both `CONNECT` and requests with a whole address are served
(RFC 9110, 9.3.6; RFC 9112, 3.2.2). What runs over such a connection is not looked at.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

PORT = 3128  # in the sandbox, whose loopback is its own
MAX_HEAD_BYTES = 64 * 1024  # of a request, before its body
CONNECT_TIMEOUT_S = 30.0
MAX_NAME_CHARS = 253  # of a host (RFC 1035, 2.3.4)
MAX_ASKED = 20  # hosts of one command that are asked about; others are refused
_CHUNK = 64 * 1024
_DROPPED = re.compile(rb"(?i)(proxy-[\w-]+|connection):")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|[0-9a-f:.]+")

# Runs in the sandbox before the command; its first argument is the descriptor of a socket.
_LISTEN = f"""import socket, sys
listening = socket.create_server(("127.0.0.1", {PORT}), backlog=64)
with socket.socket(fileno=int(sys.argv[1])) as out:
    socket.send_fds(out, [b"x"], [listening.fileno()])
"""


def listener_command(descriptor: int) -> list[str]:
    """Return the command that listens in the sandbox, and hands the socket out through this
    descriptor."""
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", _LISTEN, str(descriptor)]


def proxy_variables() -> dict[str, str]:
    """Return the variables by which programs find the proxy."""
    address = f"http://127.0.0.1:{PORT}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    found = {spelt: address for name in names for spelt in (name, name.upper())}
    here = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return {**found, **here, "NODE_USE_ENV_PROXY": "1"}


def is_named(host: str, names: Sequence[str]) -> bool:
    """Tell whether a host is among names and patterns (`*.npmjs.org`)."""
    return any(fnmatchcase(host, name.lower()) for name in names)


@dataclass(slots=True)
class NameProxy:
    """The proxy of one command. `decide` returns why a host that is not among the `names` may not
    be reached, "" if it may; it is awaited once for each."""

    names: Sequence[str]
    decide: Callable[[str], Awaitable[str]]
    environ: Mapping[str, str] = field(default_factory=dict)  # names the person's own proxy
    refused: list[str] = field(default_factory=list)  # hosts, in the order of the attempts
    descriptor: int = field(init=False)  # what the sandbox is given, to be closed by its starter
    _decided: "dict[str, asyncio.Future[str]]" = field(init=False, default_factory=dict)
    _own: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self.descriptor = theirs.detach()

    async def serve(self) -> None:
        """Serve what the sandbox connects to, until this is cancelled."""
        with self._own as own:
            own.setblocking(False)
            passed = await _received(own)
        if passed is None:  # the sandbox ended before
            return
        try:
            async with await asyncio.start_server(self._serve_one, sock=passed) as server:
                await server.serve_forever()
        finally:
            for task in self._decided.values():
                task.cancel()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                host, port, first = _target(head)
            except (ValueError, asyncio.LimitOverrunError) as error:
                writer.write(_refusal(400, f"it is no request for a proxy: {error}"))
                return
            if why := await self._why_refused(host):
                if host not in self.refused and len(self.refused) <= MAX_ASKED:
                    self.refused.append(host)
                writer.write(_refusal(403, f"{host} may not be reached: {why}"))
                return
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    there = await self._connect(host, port)
            except (OSError, TimeoutError, ValueError) as error:
                writer.write(_refusal(502, f"{host}:{port} could not be reached: {error}"))
                return
            if first:
                there[1].write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _join((reader, writer), there)

    async def _why_refused(self, host: str) -> str:
        if is_named(host, self.names):
            return ""
        if host not in self._decided and len(self._decided) >= MAX_ASKED:
            return f"{MAX_ASKED} hosts have been asked about for this command"
        if host not in self._decided:
            self._decided[host] = asyncio.ensure_future(self.decide(host))
        return await asyncio.shield(self._decided[host])

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if upstream := self.environ.get("HTTPS_PROXY") or self.environ.get("https_proxy"):
            return await _connect_through(upstream, host, port)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(address[4][0]) for address in found]
        if not is_named(host, [name for name in self.names if "*" not in name]):
            # A name that anybody may give an address of the person's own network.
            addresses = [each for each in addresses if ipaddress.ip_address(each).is_global]
        if not addresses:
            raise OSError(f"{host} is an address of the own network. Name it in sandbox.network")
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(address, port)
        return await asyncio.open_connection(addresses[-1], port)


async def _received(own: socket.socket) -> socket.socket | None:
    """Wait for a socket that is handed out, None where the other end is closed before."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(own, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(own)
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


def _target(head: bytes) -> tuple[str, int, bytes]:
    """Return host and port of a request, and what goes on to the host of it: nothing of a
    `CONNECT`. Raises ValueError."""
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
    words = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[code]
    body = f"ctxagent: {why}\n".encode()
    head = f"HTTP/1.1 {code} {words}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


async def _connect_through(
    proxy: str, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect through the person's own proxy. Raises OSError."""
    address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
    writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if answer.split(b" ")[1:2] != [b"200"]:
        writer.close()
        raise OSError(f"the proxy answers {answer[:60]!r}")
    return reader, writer


async def _join(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Carry what comes from either side to the other, until both have ended."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    try:
        await asyncio.gather(carry(one[0], other[1]), carry(other[0], one[1]))
    finally:
        other[1].close()
