"""A task through a gateway in front of a Chat Completions server of others.

    python benchmarks/gateway/run.py FOLDER [litellm | router]

installs LiteLLM's proxy (PyPI: `litellm[proxy]`) or Claude Code Router (npm:
`@musistudio/claude-code-router`), and `@copilotkit/aimock` (npm), into FOLDER, and runs the real
command through both: 50 calls with summaries, killed in the middle and resumed; then the same
session over the strict Messages server of the tests, and through the gateway again. Prints what was
asked and what the gateway loses, and ends with exit code 1 where a run fails or a request is
rejected.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from ctxagent.agent.compaction.summary.request import QUESTION_START
from ctxagent.tests.support.server.loopback import Say, Server

HERE = Path(__file__).resolve().parent
COMMAND = str(Path(sys.executable).parent / "ctxagent")
CALLS, WINDOW = 50, 40_000
KEY = "sk-a-key-of-this-run-alone-4711"
START_TIMEOUT_S = 120
MOCK, ROUTER = "@copilotkit/aimock", "@musistudio/claude-code-router"
SUMMARY = """## Session Intent
Count to the end.
## Current State
Phase: running
- Done: the first numbers
## Next Steps
1. Count on.
"""
OPTIONS = (
    "-c", "model.server=litellm", "--model", "walrus", "--context-window", str(WINDOW),
    "--allow", "Bash", "-c", "microcompact.when=off", "-c", "sandbox.mode=off",
)  # fmt: skip


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    install, gateway_of = GATEWAYS[sys.argv[2] if len(sys.argv) > 2 else "litellm"]
    install(folder)
    _install_package(folder, MOCK)
    with _mock(folder) as (address, said), gateway_of(folder, address) as gateway:
        place = _Place(folder / "run", gateway)
        place.killed_after(CALLS // 2, said)
        first = place.run("-p", "go on", "--continue", "--output-format", "json")
        with Server([Say(tools=[("Bash", {"command": "echo here"})]), Say("Yes.")],
                    bound=True, strict=True) as server:  # fmt: skip
            there = place.run("-p", "and here?", "--continue", url=server.url)
        back = place.run("-p", "and back?", "--continue")
        calls = said.count("call")
        print(place.run("doctor", "--server").stdout)
    result = json.loads(first.stdout or "{}")
    learned = place.state / "servers.json"
    rows = {
        "calls through the gateway": calls,
        "summaries": said.count("summary"),
        "resumed after kill -9": result.get("result"),
        "over a Messages server": there.stdout.strip(),
        "and back": back.stdout.strip(),
        "rejected by the Messages server": len(server.rejected),
        "tokens by the gateway": result.get("usage"),
        "learned": json.loads(learned.read_text()) if learned.exists() else "nothing is refused",
    }
    for name, value in rows.items():
        print(f"{name:<34} {value}")
    failed = [run for run in (first, there, back) if run.returncode]
    for run in failed:
        print(run.stderr[-2_000:], file=sys.stderr)
    return int(bool(failed or server.rejected or not said.count("summary")))


class _Place:
    """A project, and runs of the command in it."""

    def __init__(self, folder: Path, gateway: str) -> None:
        self.project, self.state = folder / "project", folder / f"state-{os.getpid()}"
        self.project.mkdir(parents=True, exist_ok=True)
        self.gateway = gateway

    def _start(self, url: str, *words: str) -> "subprocess.Popen[str]":
        env = {"PATH": os.environ["PATH"], "HOME": str(self.project), "LITELLM_API_KEY": KEY,
               "CTXAGENT_STATE_DIR": str(self.state), "LANG": "C.UTF-8"}  # fmt: skip
        return subprocess.Popen(
            [COMMAND, "-c", f"model.base_url={url or self.gateway}", *OPTIONS, *words],
            cwd=self.project, env=env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, url: str = "") -> "subprocess.CompletedProcess[str]":
        with self._start(url, *words) as process:
            out, err = process.communicate()
        print(f"  {' '.join(words[:3])}: exit code {process.returncode}", file=sys.stderr)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def killed_after(self, calls: int, said: list[str]) -> None:
        """Begin the task, and kill the command after so many calls of the model."""
        wanted = said.count("call") + calls
        with self._start("", "-p", "Count to the end") as process:
            while said.count("call") < wanted and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)


def _install_litellm(folder: Path) -> None:
    python = folder / "python"
    if not (python / "bin" / "litellm").exists():
        subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
        pip = [str(python / "bin" / "pip"), "install", "--quiet", "litellm[proxy]"]
        subprocess.run(pip, check=True)


def _install_router(folder: Path) -> None:
    _install_package(folder, ROUTER)


def _install_package(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / name).exists():
        npm = ["npm", "install", "--silent", "--prefix", str(folder), name]
        subprocess.run(npm, check=True)


@contextmanager
def _mock(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The server of others: its address, and what it was asked so far."""
    package = folder / "node_modules" / MOCK
    command = ["node", str(HERE / "chat.mjs"), str(package), str(CALLS), QUESTION_START, SUMMARY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address, said = process.stdout.readline().strip(), list[str]()
        lines = process.stdout
        Thread(target=lambda: said.extend(line.strip() for line in lines), daemon=True).start()
        yield address, said
        process.stdin.close()


@contextmanager
def _litellm(folder: Path, address: str) -> Iterator[str]:
    port = _free_port()
    model: dict[str, Any] = {
        "model_name": "walrus",
        "litellm_params": {"model": "openai/walrus", "api_base": f"{address}/v1", "api_key": "x"},
    }
    config = folder / "gateway.json"  # JSON is YAML
    config.write_text(json.dumps({"model_list": [model], "general_settings": {"master_key": KEY}}))
    command = [str(folder / "python" / "bin" / "litellm"), "--config", str(config),
               "--port", str(port), "--host", "127.0.0.1"]  # fmt: skip
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    with _started(command, env, folder, port, "/health/liveliness") as url:
        yield url


@contextmanager
def _router(folder: Path, address: str) -> Iterator[str]:
    port, home = _free_port(), folder / f"router-{os.getpid()}"
    provider = {
        "name": "mock", "api_base_url": f"{address}/v1/chat/completions", "api_key": "x",
        "models": ["walrus"],
    }  # fmt: skip
    config = home / ".claude-code-router" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({
        "HOST": "127.0.0.1", "PORT": port, "APIKEY": KEY, "LOG": False, "Providers": [provider],
        "Router": {"default": "mock,walrus"},
    }))  # fmt: skip
    command = ["node", str(folder / "node_modules" / ROUTER / "dist" / "cli.js"), "start"]
    env = {**os.environ, "HOME": str(home), "NO_PROXY": "127.0.0.1"}
    with _started(command, env, folder, port, "/health") as url:
        yield url


GATEWAYS = {"litellm": (_install_litellm, _litellm), "router": (_install_router, _router)}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def _started(
    command: list[str], env: dict[str, str], folder: Path, port: int, health: str
) -> Iterator[str]:
    """A gateway that answers: its address."""
    with (folder / "gateway.log").open("w") as log, subprocess.Popen(
        command, env=env, stdout=log, stderr=log
    ) as process:  # fmt: skip
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until and process.poll() is None:
            try:
                urllib.request.urlopen(f"{url}{health}", timeout=2).close()
                break
            except OSError:
                time.sleep(0.2)
        try:
            yield url
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
