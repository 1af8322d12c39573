"""The proxy is killed at any point of a session and started again: the client continues, and the
server's cache stays valid.
"""

import json
import random
import signal
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ctxagent.tests.support.command import Place
from ctxagent.tests.support.proxy.checks import prefix_of
from ctxagent.tests.support.proxy.clients import PATHS, REMINDER, Called, Client, Turn
from ctxagent.tests.support.proxy.command import ProxyCommand, proxy_command
from ctxagent.tests.support.proxy.recorder import Answer, Received, recorder

EVENTS = {"content-type": "text/event-stream"}
IS_QUESTION = b"context of this session is about to be compressed"
WINDOW = ("--context-window", "60000")
LONGEST_WAIT_S = 0.05  # before a kill at an unknown place


def turns_of_work(count: int) -> list[Turn]:
    """A task with a large result for each call."""
    turns = []
    for number in range(count):
        text = "".join(f"{number}.{line}: a line of the output\n" for line in range(250))
        call = Called(f"call_{number}", "Bash", {"command": f"look {number}"}, text)
        words = (REMINDER, "Count the whales.") if number == 0 else ()
        turns.append(Turn(words, text=f"Step {number}.", calls=(call,)))
    return turns


class KilledSession:
    """A session of `calls` calls through a proxy that is killed `kills` times."""

    def __init__(self, protocol: str, calls: int, kills: int, seed: int) -> None:
        self.client = Client(protocol, turns_of_work(calls), odd=False)
        self.rng = random.Random(seed)
        self.kills = sorted(self.rng.randrange(1, calls) for _ in range(kills))
        self.sent: list[dict[str, Any]] = []  # what the server got, without questions
        self.number = 0
        self.asked = threading.Event()

    def play(self, place: Place) -> None:
        with recorder(self._answer) as server, proxy_command(place, server.url, *WINDOW) as proxy:
            for number, body in enumerate(self.client.bodies()):
                self.number = number
                while self.kills and self.kills[0] == self.number:
                    self.kills.pop(0)
                    self._killed(proxy, body)
                self._ask(proxy, body)
            assert proxy.stop() == 0
            assert proxy.errors.read_text() == ""

    def _answer(self, received: Received) -> Answer:
        self.asked.set()
        turn = self.client.turns[self.number]
        if IS_QUESTION in received.body:
            turn = Turn(text="## Session Intent\nCount the whales.\n")
        else:
            self.sent.append(json.loads(received.body))
        data = self.client.answer(turn, self.number)
        cut = len(data) // 2
        return Answer((data[:cut], data[cut:]), 200, EVENTS)

    def _killed(self, proxy: ProxyCommand, body: dict[str, Any]) -> None:
        """Kill the proxy while it has a request, while the server has it, or about the time of the
        answer."""
        place = self.rng.choice(("request", "server", "answer", "end"))
        ask = threading.Thread(target=self._ask_in_vain, args=(proxy, body))
        self.asked.clear()
        ask.start()
        if place != "request":
            assert self.asked.wait(60)
        if place == "end":
            ask.join()
        else:
            time.sleep(self.rng.random() * LONGEST_WAIT_S * (place != "server"))
        proxy.stop(signal.SIGKILL)
        ask.join()
        proxy.start()

    def _ask_in_vain(self, proxy: ProxyCommand, body: dict[str, Any]) -> None:
        with suppress(httpx2.HTTPError):
            self._ask(proxy, body)

    def _ask(self, proxy: ProxyCommand, body: dict[str, Any]) -> None:
        url = proxy.url + self.client.path
        with httpx2.stream("POST", url, json=body, timeout=60) as answer:
            assert answer.status_code == 200
            for _ in answer.iter_raw():
                pass


def check_kills(place: Place, session: KilledSession) -> None:
    session.play(place)
    entries = place.entries()  # of the only session
    acts = sum(entry["kind"] in ("mask", "summary") for entry in entries)
    assert acts > 0
    breaks = sum(not prefix_of(*pair) for pair in pairwise(session.sent))
    assert breaks <= acts
    done = place.run("doctor", place.logs()[0].parent.name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.variants
@pytest.mark.parametrize("protocol", PATHS)
def test_client_continues_after_kills(protocol: str, tmp_path: Path) -> None:
    check_kills(Place(tmp_path), KilledSession(protocol, calls=24, kills=4, seed=1))
