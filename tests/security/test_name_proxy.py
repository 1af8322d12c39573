"""The limits of the proxy: connections, heads, idle time, descriptors; and complete transfers."""

import asyncio
import json
import os
import resource
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ctxagent.agent.security import name_proxy
from ctxagent.agent.security.name_proxy import MAX_CONNECTIONS, MAX_HEAD_BYTES, NameProxy
from ctxagent.tools.system import descriptors

from ..support.command import COMMAND, PATIENCE, Place
from ..support.machine import needs_bwrap

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SIZE = 20_000_000  # bytes


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def nobody(host: str) -> str:
    return "not named"


class Seat:
    """A proxy, and a server that it reaches as localhost."""

    def __init__(self, address: tuple[str, int], port: int) -> None:
        self.address, self.port = address, port
        self.open: list[Connection] = []

    async def connect(self) -> Connection:
        self.open.append(await asyncio.open_connection(*self.address))
        return self.open[-1]

    async def say(self, words: bytes) -> bytes:
        """The answer to a client that sends this and waits for the end."""
        reader, writer = await self.connect()
        writer.write(words)
        with suppress(ConnectionResetError):  # its data was not read to the end
            return await reader.read()
        return b""

    async def tunnel(self) -> Connection:
        reader, writer = await self.connect()
        writer.write(f"CONNECT localhost:{self.port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100_000):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def seat(
    environ: Mapping[str, str] | None = None,
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = echo,
) -> AsyncIterator[Seat]:
    proxy = NameProxy(("localhost",), nobody, {} if environ is None else environ)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    with socket.socket(fileno=proxy.descriptor) as out:
        socket.send_fds(out, [b"x"], [listening.fileno()])
    serving = asyncio.ensure_future(proxy.serve())
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found = Seat(listening.getsockname(), server.sockets[0].getsockname()[1])
    listening.close()
    try:
        async with asyncio.timeout(200):
            yield found
        assert not serving.done()
    finally:
        for _, writer in found.open:
            writer.close()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        server.close()


REFUSED = b"CONNECT example.org:443 HTTP/1.1\r\n\r\n"


def test_connections_beyond_the_limit_wait() -> None:
    async def scene() -> None:
        async with seat() as place:
            held = [await place.tunnel() for _ in range(MAX_CONNECTIONS)]
            before = open_files()
            waiting = [asyncio.ensure_future(place.say(REFUSED)) for _ in range(30)]
            reader, writer = held[0]
            writer.write(b"still here")
            assert await reader.read(10) == b"still here"
            # The new ones are there, with one descriptor each, on the side of the clients.
            assert open_files() <= before + len(waiting)
            assert not any(each.done() for each in waiting)
            writer.close()
            assert all(b" 403 " in each for each in await asyncio.gather(*waiting))

    asyncio.run(scene())


def test_a_tunnel_carries_all_in_both_directions() -> None:
    async def scene() -> None:
        async with seat() as place:
            reader, writer = await place.tunnel()
            sent = os.urandom(1000) * (SIZE // 1000)

            async def send() -> None:
                writer.write(sent)
                await writer.drain()
                writer.write_eof()

            sending = asyncio.ensure_future(send())
            assert await reader.read() == sent
            await sending

    asyncio.run(scene())


def test_bytes_after_the_head_are_forwarded() -> None:
    async def scene() -> None:
        async with seat() as place:
            reader, writer = await place.connect()
            request = f"CONNECT localhost:{place.port} HTTP/1.1\r\n\r\nearly".encode()
            writer.write(request)
            writer.write_eof()
            assert (await reader.read()).endswith(b"\r\n\r\nearly")

    asyncio.run(scene())


def test_bytes_after_the_head_of_the_users_proxy_are_kept() -> None:
    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"CONNECT localhost:22 ")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0")
        writer.close()

    async def scene() -> None:
        environ: dict[str, str] = {}
        async with seat(environ, upstream) as place:
            environ["https_proxy"] = f"http://localhost:{place.port}"
            answer = await place.say(b"CONNECT localhost:22 HTTP/1.1\r\n\r\n")
            assert answer.endswith(b"\r\n\r\nSSH-2.0")

    asyncio.run(scene())


def test_a_request_head_is_limited_in_length_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with seat() as place:
            just = REFUSED[:-2] + b"X: " + b"x" * (MAX_HEAD_BYTES - len(REFUSED) - 5) + b"\r\n\r\n"
            assert len(just) == MAX_HEAD_BYTES
            assert b" 403 " in await place.say(just)
            longer = b"its head has more than 16,384 bytes"
            assert longer in await place.say(b"x" * MAX_HEAD_BYTES)
            monkeypatch.setattr(name_proxy, "HEAD_TIMEOUT_S", 0.05)
            assert b"408 Request Timeout" in await place.say(b"CONNECT ")

    asyncio.run(scene())


def test_an_idle_tunnel_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_proxy, "IDLE_TIMEOUT_S", 0.05)

    async def scene() -> None:
        async with seat() as place:
            reader, _ = await place.tunnel()
            assert await reader.read() == b""

    asyncio.run(scene())


def test_connections_leave_the_reserved_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "WAIT_S", 0.001)
    has_spare = descriptors.has_spare_descriptors

    async def scene() -> None:
        waits = asyncio.Event()

        def looked() -> bool:
            found = has_spare()
            if not found:
                waits.set()
            return found

        monkeypatch.setattr(descriptors, "has_spare_descriptors", looked)
        async with seat() as place:
            _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            used = open_files()
            waiting = asyncio.ensure_future(place.say(REFUSED))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 60, hard))
            try:
                await waits.wait()
                assert not waiting.done()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert b" 403 " in await waiting

    asyncio.run(scene())


def test_a_broken_socket_does_not_stop_the_proxy() -> None:
    async def scene() -> None:
        async with seat() as place:
            reader, writer = await place.tunnel()
            with socket.socket() as other:
                other.connect(place.address)
                linger = b"\1\0\0\0\0\0\0\0"
                other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # ends with a reset
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            assert b" 403 " in await place.say(REFUSED)

    asyncio.run(scene())


HOLD = """
import os, pathlib, socket, time
for _ in range(2): os.fork()
held = []
for _ in range(150):
    each = socket.socket()
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", 3128))
    held.append(each)
for each in held:
    try: each.send(b"CONNECT x")
    except OSError: pass
pathlib.Path(f"held{os.getpid()}").touch()
time.sleep(1000)
"""


@pytest.mark.slow
@needs_bwrap
def test_a_job_with_600_connections_leaves_descriptors_free(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "a.txt").write_text("walrus\n")
    (place.project / "hold.py").write_text(HOLD)
    job = {"command": "python3 hold.py", "run_in_background": True}
    wait = {"command": "until [ $(ls | grep -c ^held) = 4 ]; do sleep 0.1; done; echo there"}
    calls = [
        {"name": "Read", "input": {"path": "a.txt"}},
        {"name": "Grep", "input": {"pattern": "walrus"}},
        {"name": "Write", "input": {"path": "b.txt", "content": "x"}},
        {"name": "Bash", "input": {"command": "cat a.txt b.txt"}},
    ]
    first = [{"tools": [{"name": "Bash", "input": each}]} for each in (job, wait)]
    steps = [*first, {"tools": calls}, {"text": "Done."}]
    (tmp_path / "steps.json").write_text(json.dumps({"steps": steps}))
    done = subprocess.run(
        [
            "sh", "-c", 'ulimit -n 160 && exec "$@"', "sh", COMMAND, "-p", "go",
            "--permission-mode", "bypass", "--model", f"scripted:{tmp_path / 'steps.json'}",
            "-c", 'sandbox.network=["example.org"]', "--output-format", "stream-json",
        ],
        cwd=place.project, env=place.environ(), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    events = [json.loads(line) for line in done.stdout.splitlines()]
    results = [each for each in events if each["type"] == "tool_finished"]
    assert [each["is_error"] for each in results] == [False] * 6, results
    assert "there" in results[1]["text"]
