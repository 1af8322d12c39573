"""Start proxies between an agent and the server."""

import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from agents import environ

from ctxagent.tests.support.command import COMMAND

START_S = 120.0  # timeout; some proxies import a lot


def ctxagent(url: str, port: int, window: int, preset: str = "default") -> list[str]:
    return ["--preset", preset, "--context-window", str(window),
            "proxy", "--port", str(port), "--upstream", f"messages={url}"]  # fmt: skip


def lean(url: str, port: int, window: int) -> list[str]:
    return ctxagent(url, port, window, "lean")


def headroom(url: str, port: int, window: int) -> list[str]:
    return ["proxy", "--port", str(port), "--mode", "token", "--no-rate-limit", "--no-telemetry",
            "--no-subscription-tracking", "--no-http2", "--anthropic-api-url", url]  # fmt: skip


PROXIES: Mapping[str, Callable[[str, int, int], list[str]]] = {
    "proxy": ctxagent,
    "lean-proxy": lean,
    "headroom": headroom,
}
OURS = ("proxy", "lean-proxy")
COMMANDS = dict.fromkeys(OURS, COMMAND)  # defaults


@contextmanager
def through(name: str, command: str, url: str, window: int, folder: Path) -> Iterator[str]:
    """Start a proxy in front of the server at `url`; yield the proxy's address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    home, printed = folder / "proxy-home", folder / "proxy-printed"
    (home / "tmp").mkdir(parents=True)
    with printed.open("wb") as out, subprocess.Popen(
        [command, *PROXIES[name](url, port, window)], env=environ(home), cwd=home,
        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            _wait(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def wrapped(
    client: str, url: str, env: Mapping[str, str], project: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the flags and variables that `ctxagent wrap` gives a client for a proxy at `url`; none
    for a client that `wrap` does not know.
    """
    asked = [COMMAND, "wrap", "--print", "--port", str(urlsplit(url).port), client]
    shown = subprocess.run(
        asked, env=dict(env), cwd=project, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    *exports, start = shown.stdout.splitlines() or [""]
    pairs = (shlex.split(export)[1].partition("=") for export in exports)
    return shlex.split(start)[1:], {name: value for name, _, value in pairs}


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process listens on the port. Raises SystemExit if the proxy does not start."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the proxy on port {port} did not start")
