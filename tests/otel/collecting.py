"""A small OpenTelemetry collector for tests: accepts OTLP over HTTP, and can be slow, busy or refusing."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

__all__ = ["Collecting", "collecting", "values"]


@dataclass
class Collecting:
    """Received requests, and the answers to give.

    Attributes:
        answers: status codes of the next requests for spans; 200 when there are no more.
        takes_metrics: whether the path of metrics exists.
        gate: while it is not set, requests for spans wait for their answer.
        headers: headers of the requests, in order.
    """

    port: int = 0
    answers: list[int] = field(default_factory=list)
    takes_metrics: bool = True
    gate: threading.Event = field(default_factory=threading.Event)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[ResourceSpans] = field(default_factory=list)
    metrics: dict[str, Metric] = field(default_factory=dict)
    came: threading.Condition = field(default_factory=threading.Condition)

    @property
    def endpoint(self) -> str:
        """The value for OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Span]:
        """The accepted spans."""
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]

    def wait_for(self, name: str) -> None:
        """Wait until a span of this name has arrived; after a timeout the test's next check fails."""
        with self.came:
            self.came.wait_for(lambda: any(span.name == name for span in self.spans), timeout=60)

    def take(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Answer a request."""
        if path == "/v1/metrics" and not self.takes_metrics:
            return 404, b""
        if path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
            return 200, b""
        self.gate.wait()
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            with self.came:
                self.resources += ExportTraceServiceRequest.FromString(body).resource_spans
                self.came.notify_all()
        return status, ExportTraceServiceResponse().SerializeToString()


@contextmanager
def collecting() -> Iterator[Collecting]:
    """Run a collector while the block runs."""
    state = Collecting()
    state.gate.set()

    class _Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status, answer = state.take(self.path, body)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.send_header("retry-after", "0")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    class _Server(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            """Ignore clients that did not wait for their answer."""

    with _Server(("127.0.0.1", 0), _Handler) as server:
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            state.gate.set()
            server.shutdown()
            thread.join()


def values(attributes: Iterator[KeyValue]) -> dict[str, object]:
    """Return OTLP attributes as a dict."""
    return {one.key: _value(one.value) for one in attributes}


def _value(value: object) -> object:
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]
    content = getattr(value, kind)
    return [_value(one) for one in content.values] if kind == "array_value" else content
