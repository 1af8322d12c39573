"""The first start without a key, `/login` and `/logout`: the real command in a terminal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..e2e.test_replay_command import working
from ..support.command import Place
from ..support.server.chat import ChatServer
from ..support.server.loopback import Fail, Say, Server
from ..support.terminal.screen import Terminal

KEY = "test-key-1"
ASKS = "Choose a provider"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def served_by(place: Place, server: Server, provider: str = "anthropic") -> dict[str, str]:
    """The environment of a user without a key, with a provider at the server."""
    folder = place.root / "home" / ".config" / "ctxagent"
    folder.mkdir(parents=True, exist_ok=True)
    address = server.url + server.address_end
    (folder / "providers.toml").write_text(
        f'[{provider}]\naddress = "{address}"\nprotocol = "{server.protocol}"\n'
    )
    return place.environ()


@contextmanager
def begun(
    place: Place, env: dict[str, str], *words: str, columns: int = 80, rows: int = 24
) -> Iterator[Terminal]:
    terminal = Terminal(*words, cwd=place.project, env=env, columns=columns, rows=rows)
    try:
        yield terminal
    finally:
        terminal.child.close(force=True)


def leave(terminal: Terminal) -> None:
    terminal.type("/exit\r")
    assert terminal.leave() == 0


@pytest.mark.variants
@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_a_provider_its_key_and_a_first_task(place: Place, size: tuple[int, int]) -> None:
    columns, rows = size
    with Server([Fail(401, f"{KEY} is wrong"), Say("walrus"), Say("It is empty.")]) as server:
        env = served_by(place, server)
        with begun(place, env, columns=columns, rows=rows) as terminal:
            terminal.see(f"Step 1 of 3: {ASKS}")
            terminal.type("claude")
            terminal.see("❯ anthropic")
            terminal.type("\r")
            terminal.see("Step 2 of 3")
            assert "-5-5" not in terminal.text()  # no model is chosen yet
            terminal.type(f"{KEY}\r")
            terminal.see("the key was not accepted")
            assert KEY not in terminal.raw.decode()
            terminal.type(f"{KEY}\r")
            terminal.see("Step 3 of 3")
            terminal.keys("1. explain")
            terminal.type("1")
            terminal.see("It is empty.")
            leave(terminal)
        assert server.rejected == []
        assert {each["authorization"] for each in server.headers} == {f"Bearer {KEY}"}
        kept = place.state / "keys.json"
        assert json.loads(kept.read_text()) == {"keys": {"ANTHROPIC_API_KEY": KEY}}
        assert kept.stat().st_mode & 0o777 == 0o600
        assert KEY not in "".join(path.read_text() for path in place.logs())
    with Server([Say("Again.")]) as server:
        env = served_by(place, server)
        done = place.run("-p", "hello", env=env)
        assert (done.returncode, done.stdout) == (0, "Again.\n"), done.stderr
        with begun(place, env) as terminal:
            terminal.see("sonnet-5-5")
            terminal.type("/logout anthropic\r")
            terminal.see("removed the key of anthropic")
            leave(terminal)
            assert ASKS not in terminal.text()
        assert json.loads(kept.read_text()) == {"keys": {}}
    assert place.run("-p", "hello", env=env).returncode == 5


def test_a_form_that_was_skipped_comes_no_more(place: Place) -> None:
    with Server([]) as server:
        env = served_by(place, server)
        for skipped in (False, True):
            with begun(place, env) as terminal:
                if not skipped:
                    terminal.see(ASKS)
                    terminal.press("esc")
                    terminal.see("no key yet: run /login")
                terminal.see("sonnet-5-5")
                leave(terminal)
                assert ("Welcome" in terminal.text()) != skipped
                assert ("No key for the model" in terminal.text()) == skipped


def test_an_address_without_a_key_begins_with_the_form_and_with_sessions_of_others(
    place: Place,
) -> None:
    folder = place.root / "home/.claude/projects/-elsewhere"
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_bytes(working(14, 1_500))
    env = place.environ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "BROWSER": "true"})
    with begun(place, env, columns=120) as terminal:
        terminal.see("Your last session: $")
        terminal.see("With ctxagent $")
        terminal.keys("[s]how the page")
        terminal.type("s")
        terminal.see("history.html")
        terminal.see(f"Step 1 of 3: {ASKS}")
        terminal.type("claude")
        terminal.see("❯ anthropic")
        terminal.type("\r")
        terminal.see("create a key at https://console.anthropic.com/settings/keys")
        terminal.press("esc")
        terminal.see(ASKS)
        terminal.press("esc")
        terminal.see("no key yet")
        leave(terminal)
    assert "<html" in (place.state / "history/history.html").read_text()
    assert place.logs() == []


def test_a_comparison_that_ends_without_a_result_says_how_to_repeat_it(place: Place) -> None:
    folder = place.root / "home/.claude/projects/-elsewhere"
    folder.mkdir(parents=True)
    (folder / "broken.jsonl").write_text("{")
    with begun(place, place.environ(), columns=120) as terminal:
        terminal.see("run `ctxagent replay` in a shell to see it")
        terminal.see(f"Step 1 of 3: {ASKS}")
        terminal.press("esc")
        terminal.see("no key yet")
        leave(terminal)


@pytest.mark.parametrize("has", ["key", "script", "pipe"])
def test_no_form_where_something_is_chosen(place: Place, has: str) -> None:
    script = place.project / "script.json"
    script.write_text('{"steps": []}')
    more = {
        "key": {"ANTHROPIC_API_KEY": KEY},
        "script": {"CTXAGENT_MODEL_ID": f"scripted:{script}"},
        "pipe": {},
    }[has]
    env = place.environ(more)
    if has == "pipe":
        done = place.run("-p", "hello", env=env)
        assert done.returncode == 5
        assert "export ANTHROPIC_API_KEY" in done.stderr
    else:
        with begun(place, env) as terminal:
            terminal.see("ask ·" if has != "script" else "a scripted model")
            leave(terminal)
            assert ASKS not in terminal.text()
    assert not (place.state / "keys.json").exists()


def test_a_server_of_this_machine(place: Place) -> None:
    with ChatServer([Say("walrus"), Say("Hello.")]) as server:
        server.listed = [{"id": "qwen3"}]
        env = place.environ({"OLLAMA_BASE_URL": server.url + server.address_end})
        with begun(place, env, "say hello") as terminal:
            terminal.see("runs here")
            terminal.type("ollama\r")
            terminal.see("the key was not accepted")  # this one has a key
            terminal.type(f"{KEY}\r")
            terminal.see("using ollama/qwen3 from now on")
            terminal.see("Hello.")  # the first task was given: it is not asked for
            leave(terminal)
            assert "Step 3" not in terminal.text()
        assert server.rejected == []
        assert 'id = "ollama/qwen3"' in (place.root / "home/.config/ctxagent/agentrc").read_text()


def test_servers_of_this_machine_that_do_not_run_are_found_and_explained(place: Place) -> None:
    url = "http://127.0.0.1:9/v1"
    with begun(place, place.environ({"LLAMACPP_BASE_URL": url})) as terminal:
        terminal.see(ASKS)
        terminal.type("local llamacpp")
        terminal.see(f"llamacpp at {url}")
        terminal.see("no server")
        terminal.type("\r")
        terminal.see(f"no server of llamacpp at {url}. Start it")
        terminal.see("export LLAMACPP_BASE_URL")
        terminal.see(ASKS)
        terminal.press("esc")
        terminal.see("no key yet")
        leave(terminal)


def test_a_kept_key_that_is_refused_later_is_asked_for_again(place: Place) -> None:
    steps = [Fail(401, "revoked"), Say("walrus"), Say("Yes.")]
    with Server(steps) as server:
        env = served_by(place, server)
        place.state.mkdir()
        (place.state / "keys.json").write_text('{"keys": {"ANTHROPIC_API_KEY": "old-key-1"}}')
        with begun(place, env) as terminal:
            terminal.see("sonnet-5-5")
            terminal.type("hello\r")
            terminal.see("the anthropic key")
            terminal.type(f"{KEY}\r")
            terminal.see("the key is accepted")
            terminal.type("again\r")
            terminal.see("Yes.")
            leave(terminal)
        assert [each["authorization"].split()[1] for each in server.headers] == [
            "old-key-1",
            KEY,
            KEY,
        ]


def test_the_key_is_not_echoed_in_plain_lines(place: Place) -> None:
    with Server([Say("walrus")]) as server:
        env = served_by(place, server)
        with begun(place, env, "--plain") as terminal:
            terminal.see("No key for the model")
            for name, answer in (
                ("opneai", "Did you mean openai?"),
                ("walrus", "/login lists them."),
                ("ollama", "no server of ollama at http://127.0.0.1:"),
                ("bedrock", "`ctxagent models bedrock` shows what is missing"),
            ):
                terminal.type(f"/login {name}\r")
                terminal.see(answer)
            terminal.type("/login Claude\r")
            terminal.see("the anthropic key")
            terminal.type(f"{KEY}\r")
            terminal.see("the key is accepted")
            terminal.see("/settings model.small claude-haiku-5-5")
            assert KEY not in terminal.raw.decode()
            terminal.type("/settings model.small claude-haiku-5-5\r")
            terminal.see("saved in")
            leave(terminal)
