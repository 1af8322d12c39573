"""Traces and metrics from the real command to a collector on loopback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.fleet import Fleet
from ..support.otlp import Collector, collecting
from ..support.server.loopback import Say, Server

ON = ("-c", "telemetry.on=true")
KEY = "collector-key-4711"
WORDS = "Look into the walrus house"
COMMAND = "echo walrus-pond"
PRICED = ("--model", "claude-sonnet-5-5", "--permission-mode", "bypass")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def environ(place: Place, server: Server, collector: Collector) -> dict[str, str]:
    return {
        **place.server(server.url),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={KEY}",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }


def task(place: Place, collector: Collector, *more: str, said: str = "It swims.") -> str:
    """Run a task with one call. Return the environment of the call's command."""
    steps = [Say(tools=[("Bash", {"command": f"{COMMAND}; env > seen"})]), Say(said)]
    with Server(steps) as server:
        env = environ(place, server, collector)
        done = place.run("-p", WORDS, *PRICED, *more, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return (place.project / "seen").read_text()


def test_a_turn_is_a_span_with_its_calls_and_nothing_that_was_said(place: Place) -> None:
    with collecting() as collector:
        seen = task(place, collector, *ON)
    (turn,) = collector.named("invoke_agent ctxagent")
    chats = collector.named("chat claude-sonnet-5-5")
    (tool,) = collector.named("execute_tool Bash")
    assert {span.parent for span in (*chats, tool)} == {turn.id}
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["ctxagent.status"] == "ok"
    assert [c.attributes["gen_ai.response.finish_reasons"] for c in chats] == [
        ["tool_use"], ["end_turn"],
    ]  # fmt: skip
    assert {c.attributes["gen_ai.provider.name"] for c in chats} == {"anthropic"}
    assert tool.attributes["gen_ai.tool.name"] == "Bash"
    assert (turn.failed, tool.failed) == (False, False)
    replies = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    output = sum(reply["usage"]["output"] for reply in replies)
    assert turn.attributes["gen_ai.usage.output_tokens"] == output
    paid = sum(reply["cost_usd"] for reply in replies)
    assert turn.attributes["ctxagent.cost_usd"] == pytest.approx(paid)
    assert collector.total("ctxagent.cost") == pytest.approx(paid)
    counted = collector.total("gen_ai.client.token.usage", gen_ai__token__type="output")
    assert counted == output
    assert collector.total("ctxagent.tool.duration", gen_ai__tool__name="Bash") > 0
    assert collector.resource["service.name"] == "ctxagent"
    assert collector.resource["deployment.environment.name"] == "test"
    assert all(headers["api-key"] == KEY for headers in collector.headers)
    sent = b"".join(collector.bodies)
    for secret in (WORDS, "walrus", "It swims", str(place.root), place.project.name, KEY):
        assert secret.encode() not in sent, secret
    assert KEY not in seen, "commands do not get the key of the collector"


def test_texts_leave_only_if_a_setting_says_so_and_then_without_secrets(place: Place) -> None:
    with collecting() as collector:
        task(place, collector, *ON, "-c", "telemetry.contents=true", said=f"It swims. {KEY}")
    (turn,) = collector.named("invoke_agent ctxagent")
    (tool,) = collector.named("execute_tool Bash")
    (message,) = json.loads(turn.attributes["gen_ai.input.messages"])
    assert message == {"role": "user", "parts": [{"type": "text", "content": WORDS}]}
    assert "It swims." in turn.attributes["gen_ai.output.messages"]
    assert COMMAND in tool.attributes["gen_ai.tool.call.arguments"]
    assert tool.attributes["gen_ai.tool.call.result"].startswith("walrus-pond")
    assert KEY.encode() not in b"".join(collector.bodies)


def test_nothing_is_sent_by_default_nor_because_a_project_says_so(place: Place) -> None:
    (place.project / ".agentrc").write_text("[telemetry]\non = true\n")
    with collecting() as collector, Server([Say("Well.")]) as server:
        done = place.run("-p", WORDS, *PRICED, env=environ(place, server, collector))
    assert (done.returncode, done.stdout) == (0, "Well.\n")
    assert "telemetry.on" in done.stderr
    assert collector.bodies == []


def test_no_add_on_is_imported_when_it_is_off(place: Place) -> None:
    program = (
        "import asyncio, sys\n"
        "from ctxagent import Agent\n"
        "async def main():\n"
        "    async with Agent('.') as agent:\n"
        "        await agent.run('go')\n"
        "asyncio.run(main())\n"
        "print([m for m in sys.modules if m.startswith(('ctxagent.addons', 'opentelemetry.sdk'))])"
    )
    with Server([Say("Well.")]) as server:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=place.project, env=place.server(server.url),
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr


def test_a_collector_that_is_dead_does_no_harm(place: Place) -> None:
    with collecting() as collector:
        pass
    task(place, collector, *ON)


@pytest.mark.full
def test_a_fleet_is_one_trace(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.tasks(2)
    with collecting() as collector, Server([Say("Done.")] * 2) as server:
        env = environ(fleet.place, server, collector)
        env["TRACEPARENT"] = f"00-{'ab' * 16}-{'cd' * 8}-01"
        done = fleet.place.run(*PRICED, *ON, "fleet", "run", "--yes", "tasks.jsonl", env=env)
    assert done.returncode == 0, done.stderr
    (run,) = collector.named("invoke_workflow ctxagent fleet")
    attempts = collector.named("attempt")
    turns = collector.named("invoke_agent ctxagent")
    assert {span.trace for span in collector.spans} == {"ab" * 16}
    assert run.parent.hex() == "cd" * 8
    assert [span.parent for span in attempts] == [run.id] * 2
    assert sorted(turn.parent for turn in turns) == sorted(span.id for span in attempts)
    assert {a.attributes["ctxagent.fleet.task"] for a in attempts} == {"t0", "t1"}
    assert {a.attributes["ctxagent.result"] for a in attempts} == {"done"}
    assert collector.total("ctxagent.fleet.attempts", ctxagent__result="done") == 2
    assert b"Task 0" not in b"".join(collector.bodies)
