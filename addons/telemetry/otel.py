"""OpenTelemetry: traces and metrics of this process, sent to a collector by OTLP over HTTP.

The standard variables `OTEL_*` configure the export. OpenTelemetry is imported only in
`open_telemetry`. If the program has set its own tracer or meter provider, that provider is used.
"""

import logging
import os
import threading
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ...api.base import UsageError, __version__
from ...api.models import canonical_id, resolve_model

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

NAME = "ctxagent"
MAX_FLUSH_S = 3.0  # maximum wait for the collector at the end of a session
TRACE_PARENT = "TRACEPARENT"  # the variable with the span of the parent process
# Names of providers in the semantic conventions that differ from ours.
PROVIDERS = {
    "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai", "gemini": "gcp.gemini",
    "mistral": "mistral_ai", "xai": "x_ai",
}  # fmt: skip
# Bounds of histograms, as recommended by the semantic conventions.
TOKEN_BOUNDS = [4**power for power in range(14)]
SECOND_BOUNDS = [0.01 * 2**power for power in range(16)]


class Telemetry:
    """The tracer and the instruments of this process."""

    def __init__(self) -> None:
        """Raises UsageError if the packages are not installed."""
        try:
            from opentelemetry import metrics, trace
            from opentelemetry.sdk import trace as _  # noqa: F401 - the API alone sends nothing
        except ImportError:
            hint = "Install them: pip install 'ctxagent[otel]'"
            raise UsageError("telemetry.on needs packages of an extra", hint=hint) from None
        _silence_exporters()
        self._traces = _own_provider(trace.get_tracer_provider()) or _trace_provider()
        self._metrics = _own_provider(metrics.get_meter_provider()) or _meter_provider()
        self.tracer: Tracer = self._traces.get_tracer(NAME, __version__)
        meter = self._metrics.get_meter(NAME, __version__)
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of model calls",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
        )  # fmt: skip
        self.seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Duration of model calls and turns",
            explicit_bucket_boundaries_advisory=SECOND_BOUNDS,
        )  # fmt: skip
        self.tool_seconds = meter.create_histogram(
            "ctxagent.tool.duration", "s", "Duration of tool calls",
            explicit_bucket_boundaries_advisory=SECOND_BOUNDS,
        )  # fmt: skip
        self.cost = meter.create_counter("ctxagent.cost", "USD", "Cost of model calls")
        self.compactions = meter.create_counter(
            "ctxagent.compactions", "{edit}", "Edits that make the context smaller"
        )
        self.saved = meter.create_counter(
            "ctxagent.compaction.tokens_saved", "{token}", "Tokens that these edits removed"
        )
        self.attempts = meter.create_counter(
            "ctxagent.fleet.attempts", "{attempt}", "Finished attempts at fleet tasks"
        )

    def begin(
        self,
        name: str,
        parent: "Context | None",
        attributes: Mapping[str, Any],
        *,
        began: float | None = None,
        is_request: bool = False,
    ) -> "Span":
        """Start a span, now or at `began`, in seconds since 1970. Attributes that are None are left
        out. Set `is_request` for a request to a server.
        """
        from opentelemetry.trace import SpanKind

        return self.tracer.start_span(
            name,
            parent,
            SpanKind.CLIENT if is_request else SpanKind.INTERNAL,
            without_none(attributes),
            start_time=None if began is None else int(began * 1_000_000_000),
        )

    def flush(self) -> None:
        """Send pending data, for at most MAX_FLUSH_S. Blocks."""
        sending = threading.Thread(target=self._send, name="telemetry", daemon=True)
        sending.start()
        sending.join(MAX_FLUSH_S)

    def _send(self) -> None:
        for provider in (self._traces, self._metrics):
            if hasattr(provider, "force_flush"):
                provider.force_flush()


def without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without those that are None."""
    return {name: value for name, value in attributes.items() if value is not None}


def end(span: "Span", *, is_error: bool) -> None:
    """End a span."""
    from opentelemetry.trace import StatusCode

    if is_error:
        span.set_status(StatusCode.ERROR)
    span.end()


@cache
def open_telemetry() -> Telemetry:
    """Return the telemetry of this process. Raises UsageError if the packages are not installed."""
    return Telemetry()


def parent_of(environ: Mapping[str, str]) -> "Context | None":
    """Return the context of the span in TRACEPARENT, or None."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if TRACE_PARENT not in environ:
        return None
    return TraceContextTextMapPropagator().extract({"traceparent": environ[TRACE_PARENT]})


def context_of(span: "Span") -> "Context":
    """Return the context for children of a span."""
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(span)


def trace_variables(span: "Span") -> dict[str, str]:
    """Return the environment variables that make the spans of another process children of a
    span.
    """
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = dict[str, str]()
    TraceContextTextMapPropagator().inject(carrier, context_of(span))
    passed = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    return {**passed, **{name.upper(): value for name, value in carrier.items()}}


def provider_of(model: str) -> str:
    """Return the name of a model's provider in the semantic conventions."""
    name = resolve_model(canonical_id(model)).provider.name
    return PROVIDERS.get(name, name)


def _own_provider(found: Any) -> Any:
    """Return a provider set by the program, or None for OpenTelemetry's placeholder."""
    return None if "Proxy" in type(found).__name__ else found


def _trace_provider() -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    if _is_wanted("OTEL_TRACES_EXPORTER"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _meter_provider() -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    readers = []
    if _is_wanted("OTEL_METRICS_EXPORTER"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    return MeterProvider(readers, resource=_resource(), shutdown_on_exit=False)


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    found = Resource.create({"service.version": __version__})
    is_named = not str(found.attributes["service.name"]).startswith("unknown_service")
    return found if is_named else found.merge(Resource({"service.name": NAME}))


def _is_wanted(variable: str) -> bool:
    return os.environ.get(variable, "otlp") != "none"


def _silence_exporters() -> None:
    """Keep logs of the exporters off the terminal, unless the program has set handlers."""
    logger = logging.getLogger("opentelemetry")
    if not logger.handlers and not logging.getLogger().handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
