"""Servers that answer endlessly, send a compression bomb, or return the API key."""

import asyncio
import json
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.models.http_client import MAX_BODY_BYTES, bound_body
from ctxagent.agent.models.messages.draft import MAX_BLOCKS, MAX_REPLY_CHARS, ReplyDraft
from ctxagent.agent.models.providers import unencrypted_host

from ...support.command import PATIENCE, Place
from ...support.server.loopback import Fail, Say, Server

KEY = "test-key-1"  # as `Place.server` has it


@cache
def bomb() -> bytes:
    """Return data that decompresses to 300 MB."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(300)), packer.flush()])


class Flood(BaseHTTPRequestHandler):
    """A server that answers with an error whose body is endless or decompresses to 300 MB."""

    sent = 0
    kind = "endless"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.send_response(400)
        self.send_header("content-type", "text/event-stream" if "sse" in self.kind else "text/html")
        if "gzip" in self.kind:
            self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(bomb())))
        self.end_headers()
        try:
            if "gzip" in self.kind:
                self.wfile.write(bomb())
                return
            while type(self).sent < 1 << 30:
                type(self).sent += self.wfile.write(bytes(1 << 16))
        except OSError:
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def flood(kind: str) -> Iterator[tuple[str, type[Flood]]]:
    handler = type("Handler", (Flood,), {"kind": kind, "sent": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.variants
@pytest.mark.parametrize("kind", ["endless", "endless sse", "gzip", "gzip sse"])
def test_an_error_without_end_ends(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path)
    with flood(kind) as (url, handler):
        done = place.run("-p", "hi", env=place.server(url))
    assert done.returncode == 5
    assert "400" in done.stderr or "rejected" in done.stderr.lower(), done.stderr
    assert len(done.stderr) < 2_000
    assert handler.sent < 1 << 28


@pytest.mark.variants
@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_compressed_body_is_read_up_to_the_limit(is_bounded: bool) -> None:
    """Without the limit the whole body is decompressed."""
    import httpx2

    async def read(url: str) -> int:
        hooks = {"response": [bound_body]} if is_bounded else {}
        async with (
            httpx2.AsyncClient(event_hooks=hooks, trust_env=False, timeout=PATIENCE) as client,
            client.stream("GET", url) as response,
        ):
            return sum([len(piece) async for piece in response.aiter_bytes()])

    with flood("gzip") as (url, _):
        size = asyncio.run(read(url))
    assert size == (MAX_BODY_BYTES if is_bounded else 300 << 20)


def taken(draft: ReplyDraft, *events: dict[str, Any]) -> None:
    for event in events:
        list(draft.take(event))


def block(index: int) -> dict[str, Any]:
    text = {"type": "text", "text": ""}
    return {"type": "content_block_start", "index": index, "content_block": text}


def test_a_reply_is_bounded() -> None:
    piece = {"type": "text_delta", "text": "x" * 100_000}
    grown = {"type": "content_block_delta", "index": 0, "delta": piece}
    with pytest.raises(ValueError, match=f"{MAX_REPLY_CHARS:,} characters"):
        taken(ReplyDraft("m"), block(0), *[grown] * (MAX_REPLY_CHARS // 100_000 + 1))
    with pytest.raises(ValueError, match=f"{MAX_BLOCKS:,} blocks"):
        taken(ReplyDraft("m"), *map(block, range(MAX_BLOCKS + 1)))


@pytest.mark.variants
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_a_key_returned_by_the_server_is_redacted_everywhere(tmp_path: Path, output: str) -> None:
    """In text, thinking, arguments of a call, a subagent's answer and an error. The changed
    thinking is not sent again, but later thinking is.
    """
    place = Place(tmp_path)
    task = {"description": "look", "prompt": "Look.", "type": "explore"}
    call = Say(f"It is {KEY}.", thinking=f"The key is {KEY}, I think.", deltas=30,
               tools=[("Bash", {"command": f"echo {KEY}"}), ("Task", task)])  # fmt: skip
    steps = [call, Say(f"Its answer: {KEY}"), Say(thinking="Hm.", text=f"Done: {KEY}", deltas=9)]
    left = [*steps, Say("Still here.")]
    refusal = Fail(400, f"bad key {KEY}")
    with Server(lambda body: left.pop(0) if left else refusal, lenient=True) as server:
        env = place.server(server.url)
        runs = [
            place.run(
                "-p", words, "--continue"[: 10 * bool(n)] or "--verbose", "--verbose",
                "--permission-mode", "bypass", "--output-format", output, env=env,
            )
            for n, words in enumerate(("go", "again", "once more"))
        ]  # fmt: skip
    assert [done.returncode for done in runs] == [0, 0, 5], runs
    assert server.rejected == []
    for done in runs:
        assert KEY not in done.stdout + done.stderr
    for path in (p for p in place.state.rglob("*") if p.is_file()):
        assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in json.dumps(server.requests)
    assert "[redacted: ANTHROPIC_API_KEY]" in json.dumps(place.entries())
    thoughts = json.dumps(server.requests[len(steps) + 1]["messages"])
    assert "Hm." in thoughts
    assert "I think" not in thoughts


def test_an_address_without_encryption_is_warned_of(tmp_path: Path) -> None:
    assert unencrypted_host("http://models.example:8080/v1") == "models.example"
    for safe in ("https://models.example", "http://127.0.0.1:1", "http://[::1]:2", "", "http://["):
        assert unencrypted_host(safe) == ""
    place = Place(tmp_path)
    env = place.environ({"ANTHROPIC_BASE_URL": "http://models.invalid", "ANTHROPIC_API_KEY": KEY})
    told = "are sent to models.invalid unencrypted"
    with place.start(
        "-p", "hi", env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert any(told in line for line in process.stderr)
        process.terminate()  # it would try to connect for half a minute
    assert told in place.run("doctor", env=env).stdout
