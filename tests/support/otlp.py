"""An OpenTelemetry collector on loopback: it accepts traces and metrics by OTLP over HTTP."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Attributes = dict[str, Any]


class Span:
    """A span as the collector received it."""

    def __init__(self, sent: Any) -> None:
        self.name, self.id, self.parent = sent.name, sent.span_id, sent.parent_span_id
        self.trace, self.kind, self.failed = sent.trace_id.hex(), sent.kind, sent.status.code == 2
        self.seconds = (sent.end_time_unix_nano - sent.start_time_unix_nano) / 1e9
        self.attributes = attributes(sent.attributes)
        self.events = [(event.name, attributes(event.attributes)) for event in sent.events]


class Collector:
    """The received traces and metrics."""

    def __init__(self) -> None:
        self.bodies = list[bytes]()
        self.headers = list[dict[str, str]]()
        self.spans = list[Span]()
        self.metrics = dict[str, list[tuple[Attributes, float]]]()  # the newest sum of each
        self.resource: Attributes = {}
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.bodies.append(body)
        self.headers.append(headers)
        if path.endswith("/v1/traces"):
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = attributes(group.resource.attributes)
                self.spans += [Span(s) for scope in group.scope_spans for s in scope.spans]
        else:
            for sent in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in sent.scope_metrics:
                    for metric in scope.metrics:
                        self.metrics[metric.name] = list(points(metric))

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def total(self, metric: str, **wanted: str) -> float:
        """Return the sum of a metric over the points with these attributes; `__` in a name means a
        dot.
        """
        given = {name.replace("__", "."): value for name, value in wanted.items()}
        return sum(
            value for found, value in self.metrics.get(metric, []) if given.items() <= found.items()
        )


def points(metric: Any) -> Iterator[tuple[Attributes, float]]:
    for point in metric.sum.data_points:
        yield attributes(point.attributes), point.as_double or point.as_int
    for point in metric.histogram.data_points:
        yield attributes(point.attributes), point.sum


def attributes(sent: Any) -> Attributes:
    return {each.key: _value(each.value) for each in sent}


def _value(sent: Any) -> Any:
    kind = sent.WhichOneof("value")
    found = getattr(sent, kind)
    return [_value(each) for each in found.values] if kind == "array_value" else found


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector."""
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, dict(self.headers), body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
