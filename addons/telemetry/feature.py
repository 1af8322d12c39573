"""Traces and metrics of a conversation, by the semantic conventions of OpenTelemetry for generative
AI.

There is a span for each turn (`invoke_agent`), model call (`chat`) and tool call (`execute_tool`).
Spans have names, counts and times; texts need the setting `telemetry.contents`.
"""

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

from ...api.base import UsageError
from ...api.extension import Feature, Output, ToolCall, Turn, TurnFinished
from ...api.models import text_of
from ...api.record import Assistant, Entry, Mask, Session, Summary, Usage, User
from ...api.session import AgentState
from . import otel

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

AGENT = "ctxagent"
TOOL_ERROR = "tool_error"
PROTOCOLS = ("", "http/protobuf")  # of OTEL_EXPORTER_OTLP_PROTOCOL


class TelemetryFeature(Feature):
    """Creates spans and metrics from the records of a conversation."""

    name = "telemetry"

    def __init__(self, agent: AgentState) -> None:
        """The turns of a subagent are children of its parent's turn. Raises UsageError if the
        packages are not installed.
        """
        super().__init__(agent)
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        if protocol not in PROTOCOLS:
            agent.warn_once(f"telemetry is sent by http/protobuf only, not by {protocol}")
        try:
            self._telemetry = otel.open_telemetry()
        except UsageError as error:
            message = f"there is no telemetry: {error.message}"
            raise UsageError(message, hint=error.hint) from None
        options = agent.options
        self._agent = agent.kind or AGENT
        self._parent = agent.parent.features.find(TelemetryFeature) if agent.parent else None
        self._environ = options.places.environ
        self._has_contents = options.settings.telemetry.contents
        # a name in place of the provider's: "custom" for a model of the program
        self._provider = "custom" if options.model else "scripted" if options.is_scripted else ""
        self.turn: Span | None = None
        self._usage = Usage()  # of the turn
        self._dollars: float | None = 0.0  # cost of the turn, None if a price is unknown
        self._began = 0.0  # Unix time of the start of the turn
        self._free_at = time.time()  # earliest start of the next model call
        self._words = ""  # the user's message for the next turn

    @property
    def _model(self) -> dict[str, Any]:
        model = self.session.model.id
        provider = self._provider or otel.provider_of(model)
        return {"gen_ai.provider.name": provider, "gen_ai.request.model": model}

    async def turn_started(self, turn: Turn) -> None:
        """Start the span of the turn."""
        self._usage, self._dollars, self._began = Usage(), 0.0, time.time()
        parent = self._parent.turn if self._parent else None
        self.turn = self._telemetry.begin(
            f"invoke_agent {self._agent}",
            otel.context_of(parent) if parent else otel.parent_of(self._environ),
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self._agent,
                "gen_ai.conversation.id": self.session.folder.name,
                "gen_ai.input.messages": self._content("user", self._words),
                **self._model,
            },
        )
        self._free_at = self._began

    async def turn_ended(self, finished: TurnFinished) -> None:
        """End the span of the turn."""
        span, self.turn = self.turn, None
        if span is None:
            return
        error = (finished.error or {}).get("type") if finished.status != "ok" else None
        span.set_attributes(
            otel.without_none(
                {
                    **_tokens(self._usage),
                    "gen_ai.output.messages": self._content("assistant", finished.text),
                    "ctxagent.cost_usd": self._dollars,
                    "ctxagent.status": finished.status,
                    "error.type": error,
                }
            )
        )
        otel.end(span, is_error=error is not None)
        more = {"gen_ai.operation.name": "invoke_agent", "error.type": error, **self._model}
        self._telemetry.seconds.record(time.time() - self._began, otel.without_none(more))

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Create the span of a finished tool call."""
        error = TOOL_ERROR if output.is_error else None
        result = self.session.context.redact(output).text if self._has_contents else None
        span = self._telemetry.begin(
            f"execute_tool {call.tool}",
            self._turn_context(),
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.tool,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.call.arguments": self._arguments(call),
                "gen_ai.tool.call.result": result,
                "error.type": error,
            },
            began=time.time() - seconds,
        )
        otel.end(span, is_error=error is not None)
        more = {"gen_ai.tool.name": call.tool, "error.type": error}
        self._telemetry.tool_seconds.record(seconds, otel.without_none(more))

    def recorded(self, entry: Entry) -> None:
        """Create the span of a model call when its reply is recorded, and count compactions."""
        if isinstance(entry, Assistant):
            self._add_call(entry)
        elif isinstance(entry, Mask):
            self._add_compaction(entry.layer, entry.tokens_before, entry.tokens_after)
        elif isinstance(entry, Summary):
            self._add_compaction("summary", entry.tokens_before, entry.tokens_after)
        elif isinstance(entry, User) and entry.begins_turn and self._has_contents:
            content = entry.content
            self._words = content if isinstance(content, str) else text_of(content)
        if not isinstance(entry, Session):
            self._free_at = time.time()

    async def before_call(self) -> None:
        """Note the start of a model call."""
        self._free_at = time.time()

    def _add_call(self, reply: Assistant) -> None:
        usage, now = Usage.from_json(reply.usage), time.time()
        self._usage += usage
        if self._dollars is not None:
            self._dollars = None if reply.cost_usd is None else self._dollars + reply.cost_usd
        same = {"gen_ai.operation.name": "chat", "gen_ai.response.model": reply.model}
        same |= self._model
        self._telemetry.begin(
            f"chat {self.session.model.id}",
            self._turn_context(),
            {
                **same,
                **_tokens(usage),
                "gen_ai.conversation.id": self.session.folder.name,
                "gen_ai.response.id": reply.message_id,
                "gen_ai.response.finish_reasons": [reply.stop_reason or ""],
                "gen_ai.output.messages": self._content("assistant", text_of(reply.content)),
                "ctxagent.purpose": reply.purpose,
                "ctxagent.cost_usd": reply.cost_usd,
            },
            began=self._free_at,
            is_request=True,
        ).end()
        telemetry, shared = self._telemetry, otel.without_none(same)
        telemetry.seconds.record(now - self._free_at, shared)
        for kind, count in (("input", usage.prompt), ("output", usage.output)):
            telemetry.tokens.record(count, {**shared, "gen_ai.token.type": kind})
        if reply.cost_usd is not None:
            telemetry.cost.add(reply.cost_usd, shared)

    def _add_compaction(self, layer: str, before: int, after: int) -> None:
        self._telemetry.compactions.add(1, {"ctxagent.layer": layer})
        self._telemetry.saved.add(max(0, before - after), {"ctxagent.layer": layer})
        if self.turn is not None:
            sizes = {"ctxagent.tokens_before": before, "ctxagent.tokens_after": after}
            self.turn.add_event("ctxagent.compaction", {"ctxagent.layer": layer, **sizes})

    def _turn_context(self) -> "Context | None":
        return otel.context_of(self.turn) if self.turn else None

    def _content(self, role: str, text: str) -> str | None:
        """Return a message in the format of the conventions, or None if texts must not be sent."""
        if not self._has_contents or not text:
            return None
        return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])

    def _arguments(self, call: ToolCall) -> str | None:
        if not self._has_contents:
            return None
        given = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
        return self.session.context.redact(Output(given)).text

    async def session_ended(self) -> None:
        """Send pending data."""
        if self._parent is None:
            await asyncio.to_thread(self._telemetry.flush)


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation,
    }
