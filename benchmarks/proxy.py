"""Measure the milliseconds and memory that `ctxagent proxy` adds to a request of 200,000 tokens,
alternating with direct requests. In `edited`, results are stubs if clearing them paid off; in
`edited again`, one more result is cleared at each request.
"""

import http.client
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import measure
import psutil

from ctxagent.tests.support.command import Place
from ctxagent.tests.support.proxy.clients import Client, session_of

SIZES: dict[str, dict[str, Any]] = {
    "full": {"pairs": 40, "tokens": 200_000, "counts": (40, 150, 400)},
    "quick": {"pairs": 10, "tokens": 200_000, "counts": (40,)},
    "tiny": {"pairs": 3, "tokens": 20_000, "counts": (6,)},
}
TITLE = "a request through the proxy"
OFF = ("-cclear.when=off", "-ctruncate.at=off", "-ccompact.mode=off", "-cmove.above=off")
EAGER = ("-cclear.when=every-call", "-ccompact.preset=default", "-ccompact.at=off")
TURN = "x-turn"  # header with the number of a request
CHARS_OF_A_TOKEN = 4
VARIANTS = {"unchanged": OFF, "edited": (), "edited again": EAGER}


def main(pairs: int, tokens: int, counts: Sequence[int]) -> Iterator[measure.Table]:
    rows = {
        f"{variant}, {count} results": measure_requests(VARIANTS[variant], pairs, tokens, count)
        for count in counts
        for variant in VARIANTS
    }
    yield measure.Table(TITLE, rows)


def measure_requests(
    options: Sequence[str], pairs: int, tokens: int, count: int
) -> dict[str, float]:
    """Play the last calls of a session with `count` results, directly and through the proxy."""
    lines = tokens * CHARS_OF_A_TOKEN // (count * len("000.000: a line of the output\n"))
    client = session_of("messages", count + pairs, lines=lines)
    bodies = [json.dumps(body).encode() for body in client.bodies()]
    direct, through = list[float](), list[float]()
    with (
        tempfile.TemporaryDirectory(prefix="proxy-") as folder,
        upstream() as url,
        run_proxy(Place(Path(folder)), url, options) as (address, process),
    ):
        small = session_of("messages", 1, "Warm up.")
        time_request(address, small, 0, json.dumps(next(small.bodies())).encode())
        before = process.memory_info().rss
        time_request(address, client, count - 1, bodies[count - 1])
        cpu = sum(process.cpu_times()[:2])
        for number in range(count, count + pairs):
            direct.append(time_request(url, client, number, bodies[number]))
            through.append(time_request(address, client, number, bodies[number]))
        cpu = sum(process.cpu_times()[:2]) - cpu
        memory = process.memory_info().rss - before
    added = sorted(a - b for a, b in zip(through, direct, strict=True))
    return {
        "direct_ms": 1_000 * statistics.median(direct),
        "added_ms": 1_000 * statistics.median(added),
        "low_ms": 1_000 * added[len(added) // 10],
        "high_ms": 1_000 * added[-1 - len(added) // 10],
        "cpu_ms": 1_000 * cpu / pairs,
        "added_MB": memory / 1e6,
        "body_kB": len(bodies[-1]) / 1e3,
    }


def time_request(url: str, client: Client, number: int, body: bytes) -> float:
    """Return the seconds until the complete answer to request `number`, on a new connection."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port)
    headers = {"content-type": "application/json", TURN: str(number)}
    connection.connect()
    started = time.perf_counter()
    connection.request("POST", client.path, body, headers)
    answer = connection.getresponse()
    assert answer.read(), answer.status
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


@contextmanager
def run_proxy(
    place: Place, url: str, options: Sequence[str]
) -> Iterator[tuple[str, psutil.Process]]:
    """Run the real command; yield its address and process."""
    words = [*options, "proxy", "--no-summaries", "--port", "0", "--upstream", f"messages={url}"]
    with place.start(*words, stdout=subprocess.PIPE) as process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield found[0], psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def upstream() -> Iterator[str]:
    """Run a server that answers immediately, in a separate process; yield its address."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        server.kill()
        server.join()


def serve(pipe: Connection) -> None:
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    pipe.send(f"http://127.0.0.1:{http_server.server_port}")
    http_server.serve_forever()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    client = session_of("messages", 1_000, lines=1)
    wbufsize = -1  # headers and body in one packet

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        number = int(self.headers[TURN])
        data = self.client.answer(self.client.turns[number], number)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
