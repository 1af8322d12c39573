"""`ctxagent wrap CLIENT`: a small script in place of each client, with the proxy."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ctxagent.addons.proxy.clients import CLIENTS

from ..support.command import Place, comes
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

# Prints what it was given, then does what $DO says.
CLIENT = r"""#!/bin/sh
env | grep -E '^(ANTHROPIC|OPENAI|KIMI|OPENCODE|GOOGLE|COPILOT|CTXAGENT_PROXY)' | sort
for each; do printf 'argument %s\n' "$each"; done
eval "$DO"
"""
# A client that asks its model once.
ASK = """
import json, os, urllib.request
text = [{"type": "text", "text": "hi"}]
body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
headers = {"x-api-key": "k", "anthropic-version": "2023-06-01", "content-type": "application/json"}
address = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
request = urllib.request.Request(address, json.dumps(body).encode(), headers)
print(urllib.request.urlopen(request).read().decode())
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def environ(place: Place, do: str = "", **more: str) -> dict[str, str]:
    """An environment in which each known client is the small script."""
    folder = place.root / "bin"
    folder.mkdir(exist_ok=True)
    for name in CLIENTS:
        (folder / name).write_text(CLIENT)
        (folder / name).chmod(0o755)
    return place.environ({"PATH": f"{folder}:{os.environ['PATH']}", "DO": do, **more})


def variable(printed: str, name: str) -> str:
    return next(
        line.partition("=")[2] for line in printed.splitlines() if line.startswith(f"{name}=")
    )


def is_open(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def test_a_client_reaches_its_model_through_the_proxy_and_ends_as_it_ends(place: Place) -> None:
    ask = shlex.join((sys.executable, "-c", ASK))
    with Server([Say("Hello.")], lenient=True) as server:
        env = environ(place, f"{ask}; exit 7", ANTHROPIC_BASE_URL=server.url)
        done = place.run("wrap", "claude", "--print", "-p", "go on", env=env)
    assert done.returncode == 7, done.stderr
    assert '"Hello."' in done.stdout
    assert len(server.requests) == 1
    address = variable(done.stdout, "ANTHROPIC_BASE_URL")
    assert address != server.url
    assert address.startswith("http://127.0.0.1:")
    arguments = [line for line in done.stdout.splitlines() if line.startswith("argument ")]
    assert arguments[-3:] == ["argument --print", "argument -p", "argument go on"]
    assert comes(lambda: not is_open(address))
    assert [path.name for path in (place.root / "home").iterdir()] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 9), (signal.SIGKILL, -9)])
def test_a_signal_is_the_clients_and_the_proxy_ends_with_it(
    place: Place, number: int, code: int
) -> None:
    env = environ(place, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    with place.start("wrap", "claude", env=env, stdout=subprocess.PIPE) as process:
        printed = ""
        while "ready" not in printed:
            printed += process.stdout.readline()
        address = variable(printed, "ANTHROPIC_BASE_URL")
        assert is_open(address)
        process.send_signal(number)
        assert process.wait() == code
    assert comes(lambda: not is_open(address))


def test_the_client_has_the_terminal(place: Place) -> None:
    env = environ(place, "test -t 0 && test -t 1 && echo a terminal; read answer; exit 3")
    terminal = Terminal("wrap", "pi", cwd=place.project, env=env)
    terminal.see("a terminal")
    terminal.type("\r")
    assert terminal.leave() == 3


@pytest.mark.variants
@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_is_told_the_address_and_nothing_of_its_own_is_lost(
    place: Place, name: str
) -> None:
    env = environ(place)
    done = place.run("wrap", "--port", "0", name, "-x", "mine", env=env)
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:" in done.stdout
    assert done.stdout.endswith("argument -x\nargument mine\n")


@pytest.mark.variants
@pytest.mark.parametrize("name", CLIENTS)
def test_printed_commands_run_in_a_shell(place: Place, name: str) -> None:
    env = environ(place, "", OPENCODE_CONFIG_CONTENT='{"theme": "it\'s mine"}')
    done = place.run("wrap", "--print", name, "an 'odd' $word", env=env)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        ["sh", "-c", done.stdout], env=env, text=True, capture_output=True, check=True
    )
    assert "http://127.0.0.1:8765" in ran.stdout
    assert ran.stdout.endswith("argument an 'odd' $word\n")
    assert list(place.state.glob("projects/*/proxy.log")) == []  # nothing was started
    if name == "opencode":
        config = json.loads(variable(ran.stdout, "OPENCODE_CONFIG_CONTENT"))
        assert config["theme"] == "it's mine"
        assert config["provider"]["anthropic"]["options"]["baseURL"] == "http://127.0.0.1:8765/v1"


def test_a_client_that_is_unknown_or_missing_is_named_with_what_to_do(place: Place) -> None:
    env = environ(place)
    done = place.run("wrap", "emacs", env=env)
    assert done.returncode == 2
    assert "emacs" in done.stderr
    assert ", ".join(CLIENTS) in done.stderr
    (place.root / "bin" / "codex").unlink()
    done = place.run("wrap", "codex", env=env)
    assert done.returncode == 2
    assert "npm install -g @openai/codex" in done.stderr
    done = place.run("wrap", "--print", "codex", "go on", env=env)  # it starts nothing
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("codex ")
    assert "http://127.0.0.1:8765" in done.stdout


def test_a_setting_of_the_client_that_cannot_be_read_is_named(place: Place) -> None:
    env = environ(place, OPENCODE_CONFIG_CONTENT="{theme")
    done = place.run("wrap", "opencode", env=env)
    assert done.returncode == 2
    assert "OPENCODE_CONFIG_CONTENT" in done.stderr


def test_failed_proxy_is_reported_before_the_client_starts(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        env = environ(place)
        first, done = (place.run("wrap", "--port", port, "claude", env=env) for _ in range(2))
    assert done.returncode == 2
    assert port in done.stderr
    assert done.stderr == first.stderr, "older lines of proxy.log are left out"
    assert done.stdout == ""
