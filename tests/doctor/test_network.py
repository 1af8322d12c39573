"""Proxies and certificates: the real command reaches a server through them, or names what is
broken.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.server.relays import relay, socks5, tls

pytestmark = pytest.mark.slow
TASK = ("-p", "hi", "--model", "claude-sonnet-5")


@pytest.fixture
def server() -> Iterator[Server]:
    def step(body: Body) -> Say:
        return Say("Hello.")

    with Server(step, lenient=True) as server:
        yield server


def port_of(server: Server) -> int:
    port = urlsplit(server.url).port
    assert port
    return port


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_socks_proxy(tmp_path: Path, server: Server) -> None:
    place, hosts = Place(tmp_path), list[str]()
    with relay(port_of(server), socks5(hosts)) as port:
        env = {
            **place.server("http://model.invalid"),
            "ALL_PROXY": f"socks5://127.0.0.1:{port}",
        }
        done = place.run(*TASK, env=env)
        assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
        assert set(hosts) == {"model.invalid"}
        checked = place.run("doctor", "--network", env=env)
    assert checked.returncode == 0, checked.stdout
    assert f"ok    proxy: socks5://127.0.0.1:{port} answers" in checked.stdout
    assert "ok    server: http://model.invalid answers" in checked.stdout
    assert "ok    request: " in checked.stdout


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:{port}", "http://127.0.0.1:{port}"])
def test_a_proxy_that_does_not_answer_is_named(tmp_path: Path, proxy: str) -> None:
    place, proxy = Place(tmp_path), proxy.format(port=closed_port())
    env = {**place.server("http://model.invalid"), "ALL_PROXY": proxy}
    checked = place.run("doctor", "--network", env=env)
    assert checked.returncode == 1
    assert checked.stdout.startswith(f"FAIL  proxy: {proxy} does not answer: ")
    assert len(checked.stdout.splitlines()) == 1


def test_a_proxy_of_an_unknown_kind(tmp_path: Path) -> None:
    place = Place(tmp_path)
    env = {**place.server("http://model.invalid"), "ALL_PROXY": "socks4://127.0.0.1:1"}
    done = place.run(*TASK, env=env)
    assert done.returncode == 5
    assert "The proxy in the environment cannot be used" in done.stderr
    checked = place.run("doctor", "--network", env=env)
    assert "FAIL  proxy: socks4://127.0.0.1:1 has an unknown scheme" in checked.stdout


@pytest.mark.parametrize("model", ["claude-sonnet-5", "c/m", "r/m"])
def test_certificates_that_are_not_trusted_are_not_retried(
    tmp_path: Path, server: Server, model: str
) -> None:
    place = Place(tmp_path)
    accept, certificate = tls(tmp_path)
    with relay(port_of(server), accept) as port:
        url = f"https://localhost:{port}"
        env = {**place.server(url), "KEY": "k"}
        config = tmp_path / "home" / ".config" / "ctxagent" / "providers.toml"
        config.parent.mkdir(parents=True)
        rows = (f'[{n}]\nprotocol = "{p}"\naddress = "{url}"\nkeys = ["KEY"]\n'
                for n, p in (("c", "chat"), ("r", "responses")))  # fmt: skip
        config.write_text("".join(rows))
        done = place.run("-p", "hi", "--model", model, env=env)
        assert done.returncode == 5
        assert "The certificate of " in done.stderr
        assert "Set SSL_CERT_FILE" in done.stderr
        assert "retry" not in done.stderr
        checked = place.run("--model", model, "doctor", "--network", env=env)
        assert f"FAIL  server: {url} cannot be reached: its certificate" in checked.stdout
        if model != "claude-sonnet-5":
            return
        for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            done = place.run(*TASK, env={**env, variable: str(certificate)})
            assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
        checked = place.run("doctor", "--network", env={**env, "SSL_CERT_FILE": str(certificate)})
        assert checked.returncode == 0, checked.stdout
        assert f"ok    certificates: those in {certificate} (SSL_CERT_FILE)" in checked.stdout


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_a_stale_variable_is_named(tmp_path: Path, variable: str) -> None:
    place, gone = Place(tmp_path), f"{tmp_path}/gone.pem"
    env = {**place.server("https://model.invalid"), variable: gone}
    done = place.run(*TASK, env=env)
    assert done.returncode == 5
    assert f"{variable} names {gone}: No such file or directory" in done.stderr
    checked = place.run("doctor", "--network", env=env)
    assert checked.returncode == 1
    assert f"FAIL  certificates: {variable} names {gone}" in checked.stdout
