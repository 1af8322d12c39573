"""Servers that support only part of the Messages API: the task succeeds, and a second run sends no
request that was refused before.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.request_check import check_log
from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server, Step
from .test_compact import KEEP_LITTLE
from .test_images import png
from .test_mcp import SUMMARY

MODEL = ("--model", "claude-sonnet-5")  # whose requests ask for thinking


def lists_of_text(body: Body) -> bool:
    contents = [message["content"] for message in body["messages"]]
    return isinstance(body.get("system"), list) or any(
        isinstance(content, list) and all(block["type"] == "text" for block in content)
        for content in contents
    )


Lacks = tuple[Callable[[Body], bool], int, str]
LACKS: dict[str, Lacks] = {
    "cache_control": (
        lambda body: "cache_control" in json.dumps(body),
        400, "system.0.cache_control: Extra inputs are not permitted",
    ),
    "thinking": (lambda body: "thinking" in body, 422, "unknown field `thinking`"),
    "effort": (lambda body: "output_config" in body, 400, "output_config: unknown parameter"),
    "blocks": (lists_of_text, 400, "messages.0.content: Input should be a valid string"),
    "images": (
        lambda body: '"type": "image"' in json.dumps(body),
        500, "this model is missing data required for image input",
    ),
}  # fmt: skip


class Partial:
    """A server that refuses the features that it lacks, one after another. Its model runs a command
    first.
    """

    def __init__(self, lacks: list[Lacks]) -> None:
        self.lacks, self.refused = lacks, 0

    def __call__(self, body: Body) -> Step:
        for has, status, words in self.lacks:
            if has(body):
                self.refused += 1
                return Fail(status, words)
        said = json.dumps(body["messages"][-1]["content"])
        return Say("Done.") if "4711" in said else Say(tools=[("Bash", {"command": "echo 4711"})])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "shot.png").write_bytes(png(40, 30))
    return place


def ran(place: Place, server: Server, *more: str) -> None:
    done = place.run(
        "-p", "look at @shot.png", *MODEL, "--allow", "Bash", "-c", "model.effort=high", *more,
        env=place.server(server.url),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr


@pytest.mark.variants
@pytest.mark.parametrize("name", [*LACKS, "all"])
def test_missing_feature_is_learned_once(place: Place, name: str) -> None:
    script = Partial([*LACKS.values()] if name == "all" else [LACKS[name]])
    with Server(script, lenient=True) as server:
        ran(place, server)
        assert script.refused == len(script.lacks)
        ran(place, server)
        ran(place, server, "--continue")
    assert script.refused == len(script.lacks), "no request was refused a second time"
    for log in place.logs():
        check = check_log(log)
        assert check.holds, check.first


def test_server_that_refuses_without_a_reason(place: Place) -> None:
    """All optional parts are left out. Later requests contain them again, one after another, until
    the cause is found.
    """
    script = Partial([(has, 400, "Bad Request") for has, _, _ in (LACKS["thinking"],)])
    with Server(script, lenient=True) as server:
        for _ in range(3):
            ran(place, server, "-c", "model.images=off")
        assert script.refused == 2, "with everything, and with thinking alone"
        ran(place, server, "-c", "model.images=off")
    assert script.refused == 2
    assert "thinking" not in server.requests[-1]
    assert "cache_control" in json.dumps(server.requests[-1])
    (kept,) = json.loads((place.state / "servers.json").read_text()).values()
    assert [*kept["gaps"]] == ["thinking"]


def test_a_refusal_for_another_reason_stands(place: Place) -> None:
    with Server(lambda body: Fail(400, "the model is on holiday"), lenient=True) as server:
        done = place.run("-p", "go", *MODEL, env=place.server(server.url))
    assert done.returncode == 5
    assert "on holiday" in done.stderr
    sent = [json.dumps(body) for body in server.requests]
    with Server([Say("Yes.")]) as server:
        done = place.run("-p", "go", *MODEL, env=place.server(server.url))
        assert done.returncode == 0
        assert "cache_control" in json.dumps(server.requests[0]), "nothing was learned"
    assert len(sent) <= 5


def test_full_server_gets_everything(place: Place) -> None:
    with Server([Say("Yes.")]) as server:
        done = place.run("-p", "go", *MODEL, env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    body: dict[str, Any] = server.requests[0]
    assert "thinking" in body
    assert not (place.state / "servers.json").exists()


def test_the_doctor_asks_the_server(place: Place) -> None:
    """Sessions do not ask again for what the doctor found missing."""

    def answer(body: Body) -> Step:
        for has, status, words in (LACKS["cache_control"], LACKS["images"]):
            if has(body):
                return Fail(status, words)
        return Say(tools=[("ping", {"word": "walrus"})]) if body.get("tools") else Say("walrus")

    with Server(answer, lenient=True) as server:
        done = place.run(
            "-c", f"model.id={MODEL[1]}", "doctor", "--server", env=place.server(server.url)
        )
        assert done.returncode == 0, done.stderr
        told = dict(line[6:].split(": ", 1) for line in done.stdout.splitlines())
        asked = len(server.requests)
        script = Partial([LACKS["cache_control"], LACKS["images"]])
    assert told["answers"] == "supported"
    assert told["cache_control"].startswith("not supported: ")
    assert told["images"].startswith("not supported: ")
    assert told["thinking"] == "supported"
    assert told["tool calls"] == "supported"
    assert asked <= 9
    with Server(script, lenient=True) as server:
        kept = json.loads((place.state / "servers.json").read_text())
        (key,) = kept
        assert set(kept[key]["gaps"]) == {"cache", "images", "compaction"}


def test_a_server_of_the_messages_api_by_its_name(place: Place) -> None:
    """The key for the public API is not sent to it."""
    own = place.root / "home" / ".config" / "ctxagent" / "providers.toml"
    own.parent.mkdir(parents=True)
    with Server([Say("Yes."), Say("Yes.")]) as server:
        rows = [
            f'[{name}]\nprotocol = "messages"\naddress = "{server.url}"\n'
            for name in ("ollama", "lmstudio")
        ]
        own.write_text("".join(rows))
        env = place.environ({"ANTHROPIC_API_KEY": "test-key-1", "LM_API_TOKEN": "own-token-2"})
        for name in ("ollama", "lmstudio"):
            done = place.run("-p", "go", "--model", f"{name}/walrus", env=env)
            assert done.returncode == 0, done.stderr
    sent = [headers.get("authorization") for headers in server.headers]
    assert sent == ["Bearer none", "Bearer own-token-2"]
    assert [body["model"] for body in server.requests] == ["walrus", "walrus"]
    assert "test-key-1" not in str(server.headers)


def test_a_server_without_its_key(place: Place) -> None:
    env = place.environ({"ANTHROPIC_API_KEY": "test-key-1"})
    done = place.run("-p", "go", "--model", "openrouter/walrus", env=env)
    assert done.returncode == 5
    assert "OPENROUTER_API_KEY is not set" in done.stderr
    assert place.logs() == []


def test_model_in_the_user_s_models_toml(place: Place) -> None:
    """Its window and its prices are used. An invalid row is reported with its name."""
    own = place.root / "home" / ".config" / "ctxagent" / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[walrus]\nwindow = 32_000\noutput = 4_000\ninput_price = 1\noutput_price = 2\n")
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    with Server([Say("Yes.", usage=usage)]) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", "--model", "walrus", "--output-format", "json", env=env)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["cost_usd"] == pytest.approx(1.0)
    assert result["context"]["window"] == 32_000
    assert "thinking" not in server.requests[0]
    own.write_text("[walrus]\nwindow = 32_000\n")
    done = place.run("-p", "go", "--model", "walrus", env=env)
    assert done.returncode == 2
    assert "models.toml: [walrus] has no output" in done.stderr


def in_another_way(events: list[Body]) -> list[Body]:
    """Send a call's arguments in its first event, no usage, and a stop reason of another API at the
    end.
    """
    told, calls = list[Body](), dict[int, Body]()
    for event in json.loads(json.dumps(events)):
        event.pop("usage", None)
        event.get("message", {}).pop("usage", None)
        delta = event.get("delta", {})
        if delta.get("type") == "input_json_delta":
            calls[event["index"]]["input"] = json.loads(delta["partial_json"] or "{}")
            continue
        if event.get("content_block", {}).get("type") == "tool_use":
            calls[event["index"]] = event["content_block"]
        if reason := delta.get("stop_reason"):
            delta["stop_reason"] = {"tool_use": "tool_calls", "end_turn": "stop"}[reason]
        told.append(event)
    return told


def test_a_server_that_answers_in_its_own_way(place: Place) -> None:
    """No usage, arguments in one piece, stop reasons of another API, no list of models. The summary
    of such a server is used too.
    """

    def answer(body: Body) -> Step:
        last = body["messages"][-1]["content"]
        if is_summary_question(str(last[-1].get("text", ""))):
            return Say(SUMMARY, edit=in_another_way, deltas=1)
        if '"tool_result"' in json.dumps(last):
            return Say("Done.", edit=in_another_way, deltas=1)
        return Say(tools=[("Bash", {"command": "seq 3000"})], edit=in_another_way, deltas=1)

    with Server(answer) as server:
        env = place.server(server.url)
        for n in range(2):
            more = ("--continue",) if n else ()
            done = place.run("-p", "go", *more, "--model", "walrus", "--allow", "Bash", env=env)
            assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        done = place.run(*KEEP_LITTLE, "-c", "model.id=walrus", "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    (summary,) = (entry for entry in place.entries() if entry["kind"] == "summary")
    assert "Call it again and again." in summary["text"], "that of the model, not of records"


@pytest.mark.variants
@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: `thinking` blocks in the latest message cannot be modified",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        "tools.0.name: Input should be a valid string",
        "bad",
    ],
)
def test_wrong_use_of_a_feature_does_not_disable_it(place: Place, words: str) -> None:
    with Server(lambda body: Fail(400, words), lenient=True) as server:
        done = place.run("-p", "go", *MODEL, env=place.server(server.url))
    assert (done.returncode, len(server.requests)) == (5, 3), "also plain, and a tiny request"
    assert words in done.stderr
    assert not (place.state / "servers.json").exists()
