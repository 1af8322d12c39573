"""Install and start third-party servers, and count their requests in a relay."""

import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

HERE = Path(__file__).resolve().parent
MOCK = "@copilotkit/aimock"
KEY = "sk-a-key-of-this-run-alone-4711"
MODEL = "walrus"
START_TIMEOUT_S = 180.0
_ENDS = {
    "/messages": "messages", "/responses": "responses", "/chat/completions": "chat",
    ":generateContent": "gemini", ":streamGenerateContent": "gemini",
}  # fmt: skip
_HOP_HEADERS = ("connection", "content-length", "host", "transfer-encoding")


def install(folder: Path) -> None:
    """Install aimock and LiteLLM's proxy into a folder if they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / MOCK).exists():
        _run("npm", "install", "--silent", "--no-fund", "--prefix", str(folder), MOCK)
    python = folder / "python" / "bin"
    if not (python / "litellm").exists():
        _run(sys.executable, "-m", "venv", str(folder / "python"))
        _run(str(python / "pip"), "install", "--quiet", "litellm[proxy]")


def versions(folder: Path) -> Iterator[str]:
    """Yield each installed server with its version."""
    package = json.loads((folder / "node_modules" / MOCK / "package.json").read_text("utf-8"))
    yield f"aimock {package['version']}"
    (found,) = (folder / "python").glob("lib/*/site-packages/litellm-*.dist-info")
    yield f"LiteLLM {found.name.removeprefix('litellm-').removesuffix('.dist-info')}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request in a model's protocol, and the server's answer."""

    protocol: str
    digest: str  # SHA-256 of the body
    status: int
    images: int  # in the body
    answer: bytes  # the beginning of a refusal, else b""


@dataclass
class Relay:
    """A relay that forwards the command's requests unchanged and counts them."""

    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)


class _RelayServer(ThreadingHTTPServer):
    """A server that a killed command may leave without a word."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def relay(target: str, image: str) -> Iterator[Relay]:
    """Start a relay to a server. `image` is the text that identifies an image in a body."""
    relayed = Relay()
    needle = image.encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a client of HTTP/1.0 cannot see that an answer is cut off

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            sent = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_HEADERS}
            upstream = http.client.HTTPConnection(target.removeprefix("http://"))
            upstream.request(self.command, self.path, body, sent)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_HEADERS:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            first = b""
            # The command was killed, or the answer is cut off: so is the one of this relay.
            self.close_connection = True
            with suppress(ConnectionError, http.client.IncompleteRead):
                while part := answer.read1():
                    first = first or part
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")
                self.close_connection = False
            upstream.close()
            ending = next((e for e in _ENDS if self.path.partition("?")[0].endswith(e)), "")
            if ending:
                digest = hashlib.sha256(body).hexdigest()
                why = first if answer.status >= http.client.BAD_REQUEST else b""
                relayed.exchanges.append(
                    Exchange(_ENDS[ending], digest, answer.status, body.count(needle), why)
                )

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _RelayServer(("127.0.0.1", 0), Handler) as server:
        relayed.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        yield relayed
        server.shutdown()


@contextmanager
def mock(folder: Path, script: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Start aimock; yield its address, and a growing list with one word per reply."""
    package = folder / "node_modules" / MOCK
    command = ["node", str(HERE / "model.mjs"), str(package), json.dumps(script)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = process.stdout
        address, said = lines.readline().strip(), list[str]()
        Thread(target=lambda: said.extend(line.strip() for line in lines), daemon=True).start()
        try:
            yield address, said
        finally:
            process.stdin.close()


@contextmanager
def litellm(folder: Path, mock: str, provider: str) -> Iterator[str]:
    """Start LiteLLM's proxy in front of aimock, configured as a `provider`; yield its address. The
    path makes aimock act as OpenRouter, so that it reports cached tokens over chat.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    behind = {"model": f"{provider}/{MODEL}", "api_base": f"{mock}/api/v1", "api_key": "x"}
    models = [{"model_name": MODEL, "litellm_params": behind}]
    config = folder / "litellm.yaml"  # JSON is YAML
    config.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": KEY}}))
    command = [str(folder / "python" / "bin" / "litellm"), "--config", str(config),
               "--port", str(port), "--host", "127.0.0.1"]  # fmt: skip
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    url = f"http://127.0.0.1:{port}"
    with (folder / "litellm.log").open("w") as log, subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    ) as process:  # fmt: skip
        try:
            _wait_for(f"{url}/health/liveliness", process)
            yield url
        finally:
            process.terminate()


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("LiteLLM did not start: its output is in litellm.log.")
