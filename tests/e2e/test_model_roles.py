"""The models of a session by role, with the real command: the fallback, the plan mode model and the
small model.
"""

import re
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.chat import ChatServer
from ..support.server.loopback import Body, Fail, Say, Server
from ..support.terminal.screen import Terminal
from .test_two_models import FIRST, SECOND, thoughts, work

BUSY = ("-c", f"model.fallback={SECOND}", "-c", "model.overload_wait=1", "--model", FIRST)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def models(server: Server) -> list[str]:
    return [body["model"] for body in server.requests]


@pytest.mark.variants
@pytest.mark.parametrize("status", [429, 503, 529])
def test_the_fallback_answers_while_the_first_is_overloaded(place: Place, status: int) -> None:
    is_busy = False

    def step(body: Body) -> Say | Fail:
        return Fail(status, "Busy") if is_busy and body["model"] == FIRST else work(body)

    with Server(step, bound=True) as server:
        env = place.server(server.url)
        allow = ("--allow", "Bash(echo:*)")
        assert place.run(*BUSY, *allow, "-p", "one", env=env).returncode == 0
        assert {*models(server)} == {FIRST}
        is_busy = True
        done = place.run(*BUSY, *allow, "--continue", "-p", "two", env=env)
        assert (done.returncode, done.stdout) == (0, "Sonnet is done.\n"), done.stderr
        assert done.stderr.count(f"{SECOND} answers meanwhile ($2/10/0.1 per million") == 1
        assert thoughts(server.requests[-1]) == {"Sonnet"}
        is_busy = False
        done = place.run(*BUSY, *allow, "--continue", "-p", "three", env=env)
        assert done.stdout == "Opus is done.\n"
        assert models(server)[-1] == FIRST
        assert server.rejected == []
    changes = [entry["model"] for entry in place.entries() if entry["kind"] == "session"]
    assert changes[-1] == FIRST
    assert SECOND in changes
    told = place.run("replay", env=env).stdout
    rebuilt = re.search(r"(\d+) of (\d+) requests rebuilt byte for byte", told)
    assert rebuilt is not None
    assert rebuilt[1] == rebuilt[2]


@pytest.mark.variants
@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_a_fallback_at_work_is_on_the_status_line(place: Place, size: tuple[int, int]) -> None:
    def step(body: Body) -> Say | Fail:
        return Fail(529, "Busy") if body["model"] == FIRST else Say("Here.")

    with Server(step) as server:
        terminal = Terminal(
            *BUSY, cwd=place.project, env=place.server(server.url), columns=size[0], rows=size[1]
        )
        terminal.see("opus-5-5 · ask")
        terminal.type("hi\r")
        terminal.see("Here.")
        terminal.see("opus-5-5 (fallback sonnet-5-5) ·")
        terminal.type("/status\r")
        terminal.see("version")
        shown = " ".join(terminal.text().split())
        assert re.search(rf"overloaded {FIRST}, retried from [\d:]+ on; the fallback", shown)
        terminal.type(f"/model {FIRST}\r")
        terminal.see("opus-5-5 · ask")
        terminal.type("/exit\r")
        assert terminal.leave() == 0


def test_a_fallback_of_another_provider(place: Place) -> None:
    with Server(lambda body: Fail(529, "Busy")) as first, ChatServer([Say("Here.")]) as second:
        env = place.server(first.url) | second.variables | {"CTXAGENT_MODEL_ID": FIRST}
        chosen = ("-c", f"model.fallback={second.model}", "-c", "model.overload_wait=1")
        done = place.run(*chosen, "-p", "hi", env=env)
        assert (done.returncode, done.stdout) == (0, "Here.\n"), done.stderr
        assert second.rejected == []


def test_plan_mode_has_a_model_of_its_own(place: Place) -> None:
    with Server([Say("A plan."), Say("Done.")]) as server:
        env = place.server(server.url)
        chosen = ("-c", f"model.plan={SECOND}", "--model", FIRST)
        assert place.run(*chosen, "--permission-mode", "plan", "-p", "a", env=env).returncode == 0
        assert place.run(*chosen, "--continue", "-p", "b", env=env).returncode == 0
        assert models(server) == [SECOND, FIRST]


def test_model_of_a_role_without_a_price_refuses_a_budget(place: Place) -> None:
    with Server(lambda body: Fail(529, "Busy")) as server:
        chosen = ("-c", "model.fallback=walrus", "-c", "model.overload_wait=1")
        done = place.run(*chosen, "--max-budget-usd", "1", "-p", "a", env=place.server(server.url))
    assert "the price of walrus is not known" in done.stderr
    assert done.returncode != 0
