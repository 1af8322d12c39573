"""`--json-schema FILE`: the result is JSON that fits the schema, or the exit code shows that it
does not.
"""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server
from ..support.server.wires import Wire, over_each_wire

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "ages": {"type": "array", "items": {"$ref": "#/$defs/age"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}
GOOD = '{"name": "walrus",\n "ages": [1, 2]}'
TOLD = "[The final answer of this turn is read by a program."


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return place


def run(place: Place, server: Server, *more: str, schema: str = "../schema.json") -> Any:
    return place.run(
        "-p", "go", "--json-schema", schema, *more, env=place.environ(server.variables)
    )


def times_told(body: Body) -> int:
    return json.dumps(body["messages"]).count(TOLD)


@pytest.mark.parametrize(
    "said", [GOOD, f"\n{GOOD}\n", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```\n"]
)
def test_the_document_alone_is_printed(place: Place, said: str) -> None:
    with Server([Say(said)]) as server:
        done = run(place, server)
    assert (done.returncode, done.stdout) == (0, GOOD + "\n"), done.stderr
    assert times_told(server.requests[0]) == 1
    assert server.rejected == []


def test_json_result_has_the_value_and_the_text(place: Place) -> None:
    with Server([Say(f"```json\n{GOOD}\n```")]) as server:
        done = run(place, server, "--output-format", "json")
    result = json.loads(done.stdout)
    assert result["result"] == f"```json\n{GOOD}\n```"
    assert result["output"] == {"name": "walrus", "ages": [1, 2]}
    assert (result["status"], result["exit_code"], result["error"]) == ("ok", 0, None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("It is a walrus.", "it is not JSON alone: Expecting value"),
        (f"Here it is:\n```json\n{GOOD}\n```", "it is not JSON alone"),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "it is not JSON alone"),
        ('{"name": "walrus", "ages": [1, -2]}', "/ages/1: -2 is less than the minimum of 0"),
        ('{"name": 7}', "/name: 7 is not of type 'string' (rule /properties/name/type)"),
        ("[]", "the document: [] is not of type 'object'"),
        ('{"name": NaN}', "NaN is no JSON"),
        ('{"name": 1e999}', "1e999 is too large a number"),
        ("".join(f"[{n}," for n in range(20_000)), "nested too deeply"),
    ],
)
def test_invalid_answer_is_explained_and_retried_once(place: Place, said: str, why: str) -> None:
    with Server([Say(said), Say(GOOD)]) as server:
        done = run(place, server)
    assert (done.returncode, done.stdout) == (0, GOOD + "\n"), done.stderr
    (again,) = [block["text"] for block in server.requests[1]["messages"][-1]["content"]]
    assert why in again
    assert '"additionalProperties": false' in again
    assert server.requests[0]["tools"] == server.requests[1]["tools"]
    assert server.rejected == []


@over_each_wire
def test_second_invalid_answer_fails_and_lists_the_problems(place: Place, wire: Wire) -> None:
    with wire([Say('{"name": 1}'), Say('{"name": 2}')]) as server:
        done = run(place, server)
        assert len(server.requests) == 2
    assert (done.returncode, done.stdout) == (1, "")
    assert "after 2 tries: /name: 2 is not of type 'string'" in done.stderr


def test_the_failed_result_as_json(place: Place) -> None:
    with Server([Say('{"name": 1}'), Say("nothing")]) as server:
        done = run(place, server, "--output-format", "stream-json")
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["exit_code"], result["output"]) == ("error", 1, None)
    assert result["error"]["type"] == "ResultError"
    assert result["result"] == "nothing"
    assert place.entries()[-1]["kind"] == "end"
    assert place.entries()[-1]["status"] == "error"


@pytest.mark.variants
@pytest.mark.parametrize(
    ("steps", "more", "code", "printed"),
    [
        ([Say(tools=[("Bash", {"command": "touch x"})]), Say("No."), Say("No.")], (), 3, ""),
        ([Say(tools=[("Bash", {"command": "touch x"})]), Say(GOOD)], (), 3, GOOD + "\n"),
        ([Say("No."), Say(GOOD)], ("--max-turns", "1"), 4, ""),
        ([Fail(401), Say(GOOD)], (), 5, ""),
    ],
)
def test_other_exit_codes_come_first(
    place: Place, steps: list[Any], more: tuple[str, ...], code: int, printed: str
) -> None:
    with Server(steps) as server:
        done = run(place, server, *more)
    assert (done.returncode, done.stdout) == (code, printed), done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("{", "it is not JSON"),
        ('{"type": "walrus"}', "'walrus' is not valid"),
        ('{"pattern": "("}', "is not a 'regex'"),
        ('{"properties": {"a": {"$ref": "#/$defs/none"}}}', "is not defined in the file"),
        ('{"$schema": 7}', "$schema 7 is not a known draft"),
        ('{"$schema": "https://example.com/mine"}', "is not a known draft"),
        ('{"$ref": "#"}', "refers to itself without end"),
        ('{"items": {"$ref": "file:///etc/passwd"}}', "is not defined in the file"),
        ('{"$ref": "schema.json"}', "is not defined in the file"),
        ('{"description": "' + "x" * 100_000 + '"}', "more than 100,000 bytes"),
    ],
)
def test_invalid_schema_ends_the_run_before_a_session_exists(
    place: Place, text: str | None, why: str
) -> None:
    if text is not None:
        (place.root / "bad.json").write_text(text)
    with Server([Say(GOOD)]) as server:
        done = run(place, server, "--output-format", "json", schema="../bad.json")
    assert done.returncode == 2
    assert why in json.loads(done.stdout)["error"]["message"]
    assert (server.requests, place.logs()) == ([], [])


def test_external_schema_is_never_fetched(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Server([Say(GOOD)]) as server:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/s.json"
        (place.root / "bad.json").write_text(json.dumps({"anyOf": [{}, {"$ref": url}]}))
        done = run(place, server, schema="../bad.json")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert done.returncode == 2
    assert "nothing is fetched" in done.stderr


def test_text_that_looks_like_a_reference_is_not_one(place: Place) -> None:
    schema = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "kind": {"const": {"$ref": "#/nowhere"}}},
        "allOf": [{"$ref": "https://json-schema.org/draft/2020-12/meta/core"}],
    }
    (place.root / "schema.json").write_text(json.dumps(schema))
    with Server([Say('{"$ref": "x"}')]) as server:
        done = run(place, server)
    assert done.returncode == 0, done.stderr


def test_resumed_session_keeps_its_schema_message_and_prefix(place: Place) -> None:
    with Server([Say(GOOD), Say(GOOD), Say("Free words.")]) as server:
        run(place, server)
        done = run(place, server, "--continue")
        assert done.stdout == GOOD + "\n"
        free = place.run("-p", "go", "--continue", env=place.server(server.url))
    assert free.stdout == "Free words.\n"
    assert [times_told(body) for body in server.requests] == [1, 1, 1]
    first, second, third = server.requests
    assert first["tools"] == second["tools"] == third["tools"]
    shared = first["messages"][0]["content"]
    assert [b["text"] for b in second["messages"][0]["content"]] == [b["text"] for b in shared]
    assert server.rejected == []


@pytest.mark.full
def test_schema_is_repeated_after_a_summary_during_a_turn(place: Place) -> None:
    """Useless summaries remove the schema from the context, and the model is told it again."""
    summaries, calls = list[Body](), list[Body]()

    def play(body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            summaries.append(body)
            return Say("nothing that is of use")
        calls.append(body)
        if len(summaries) >= 3 and times_told(body):
            return Say(GOOD)
        return Say(tools=[("Bash", {"command": f"seq -f 'words of it %g' {len(calls)} 900"})])

    with Server(play, strict=True, window=24_000) as server:
        done = run(place, server, "--context-window", "24000", "--permission-mode", "bypass")
    assert (done.returncode, done.stdout) == (0, GOOD + "\n"), done.stderr
    assert len(summaries) >= 3
    assert {times_told(body) for body in calls} <= {0, 1}
    assert server.rejected == []


def test_schema_needs_a_headless_run(place: Place) -> None:
    done = place.run("--json-schema", "../schema.json", "sessions", "list")
    assert done.returncode == 2
    assert "does not take --json-schema" in done.stderr
