"""A program that controls the command over many turns with lines of JSON."""

import base64
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctxagent.tools import image as images

from ..compaction.test_engine import RECORD
from ..support.command import PATIENCE, Place, comes, running
from ..support.server.loopback import Body, Fail, Say, Server
from ..support.sessions.setup import long_text

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json")
SLEEP = f"sleep 600.{os.getpid()}"  # like no other process
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Driver:
    """A program that has started the command and controls it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[Body] = []

    def send(self, line: Body | str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        self.process.stdin.flush()

    def say(self, text: str, **more: Any) -> None:
        self.send({"type": "user", "text": text, **more})

    def next(self, kind: str) -> Body:
        """Return the next line of this type."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))
            if self.lines[-1]["type"] == kind:
                return self.lines[-1]
        raise AssertionError(f"there is no {kind} in {self.lines}")

    def end(self) -> int:
        """End the input, read the rest and return the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.lines += map(json.loads, self.process.stdout)
        return self.process.wait(60)


@contextmanager
def talk(place: Place, url: str, *more: str) -> Iterator[Driver]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with place.start(*STREAM, *more, env=place.server(url), **pipes) as process:
        bound = threading.Timer(PATIENCE, process.kill)  # for what never ends
        bound.start()
        try:
            yield Driver(process)
        finally:
            bound.cancel()
            process.kill()


def batch(place: Place, server: Server, *lines: Body | str, more: tuple[str, ...] = ()) -> Any:
    """Send all lines at once, and return the output."""
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
    return place.run(*STREAM, *more, env=place.server(server.url), stdin=text)


def user(text: str) -> Body:
    return {"type": "user", "text": text}


def of_type(stdout: str, kind: str) -> list[Body]:
    return [line for line in map(json.loads, stdout.splitlines()) if line["type"] == kind]


def last_words(body: Body) -> str:
    return str(body["messages"][-1]["content"][0].get("text", ""))


def test_a_turn_and_a_result_for_each_message(place: Place) -> None:
    claude = {"type": "user", "message": {"role": "user", "content": "two"}, "session_id": "x"}
    blocks = {"message": {"content": [{"type": "text", "text": "three"}]}, "type": "user"}
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        done = batch(place, server, user("one"), "", claude, blocks)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["type"] == "session_opened"
    assert lines[-1]["type"] == "result"
    results = of_type(done.stdout, "result")
    assert [each["result"] for each in results] == ["One.", "Two.", "Three."]
    assert [each["turns"] for each in results] == [1, 2, 3]
    assert {each["session_id"] for each in results} == {lines[0]["session_id"]}
    assert [last_words(body) for body in server.requests] == ["one", "two", "three"]
    assert server.rejected == []
    entries = place.entries()
    assert sum(entry["kind"] == "end" for entry in entries) == 3


def test_a_driver_that_waits_for_each_result(place: Place) -> None:
    with Server([Say("One."), Say("Two.")]) as server, talk(place, server.url, "first") as driver:
        assert driver.next("result")["result"] == "One."
        driver.say("second")
        assert driver.next("result")["result"] == "Two."
        assert driver.end() == 0
        assert driver.lines[-1]["type"] == "result"
    assert [last_words(body) for body in server.requests] == ["first", "second"]


@pytest.mark.parametrize(
    ("line", "why", "hint"),
    [
        ("{", "it is not JSON", '{"type": "user"'),
        ("[1]", "not a JSON object", '{"type": "user"'),
        ('{"type": "walrus"}', "unknown type 'walrus'", '{"type": "user"'),
        ('{"type": "user"}', "text is missing", '{"type": "user"'),
        ('{"type": "user", "text": " "}', "the message is empty", "user"),
        ('{"type": "user", "text": "x", "steer": 1}', "steer is not true or false", "steer"),
        ('{"type": "user", "message": {"role": "assistant", "content": "x"}}', "role user", "user"),
        (
            '{"type": "user", "message": {"content": [{"type": "tool_result"}]}}',
            "a block of the type 'tool_result' is not supported",
            "text and image",
        ),
        (
            '{"type": "user", "message": {"content": [{"type": "image", "source":'
            ' {"type": "url"}}]}}',
            "the source of an image is not base64",
            "base64",
        ),
        (
            '{"type": "user", "message": {"content": [{"type": "image", "source":'
            ' {"type": "base64", "data": "AAAA"}}]}}',
            "has no supported format",
            "PNG",
        ),
        (
            '{"type": "answer", "id": "q9", "allow": true}',
            "no open question has the id 'q9'",
            "ones: none",
        ),
        ('{"type": "answer", "id": "q9"}', "allow is not true or false", "allow"),
        ('{"type": "answer", "id": "q9", "words": [1]}', "words is not a list of strings", "words"),
    ],
)  # fmt: skip
def test_invalid_line_is_reported_and_the_session_continues(
    place: Place, line: str, why: str, hint: str
) -> None:
    with Server([Say("One."), Say("Two.")]) as server:
        done = batch(place, server, user("one"), line, user("two"))
    assert done.returncode == 0, done.stderr
    (error,) = of_type(done.stdout, "error")
    assert error["line"] == 2
    assert why in error["message"]
    assert hint in error["hint"]
    assert len(of_type(done.stdout, "result")) == 2


def test_an_interrupt_with_nothing_to_interrupt(place: Place) -> None:
    with Server([Say("One.")]) as server, talk(place, server.url) as driver:
        driver.send({"type": "interrupt"})
        error = driver.next("error")
        assert (error["line"], error["message"]) == (1, "no turn is running")
        driver.say("one")
        assert driver.next("result")["result"] == "One."
        assert driver.end() == 0


def test_a_line_that_is_too_long(place: Place) -> None:
    long = json.dumps(user("x" * (33 << 20)))
    with Server([Say("One.")]) as server:
        done = batch(place, server, long, user("one"))
    assert done.returncode == 0, done.stderr
    (error,) = of_type(done.stdout, "error")
    assert (error["line"], error["message"]) == (1, "it has more than 32 MiB")
    assert len(server.requests) == 1


def test_empty_input_is_an_error(place: Place) -> None:
    with Server([Say("One.")]) as server:
        done = batch(place, server)
    (result,) = of_type(done.stdout, "result")
    assert (done.returncode, result["exit_code"], result["status"]) == (2, 2, "error")
    assert "no message arrived" in result["error"]["message"]
    assert server.requests == []


def test_stream_input_needs_stream_output(place: Place) -> None:
    done = place.run("-p", "--input-format", "stream-json", stdin="")
    assert done.returncode == 2
    assert "Add --output-format stream-json." in done.stderr


def test_an_interrupt_ends_the_turn_and_what_it_started(place: Place) -> None:
    sleeper = Say(tools=[("Bash", {"command": SLEEP})])
    with Server([sleeper, Say("Two.")]) as server:  # noqa: SIM117
        with talk(place, server.url, "--permission-mode", "bypass") as driver:
            driver.say("one")
            driver.say("two")
            assert comes(lambda: running(SLEEP) != [])
            driver.send({"type": "interrupt"})
            first = driver.next("result")
            assert (first["status"], first["exit_code"]) == ("interrupted", 130)
            assert driver.next("result")["result"] == "Two."
            assert comes(lambda: running(SLEEP) == [])
            assert driver.end() == 0
    assert server.rejected == []


def test_an_interrupt_of_a_message_that_has_not_begun(place: Place) -> None:
    with Server([Say("Two.")]) as server:
        done = batch(place, server, user("one"), {"type": "interrupt"}, user("two"))
    assert len(of_type(done.stdout, "result")) == 2
    assert done.returncode == 0
    assert of_type(done.stdout, "result")[-1]["result"] == "Two."


def test_commands_do_not_read_the_driver_s_input(place: Place) -> None:
    with Server([Say(tools=[("Bash", {"command": "cat; echo end"})]), Say("Done.")]) as server:  # noqa: SIM117
        with talk(place, server.url, "--permission-mode", "bypass") as driver:
            driver.say("go")
            assert driver.next("tool_finished")["text"].strip() == "end"
            assert driver.next("result")["result"] == "Done."
            assert driver.end() == 0


def test_steering_messages_go_to_the_running_turn(place: Place) -> None:
    steps = [Say(tools=[("Bash", {"command": "cat gate"})]), Say("Done.")]
    with Server(steps) as server:  # noqa: SIM117
        with talk(place, server.url, "--permission-mode", "bypass") as driver:
            os.mkfifo(place.project / "gate")
            driver.say("go")
            driver.next("tool_started")
            driver.say("and mind the walrus", steer=True)
            driver.send("nonsense")
            driver.next("error")  # so the line before it has been taken
            (place.project / "gate").write_text("open\n")
            said = driver.next("user_said")
            assert (said["text"], said["mid_turn"]) == ("and mind the walrus", True)
            assert driver.next("result")["result"] == "Done."
            assert driver.end() == 0
    assert "and mind the walrus" in json.dumps(server.requests[1]["messages"][-1])
    assert sum(line["type"] == "result" for line in driver.lines) == 1


def test_questions_go_to_the_program(place: Place) -> None:
    touch = [Say(tools=[("Bash", {"command": f"touch {name}"})]) for name in "abc"]
    with Server([*touch, Say("Done.")]) as server, talk(place, server.url) as driver:
        driver.say("go")
        first = driver.next("question")
        assert (first["tool"], first["input"]) == ("Bash", {"command": "touch a"})
        driver.send({"type": "answer", "id": first["id"], "allow": True})
        second = driver.next("question")
        assert second["id"] != first["id"]
        driver.send(
            {"type": "answer", "id": second["id"], "allow": False, "reason": "Not that one."}
        )
        third = driver.next("question")
        driver.send({"type": "answer", "id": third["id"], "allow": True, "rule": "Read("})
        assert "the rule cannot be added" in driver.next("error")["message"]
        driver.send({"type": "answer", "id": third["id"], "allow": True, "rule": third["rule"]})
        assert driver.next("result")["status"] == "ok"
        assert driver.end() == 0
    assert sorted(path.name for path in place.project.iterdir()) == ["a", "c"]
    assert "Not that one." in json.dumps(server.requests[2]["messages"][-1])


def test_rule_from_an_answer_allows_later_calls(place: Place) -> None:
    calls = [Say(tools=[("Bash", {"command": f"touch {name}"})]) for name in "ab"]
    with Server([*calls, Say("Done.")]) as server, talk(place, server.url) as driver:
        driver.say("go")
        id = driver.next("question")["id"]
        driver.send({"type": "answer", "id": id, "allow": True, "rule": "Bash(touch:*)"})
        driver.next("result")
        assert driver.end() == 0
    assert sum(line["type"] == "question" for line in driver.lines) == 1
    assert (place.project / "b").exists()


def test_questions_of_the_agent_are_forms(place: Place) -> None:
    colour = {"question": "Which colour?", "choices": [{"label": "red"}, {"label": "green"}]}
    ask = Say(tools=[("AskUser", {"questions": [colour]})])
    with Server([ask, Say("Red it is.")]) as server, talk(place, server.url) as driver:
        driver.say("go")
        question = driver.next("question")
        (form,) = question["form"]
        assert form["question"] == "Which colour?"
        assert [each["label"] for each in form["choices"]] == ["red", "green"]
        driver.send({"type": "answer", "id": question["id"], "words": ["red", "green"]})
        assert "needs 1 words, but got 2" in driver.next("error")["message"]
        driver.send({"type": "answer", "id": question["id"], "words": ["red"]})
        assert driver.next("result")["status"] == "ok"
        assert driver.end() == 0
    assert "Which colour? → red" in json.dumps(server.requests[1], ensure_ascii=False)


def test_answers_from_a_file_need_no_question(place: Place) -> None:
    (place.root / "answers.json").write_text('{"colour": "red"}')
    colour = {"question": "Which colour?", "choices": []}
    ask = Say(tools=[("AskUser", {"questions": [colour]})])
    with Server([ask, Say("Red it is.")]) as server:
        done = batch(place, server, user("go"), more=("--answers", "../answers.json"))
    assert done.returncode == 0, done.stderr
    assert of_type(done.stdout, "question") == []
    assert "Which colour? → red" in json.dumps(server.requests[1], ensure_ascii=False)


def test_after_the_end_of_the_input_nobody_can_be_asked(place: Place) -> None:
    with Server([Say(tools=[("Bash", {"command": "touch a"})]), Say("No.")]) as server:
        done = batch(place, server, user("go"))
    assert done.returncode == 3, done.stderr
    assert of_type(done.stdout, "result")[-1]["status"] == "denied"
    assert not (place.project / "a").exists()


def test_an_open_question_ends_with_the_input(place: Place) -> None:
    with Server([Say(tools=[("Bash", {"command": "touch a"})]), Say("No.")]) as server:  # noqa: SIM117
        with talk(place, server.url) as driver:
            driver.say("go")
            driver.next("question")
            assert driver.end() == 3
    assert "nobody can be asked" in json.dumps(server.requests[1])


def test_an_image_of_the_program(place: Place) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    with Server([Say("A pixel.")]) as server:
        done = batch(
            place, server, {"type": "user", "message": {"role": "user", "content": content}}
        )
    assert done.returncode == 0, done.stderr
    (sent,) = [b for b in server.requests[0]["messages"][0]["content"] if b["type"] == "image"]
    assert base64.b64decode(sent["source"]["data"]) == base64.b64decode(PIXEL)
    assert images.format_of(base64.b64decode(sent["source"]["data"])) == "PNG"
    assert server.rejected == []


def test_unusual_texts_are_normal_messages(place: Place) -> None:
    (place.project / "a.txt").write_text("alpha\n")
    with Server([Say("One."), Say("Two.")]) as server:
        done = batch(
            place, server, '{"type": "user", "text": "half \\ud83d of @a.txt"}', user("é🦭")
        )
    assert done.returncode == 0, done.stderr
    assert "alpha" in json.dumps(server.requests[0])
    assert last_words(server.requests[0]) == "half \ufffd of @a.txt"
    assert last_words(server.requests[1]) == "é🦭"


def test_each_result_has_to_fit_a_schema(place: Place) -> None:
    (place.root / "schema.json").write_text('{"type": "integer"}')
    steps = [Say("one"), Say("1"), Say("2"), Fail(401), Say("two"), Say("three")]
    with Server(steps) as server:
        lines = [user(text) for text in "abcd"]
        done = batch(place, server, *lines, more=("--json-schema", "../schema.json"))
    results = of_type(done.stdout, "result")
    assert [each["output"] for each in results] == [1, 2, None, None]  # no older one
    assert [each["exit_code"] for each in results] == [0, 0, 5, 1]
    assert done.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_turn_and_the_session(place: Place, number: signal.Signals) -> None:
    with Server([Say("Slow words that never end.", fault="silence", after=5)]) as server:  # noqa: SIM117
        with talk(place, server.url) as driver:
            driver.say("go")
            driver.say("later")
            driver.next("text_delta")
            driver.process.send_signal(number)
            result = driver.next("result")
            assert (result["status"], result["exit_code"]) == ("interrupted", 130)
            assert driver.process.wait(60) == 130
    assert len(server.requests) == 1


def test_death_of_the_driver_ends_everything(place: Place) -> None:
    """Its pipes close, so the turn ends with everything it started. The session can be resumed."""
    sleeper = Say(tools=[("Bash", {"command": SLEEP})])
    with Server([sleeper, Say("Resumed.")]) as server:
        with talk(place, server.url, "--permission-mode", "bypass") as driver:
            driver.say("go")
            assert comes(lambda: running(SLEEP) != [])
            opened = driver.next("session_opened")
            assert driver.process.stdin is not None
            assert driver.process.stdout is not None
            driver.process.stdin.close()
            driver.process.stdout.close()
            driver.process.wait(60)
            assert comes(lambda: running(SLEEP) == [])
        (end,) = [entry for entry in place.entries() if entry["kind"] == "end"]
        assert end["status"] == "interrupted"
        done = batch(place, server, user("go on"), more=("--resume", str(opened["session_id"])))
    assert done.returncode == 0, done.stderr
    assert of_type(done.stdout, "result")[0]["result"] == "Resumed."
    assert server.rejected == []


def test_a_program_compacts_the_session(place: Place) -> None:
    def step(body: Body) -> Say:
        is_summary = "## Session Intent" in json.dumps(body["messages"][-1])
        return Say(RECORD if is_summary else f"{long_text(3_000)} Done.")

    with Server(step) as server, talk(place, server.url) as driver:
        for text in ("one", "two", "three"):
            driver.say(text)
            assert driver.next("result")["status"] == "ok"
        asked = len(server.requests)
        driver.say("/uncompact")
        failed = driver.next("result")
        assert (failed["status"], failed["error"]["type"]) == ("error", "CompactionFailed")
        driver.say("/compact keep the numbers")
        result = driver.next("result")
        assert result["status"] == "ok", result
        assert result["result"].startswith("compacted: ")
        assert "keep the numbers" in json.dumps(server.requests[asked])
        driver.say("/uncompact")
        result = driver.next("result")
        assert result["result"].startswith("undone: "), result
        driver.say("/model other")
        assert driver.next("result")["error"]["type"] == "UsageError"
        driver.say("four")
        assert driver.next("result")["status"] == "ok"
        assert driver.end() == 0
