"""The real command with a model that repeats itself."""

import json
import signal
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

LIST = ("Bash", {"command": "ls nothing-there"})
FAILS = Say(tools=[LIST])
SENTENCE = "Let me look at the file again and think about it. "


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def calls(place: Place) -> int:
    return sum(entry["kind"] == "tool_result" for entry in place.entries())


def run(place: Place, server: Server, *more: str) -> tuple[int, Body]:
    done = place.run(
        "-p", "go", "--output-format", "json", "--permission-mode", "bypass", *more,
        env=place.server(server.url),
    )  # fmt: skip
    assert server.rejected == []
    return done.returncode, json.loads(done.stdout)


def test_a_repeated_call_ends_a_headless_run_with_exit_code_4(place: Place) -> None:
    with Server(lambda body: FAILS) as server:
        code, result = run(place, server)
    assert (code, result["exit_code"], result["status"]) == (4, 4, "limit")
    assert result["error"]["type"] == "LimitReached"
    assert "repeats itself: Bash ls nothing-there, 6 times" in result["error"]["message"]
    assert calls(place) == len(server.requests) == 6
    assert "You made the same call 3 times in a row" in json.dumps(server.requests[3])
    assert "This is a notice of the program" not in json.dumps(server.requests[2])


def test_a_reply_that_makes_one_call_many_times_runs_it_six_times(place: Place) -> None:
    counting = ("Bash", {"command": "echo x >> runs; false"})
    with Server(lambda body: Say(tools=[counting] * 20)) as server:
        code, result = run(place, server)
    assert (code, len(server.requests)) == (4, 2)
    assert "Bash echo x >> runs; false, 6 times" in result["error"]["message"]
    assert (place.project / "runs").read_text() == "x\n" * 6
    assert "the same call ran 6 times or more in a row" in json.dumps(server.requests[1])


def test_a_turn_that_ends_after_a_notice_without_an_answer_ends_with_exit_code_4(
    place: Place,
) -> None:
    with Server([*[FAILS] * 3, Say("The list is done.")]) as server:
        code, result = run(place, server)
    assert (code, result["status"], result["result"]) == (4, "limit", "The list is done.")
    assert result["error"]["type"] == "LimitReached"
    assert "without an answer after it had repeated itself" in result["error"]["message"]
    assert [entry["status"] for entry in place.entries() if entry["kind"] == "end"] == ["limit"]


def test_a_copied_notice_is_not_the_answer(place: Place) -> None:
    def play(body: Body) -> Say:
        sent = json.dumps(body["messages"])
        if "is no answer" in sent:
            return Say("There is no such file or directory.")
        if "Do not make this call again" in sent:
            return Say("Do not make this call again, and do not repeat this notice.")
        return FAILS

    with Server(play) as server:
        code, result = run(place, server)
    assert (code, result["result"]) == (0, "There is no such file or directory.")
    assert result["error"] is None


def test_a_broken_call_in_text_is_not_the_answer(place: Place) -> None:
    broken = Say('{{"name": "Bash", "arguments": {"command": "ls}}')
    with Server([Say(tools=[("Bash", {"command": "ls"})]), broken, broken]) as server:
        code, result = run(place, server)
    assert (code, result["status"], result["error"]["type"]) == (1, "error", "CallNotRun")
    assert "doctor --server" in result["error"]["message"]


def test_resumed_run_continues_the_count(place: Place) -> None:
    """The process is killed during a turn, and the model then makes the same call again."""
    hang = Say(tools=[LIST], fault="silence", after=0)
    with Server([FAILS] * 4 + [hang]) as server:
        process = place.start(
            "-p", "go", "--permission-mode", "bypass", env=place.server(server.url)
        )
        while len(server.requests) < 5:
            server.asked.wait(1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with Server(lambda body: FAILS) as server:
        code, _ = run(place, server, "--continue")
    assert code == 4
    assert calls(place) == 6


def test_only_the_subagent_that_repeats_itself_ends(place: Place) -> None:
    def play(body: Body) -> Say:
        sent = json.dumps(body["messages"])
        if "knock forever" in str(body["messages"][0]) and "The door" not in sent:
            return FAILS
        if "repeats itself" in sent:
            return Say("The subagent was stuck.")
        task = {"description": "knock", "prompt": "knock forever", "type": "general"}
        return Say(tools=[("Task", task)])

    with Server(play) as server:
        code, result = run(place, server)
    assert (code, result["result"]) == (0, "The subagent was stuck.")


def test_a_stream_that_repeats_is_cut(place: Place) -> None:
    with Server([Say(SENTENCE * 3_000, deltas=3_000), Say("Done.")]) as server:
        code, result = run(place, server)
    assert (code, result["result"]) == (0, "Done.")
    first = next(entry for entry in place.entries() if entry["kind"] == "assistant")
    assert first["stop_reason"] == "repetition"
    assert server.hung_up.is_set()
    assert len(json.dumps(server.requests[1])) < len(json.dumps(server.requests[0])) + 2_000


def test_without_the_feature_only_other_limits_count(place: Place) -> None:
    with Server([FAILS] * 9 + [Say("Done.")]) as server:
        code, result = run(place, server, "-c", "features.off=['loops']")
    assert (code, result["result"]) == (0, "Done.")


def test_the_user_is_asked_in_a_terminal(place: Place) -> None:
    with Server([*[FAILS] * 12, Say("Done.")]) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("The model repeats itself: Bash ls nothing-there, 6 times")
        terminal.see("2. Go on")
        terminal.type("2\r")
        terminal.see(
            lambda text: (
                "The model repeats itself: Bash ls nothing-there, 6 times" in text
                and text.count("● Bash") == 12
                and "1. Stop" in text
            )
        )
        terminal.type("1\r")
        terminal.see("❯")
        terminal.type("/exit\r")
        assert terminal.leave() == 0
    assert calls(place) == 12
    assert [entry["status"] for entry in place.entries() if entry["kind"] == "end"] == ["limit"]
    assert server.rejected == []
