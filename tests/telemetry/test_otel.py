"""Telemetry of a process, in a program that has its own providers."""

import asyncio
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ctxagent import Agent
from ctxagent.addons.telemetry import otel
from ctxagent.agent.models.scripted import ScriptedModel, Step

from ..support.command import Place


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    measures = MeterProvider([InMemoryMetricReader()])
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: traces)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: measures)
    monkeypatch.setattr(otel, "open_telemetry", otel.open_telemetry.__wrapped__)
    return exporter


def test_a_program_gets_the_spans_in_its_own_provider(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    place = Place(tmp_path)
    errand = {"prompt": "Look.", "description": "Look around here", "type": "explore"}
    calls = [("Bash", {"command": "exit 3"}), ("Task", errand)]
    steps = [*(Step(tools=[call]) for call in calls), Step(text="Seen."), Step(text="Done.")]
    settings = {"telemetry.on": True, "permissions.mode": "bypass"}

    async def play() -> None:
        model = ScriptedModel(steps)
        environ = place.environ()
        async with Agent(place.project, model=model, settings=settings, environ=environ) as agent:
            assert (await agent.run("go")).status == "ok"

    asyncio.run(play())
    made = {span.name: span for span in spans.get_finished_spans()}
    turn, child = made["invoke_agent ctxagent"], made["invoke_agent explore"]
    assert child.parent is not None
    assert child.parent.span_id == turn.context.span_id
    failed = made["execute_tool Bash"]
    assert (failed.attributes or {})["error.type"] == "tool_error"
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert (turn.attributes or {})["gen_ai.provider.name"] == "custom"
    assert "ctxagent.cost_usd" not in (turn.attributes or {}), "its price is not known"


def test_names_of_providers_are_those_of_the_conventions() -> None:
    found = map(otel.provider_of, ("claude-sonnet-5-5", "xai/grok-9", "openrouter/a/b"))
    assert [*found] == ["anthropic", "x_ai", "openrouter"]
