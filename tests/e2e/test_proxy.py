"""`ctxagent proxy` as a command: where it stores sessions, failures around it, many clients."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ctxagent.tests.support.command import Place
from ctxagent.tests.support.disk import small_disk
from ctxagent.tests.support.proxy.checks import messages_of
from ctxagent.tests.support.proxy.clients import PATHS, Client, session_of
from ctxagent.tests.support.proxy.command import ProxyCommand, proxy_command
from ctxagent.tests.support.proxy.recorder import Answer, Received, Recorder, recorder

EVENTS = {"content-type": "text/event-stream"}
STUB = "tokens compacted"
EAGER = ("-c", "clear.when=every-call", "-c", "compact.preset=default")
SECRETS = ("sk-ant-secret-key-1", "bearer-secret-2", "cookie-secret-3", "query-secret-4")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as server:
        yield server


def answers(client: Client) -> Any:
    """Return the server's answer to each request of these clients, by the number of replies."""

    def answer(received: Received) -> Answer:
        said = messages_of(json.loads(received.body))
        number = sum("Step " in json.dumps(message) for message in said)
        return Answer((client.answer(client.turns[number], number),), 200, EVENTS)

    return answer


def ask(proxy: ProxyCommand, client: Client, number: int, **headers: str) -> httpx2.Response:
    """Send request `number`, counted from 0."""
    body = [*replace(client, turns=client.turns[: number + 1]).bodies()][-1]
    return httpx2.post(proxy.url + client.path, json=body, headers=headers, timeout=60)


def play(proxy: ProxyCommand, client: Client) -> list[int]:
    return [ask(proxy, client, number).status_code for number in range(len(client.turns))]


def test_no_key_is_written(place: Place, server: Recorder) -> None:
    client = session_of("messages", 10)
    server.answer = answers(client)
    headers = {"x-api-key": SECRETS[0], "authorization": f"Bearer {SECRETS[1]}"}
    headers |= {"cookie": f"a={SECRETS[2]}"}
    with proxy_command(place, server.url, *EAGER) as proxy:
        for number in range(10):
            assert ask(proxy, client, number, **headers).status_code == 200
        httpx2.get(f"{proxy.url}/v1/models?key={SECRETS[3]}", headers=headers)
        for received in server.requests:
            assert received.header("x-api-key") == SECRETS[0]
            assert received.header("authorization") == f"Bearer {SECRETS[1]}"
        assert proxy.stop() == 0
    written = [path.read_bytes() for path in place.root.rglob("*") if path.is_file()]
    assert len(written) > 5
    found = [secret for secret in SECRETS if any(secret.encode() in data for data in written)]
    assert found == []


def test_commands_for_sessions_take_one_of_a_client(place: Place, server: Recorder) -> None:
    client = session_of("responses", 10)
    server.answer = answers(client)
    with proxy_command(place, server.url, *EAGER) as proxy:
        assert play(proxy, client) == [200] * 10
        (log,) = place.logs()
        id = log.parent.name
        for words, expected in (
            (("sessions", "list"), id),
            (("sessions", "show", id), "Count the whales."),
            (("sessions", "search", "whales"), id),
            (("sessions", "export", id), "Count the whales."),
            (("log", id), "clear: "),
            (("doctor", id), "ok"),
            (("compact", id, "--dry-run"), "tokens"),
            (("replay", str(log)), "$"),
        ):
            done = place.run(*words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
            assert expected in done.stdout, (words, done.stdout)


@pytest.mark.variants
@pytest.mark.parametrize("protocol", PATHS)
def test_command_that_no_file_has_is_not_cut(place: Place, server: Recorder, protocol: str) -> None:
    """Results are cleared, because files have them. The client's model could not read a command
    again.
    """
    client = session_of(protocol, 12)
    long = "; ".join(f"echo step {n} of the long command" for n in range(200))
    for place_of_turn, turn in enumerate(client.turns):
        call = replace(turn.calls[0], input={"command": f"{long} # {place_of_turn}"})
        client.turns[place_of_turn] = replace(turn, calls=(call,))
    server.answer = answers(client)
    with proxy_command(place, server.url, *EAGER, "-c", "truncate.at=1%") as proxy:
        assert play(proxy, client) == [200] * 12
        sent = server.requests[-1].body.decode()
        assert STUB in sent
        assert sent.count("echo step 199 of the long command") == 11


def test_an_undo_by_another_process_reaches_the_next_request(
    place: Place, server: Recorder
) -> None:
    client = session_of("chat", 12)
    server.answer = answers(client)
    with proxy_command(place, server.url, *EAGER) as proxy:
        for number in range(10):
            ask(proxy, client, number)
        edited = server.requests[-1].body.decode().count(STUB)
        assert edited > 0
        for _ in range(10):  # one act each
            done = place.run("compact", place.logs()[0].parent.name, "--undo")
            if done.returncode:
                break
        ask(proxy, client, 10)
        assert server.requests[-1].body.decode().count(STUB) < edited
        assert len(place.logs()) == 1
        assert proxy.errors.read_text() == ""


def test_a_full_disk_changes_nothing_for_the_client(place: Place, server: Recorder) -> None:
    client = session_of("messages", 8)
    server.answer = answers(client)
    with small_disk(place.state) as disk:
        proxy = ProxyCommand(place, server.url, inside=disk)
        proxy.start()
        for number in range(3):
            ask(proxy, client, number)
        disk.fill()
        for number in range(3, 6):
            assert ask(proxy, client, number).status_code == 200
            bodies = [*replace(client, turns=client.turns[: number + 1]).bodies()]
            assert json.loads(server.requests[-1].body) == bodies[-1]
        assert "No space left" in proxy.errors.read_text()
        disk.free()
        for number in range(6, 8):
            assert ask(proxy, client, number).status_code == 200
        logs = [*disk.path.glob("projects/*/sessions/*/log.jsonl")]
        results = [log.read_text().count('"tool_result"') for log in logs]
        assert max(results) == 7
        assert proxy.stop() == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_that_cannot_be_written_changes_nothing(place: Place, server: Recorder) -> None:
    client = session_of("messages", 3)
    server.answer = answers(client)
    place.state.mkdir()
    place.state.chmod(0o500)
    with proxy_command(place, server.url) as proxy:
        assert play(proxy, client) == [200] * 3
        sent = [json.loads(received.body) for received in server.requests]
        assert sent == [*client.bodies()]


def test_a_state_that_is_a_file_changes_nothing(place: Place, server: Recorder) -> None:
    client = session_of("messages", 3)
    server.answer = answers(client)
    place.state.mkdir()
    (place.state / "projects").write_text("")
    with proxy_command(place, server.url) as proxy:
        assert play(proxy, client) == [200] * 3
        sent = [json.loads(received.body) for received in server.requests]
        assert sent == [*client.bodies()]
        assert "forwarded a request unchanged" in proxy.errors.read_text()


@pytest.mark.full
def test_fifty_clients_at_once(place: Place, server: Recorder) -> None:
    protocols = [*PATHS]
    clients = [session_of(protocols[n % len(protocols)], 6, f"Count herd {n}.") for n in range(50)]
    by_task = {f"Count herd {n}.": answers(client) for n, client in enumerate(clients)}

    def answer(received: Received) -> Answer:
        text = received.body.decode()
        return next(by_task[task] for task in by_task if task in text)(received)

    server.answer = answer
    with proxy_command(place, server.url, *EAGER) as proxy, ThreadPoolExecutor(50) as pool:
        statuses = [*pool.map(lambda client: play(proxy, client), clients)]
        assert statuses == [[200] * 6] * 50
        assert proxy.errors.read_text() == ""
        assert len(place.logs()) == 50
        counts = {log.read_text().count('"kind": "tool_result"') for log in place.logs()}
        assert counts == {5}


def test_a_body_of_thirty_megabytes(place: Place, server: Recorder) -> None:
    client = session_of("chat", 3)
    server.answer = answers(client)
    large = "x" * (10 << 20)
    turns = [
        replace(turn, calls=(replace(turn.calls[0], result=f"{number}{large}"),))
        for number, turn in enumerate([*client.turns, client.turns[-1]])
    ]
    turns[3] = replace(turns[3], calls=())
    off = ("-c", "clear.when=off", "-c", "compact.mode=off", "-c", "move.above=off")
    with proxy_command(place, server.url, *off) as proxy:
        client = replace(client, turns=turns)
        server.answer = answers(client)
        for number in range(4):
            assert ask(proxy, client, number).status_code == 200
        assert len(server.requests[-1].body) > 30 << 20
        assert json.loads(server.requests[-1].body) == [*client.bodies()][-1]
        assert len(place.logs()) == 1


def test_a_port_that_is_taken_is_an_error(place: Place, server: Recorder) -> None:
    with proxy_command(place, server.url) as proxy:
        done = place.run("proxy", "--port", str(proxy.port))
        assert done.returncode == 2
        assert f"cannot listen on 127.0.0.1:{proxy.port}" in done.stderr


def test_the_start_prints_the_variables_for_a_client(place: Place, server: Recorder) -> None:
    with proxy_command(place, server.url) as proxy:
        assert proxy.process
        assert proxy.process.stdout
        _, *exports = [proxy.process.stdout.readline().strip() for _ in range(4)]
        assert exports == [
            f"export ANTHROPIC_BASE_URL={proxy.url}",
            f"export OPENAI_BASE_URL={proxy.url}/v1",
            f"export GOOGLE_GEMINI_BASE_URL={proxy.url}",
        ]
