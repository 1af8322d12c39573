"""`ctxagent proxy install` and `uninstall`, with a small program in place of systemctl. It reads
the unit and starts its command.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from ..support.command import Place, comes
from ..support.machine import needs
from ..support.proxy.recorder import recorder

SYSTEMCTL = r"""#!{python}
import os, re, shlex, signal, subprocess, sys
from contextlib import suppress
from pathlib import Path

words, state = sys.argv[1:], Path({state!r})
unit = Path.home() / ".config/systemd/user/ctxagent-proxy.service"
link = unit.parent / "default.target.wants" / unit.name
pid = state / "pid"
with (state / "calls").open("a") as calls:
    calls.write(" ".join(words) + "\n")
if (state / "down").exists():
    sys.exit("Failed to connect to bus: No medium found")

def texts(name):
    found = re.findall(f"^{{name}}=(.*)$", unit.read_text(), re.M)
    return [[w.replace("%%", "%").replace("$$", "$") for w in shlex.split(f)] for f in found]

def stop():
    if pid.exists():
        with suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGTERM)
        pid.unlink()

def start():
    environ = dict(w.split("=", 1) for each in texts("Environment") for w in each)
    with (state / "out").open("wb") as out:
        process = subprocess.Popen(
            texts("ExecStart")[0], env={{"HOME": os.environ["HOME"], **environ}},
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    pid.write_text(str(process.pid))

match words[1:]:
    case ["enable", "--now", _]:
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(unit)
        if not pid.exists():
            start()
    case ["restart", _]:
        stop()
        start()
    case ["disable", "--now", _]:
        stop()
        link.unlink()
        link.parent.rmdir()
    case ["is-active", _]:
        stat = Path(f"/proc/{{pid.read_text()}}/stat")
        alive = stat.exists() and stat.read_text().split()[2] != "Z"
        print("active" if alive else "failed")
"""


class Machine:
    """A home with a systemctl."""

    def __init__(self, place: Place, state: Path) -> None:
        self.place, self.state = place, state
        folder = place.root / "bin"
        folder.mkdir()
        state.mkdir()
        (folder / "systemctl").write_text(SYSTEMCTL.format(python=sys.executable, state=str(state)))
        (folder / "systemctl").chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.env = place.environ({"PATH": f"{folder}:{os.environ['PATH']}"})
        self.home = Path(self.env["HOME"])
        self.unit = self.home / ".config/systemd/user/ctxagent-proxy.service"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def calls(self) -> list[str]:
        file = self.state / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return self.place.run("proxy", "--port", str(self.port), *words, env={**self.env, **env})

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*"))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(Place(tmp_path), tmp_path / "systemd")
    yield machine
    if (pid := machine.state / "pid").exists():
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_an_installed_proxy_serves_until_it_is_uninstalled(machine: Machine) -> None:
    before = machine.files()
    with recorder() as server:
        done = machine.run("--upstream", f"openai={server.url}/v1", "install")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            f"export ANTHROPIC_BASE_URL={machine.url}",
            f"export OPENAI_BASE_URL={machine.url}/v1",
            f"export GOOGLE_GEMINI_BASE_URL={machine.url}",
        ]
        assert httpx2.get(f"{machine.url}/v1/models", timeout=60).status_code == 200
        assert [received.path for received in server.requests] == ["/v1/models"]
    assert machine.unit.stat().st_mode & 0o777 == 0o600
    again = machine.run("install", ANTHROPIC_BASE_URL=machine.url)  # as the lines above say
    assert again.returncode == 0, again.stderr
    assert f"messages={machine.url}" not in machine.unit.read_text()
    assert [call for call in machine.calls if "is-active" not in call and "show" not in call] == [
        "--user daemon-reload", "--user enable --now ctxagent-proxy.service",
        "--user daemon-reload", "--user enable --now ctxagent-proxy.service",
        "--user restart ctxagent-proxy.service",
    ]  # fmt: skip
    done = machine.run("uninstall")
    assert done.returncode == 0, done.stderr
    left = [path for path in machine.files() if not path.startswith(".local")]
    assert left == [path for path in before if not path.startswith(".local")]
    with socket.socket() as client:
        assert comes(lambda: client.connect_ex(("127.0.0.1", machine.port)) != 0)
    done = machine.run("uninstall")
    assert (done.returncode, "not installed" in done.stderr) == (0, True)


@pytest.mark.parametrize("word", ["install", "uninstall"])
@pytest.mark.parametrize("text", ["[Service]\nExecStart=/bin/mine\n", None])
def test_a_unit_of_someone_else_stays(machine: Machine, word: str, text: str | None) -> None:
    machine.unit.parent.mkdir(parents=True)
    if text is None:
        machine.unit.symlink_to("/dev/null")  # a unit that the user has masked
    else:
        machine.unit.write_text(text)
    before = machine.files()
    done = machine.run(word)
    assert done.returncode == 2
    assert str(machine.unit) in done.stderr
    assert machine.files() == before
    assert text is None or machine.unit.read_text() == text
    assert not any("enable" in call or "disable" in call for call in machine.calls)


@pytest.mark.parametrize("word", ["install", "uninstall"])
def test_without_systemd_nothing_is_written(machine: Machine, word: str) -> None:
    before = machine.files()
    (machine.state / "down").touch()
    done = machine.run(word)
    assert done.returncode == 2
    assert "Failed to connect to bus: No medium found" in done.stderr
    folder = machine.place.root / "empty"
    folder.mkdir()
    done = machine.run(word, PATH=str(folder))
    assert done.returncode == 2
    assert "systemctl is not installed" in done.stderr
    assert "ctxagent proxy install --print" in done.stderr
    assert machine.files() == before
    printed = machine.run("install", "--print", PATH=str(folder))
    assert (printed.returncode, "ExecStart=" in printed.stdout) == (0, True)
    assert machine.files() == before


def test_a_service_that_does_not_start_is_removed(machine: Machine) -> None:
    before = machine.files()
    program = Path(machine.env["PATH"].split(":")[0]) / "systemctl"
    broken = program.read_text().replace('texts("ExecStart")[0]', '["false"]')
    program.write_text(broken)
    done = machine.run("install")
    assert done.returncode == 2
    assert "did not start" in done.stderr
    assert "journalctl" in done.stderr
    assert machine.files() == before


def test_a_port_in_use_is_named(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", machine.port))
        taken.listen()
        done = machine.run("install")
    assert done.returncode == 2
    assert f"port {machine.port} is in use" in done.stderr
    assert not machine.unit.exists()


@needs("systemd-analyze")
def test_systemd_accepts_the_unit(machine: Machine, tmp_path: Path) -> None:
    odd = tmp_path / 'a "b" $HOME %h \\n'
    odd.mkdir()
    done = machine.place.run(
        "--cwd",
        str(odd),
        "proxy",
        "install",
        "--print",
        env={**machine.env, "CTXAGENT_MODEL_ID": "é %"},
    )
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "ctxagent-proxy.service"
    unit.write_text(done.stdout)
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], text=True, capture_output=True, check=False
    )
    found = [line for line in checked.stderr.splitlines() if re.search("ctxagent", line)]
    assert (checked.returncode, found) == (0, [])


def test_a_proxy_does_not_send_to_itself(machine: Machine) -> None:
    done = machine.run(OPENAI_BASE_URL=f"http://localhost:{machine.port}/v1")
    assert done.returncode == 2
    assert "to itself" in done.stderr
    assert "OPENAI_BASE_URL" in done.stderr
