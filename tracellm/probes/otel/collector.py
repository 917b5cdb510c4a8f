"""A collector, as whoever sends it spans sees it: it takes them, it does not answer, or it does not want them.

The official exporters do the work: they encode, compress, and try again when a collector is down or asks to be left
alone for a moment. They say no more than that something failed, so what was answered is watched where it comes in.
"""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tracellm.probes.otel.settings import GRPC

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace import ReadableSpan
    from requests import Session

__all__ = ["Answers", "Collector", "Outcome", "listen_to_logs", "metric_exporter"]

_AGAIN = {408, 429, 502, 503, 504}
"""HTTP status codes by which a collector asks for the same once more (the OTLP specification)."""

_AGAIN_GRPC = frozenset(
    ("CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")
)


_GRPC_LOG = "opentelemetry.exporter.otlp.proto.grpc"


class Outcome(Enum):
    """What became of spans."""

    TAKEN = "taken"
    AGAIN = "nobody answered, or asked for them later"
    REFUSED = "they are not wanted, and will not be"


class Answers:
    """What a collector has answered.

    Attributes:
        tried: requests since `begin`.
        again: whether the last answer, or there being none, is a reason to send the same once more.
        refused: the connection itself was refused: nobody is there.
        reason: why the last request was not taken, in a few words; empty when it was.
        heard: whether anything was ever answered, or refused.
        rejected: spans, or measurements, that the collector took a request with, and threw away.
        rejection: why.
    """

    def __init__(self) -> None:
        self.begin()
        self.reason = self.rejection = ""
        self.heard = False
        self.rejected = 0

    def begin(self) -> None:
        """The next request is about to be sent."""
        self.tried = 0
        self.again = True
        self.refused = False

    def status(self, code: int, body: bytes) -> None:
        """An HTTP answer."""
        self.tried += 1
        self.heard = True
        self.refused = False
        self.again = code in _AGAIN
        if code >= 400:
            phrase = {one.value: one.phrase for one in HTTPStatus}.get(code, "")
            self.reason = f"it answered {code} {phrase}".rstrip()
        else:
            self.reason = ""
            self._look_into(body)

    def failed(self, error: BaseException) -> None:
        """No answer came."""
        self.tried += 1
        self.heard = True
        self.again = True
        causes = list(_causes(error))
        self.refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes)
        told = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None)
        late = any("Timeout" in type(cause).__name__ for cause in causes)
        self.reason = told or ("it did not answer in time" if late else type(error).__name__)

    def logged(self, message: str) -> None:
        """What a gRPC exporter says of an attempt that failed: there is no other way to hear of it."""
        code = re.search(r"StatusCode\.([A-Z_]+)(?:.*?[Dd]etails: ([^:\n]*))?", message)
        if code is not None:
            self.tried += 1
            self.heard = True
            self.again = code[1] in _AGAIN_GRPC
            self.refused = "refused" in message
            self.reason = "Connection refused" if self.refused else f"it answered {code[1]} {code[2] or ''}".rstrip()

    def _look_into(self, body: bytes) -> None:
        if not body:
            return
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        with suppress(Exception):  # what a collector says besides is its own business
            # Of metrics the answer has another name, and the same form.
            told = ExportTraceServiceResponse.FromString(body).partial_success
            if told.rejected_spans > 0:
                self.rejected += told.rejected_spans
                self.rejection = f"it took a request and rejected some of it: {told.error_message[:200]}"


class Collector:
    """Sends spans by the protocol that was asked for, and watches what comes of it.

    Raises:
        ImportError: the exporter for this protocol is not installed.
    """

    def __init__(self, protocol: str) -> None:
        self.answers = Answers()
        if protocol == GRPC:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

            self._exporter: Any = GrpcExporter()
            listen_to_logs("traces", self.answers)
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            self._exporter = OTLPSpanExporter(session=_watched(self.answers))

    def send(self, spans: Sequence["ReadableSpan"]) -> Outcome:
        """Send them in one request, again and again for as long as the exporter's timeout allows."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.answers.begin()
        reason = "they cannot be sent in one request"  # too large, or impossible to encode
        try:
            if self._exporter.export(spans) is SpanExportResult.SUCCESS:
                self.answers.reason = ""
                return Outcome.TAKEN
        except Exception as error:  # older exporters raise where nobody answers
            reason = f"{type(error).__name__}: {error}"
        if not self.answers.tried:
            self.answers.reason = reason
            return Outcome.REFUSED
        return Outcome.AGAIN if self.answers.again else Outcome.REFUSED


def metric_exporter(protocol: str, answers: Answers) -> "MetricExporter":
    """The exporter of metrics by this protocol.

    Raises:
        ImportError: it is not installed.
    """
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        listen_to_logs("metrics", answers)
        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(session=_watched(answers))


def listen_to_logs(signal: str, answers: Answers) -> None:
    """Tell `answers` what the gRPC exporter of `traces` or `metrics` says in its log, which is one for both."""

    class _Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if re.search(rf"\bexport(ing)? {signal}\b", message):
                answers.logged(message)

    logging.getLogger(_GRPC_LOG).addHandler(_Hears())
    logging.getLogger(
        f"{_GRPC_LOG}.exporter"
    ).filters.clear()  # it keeps back what it has just said: each attempt counts


def _watched(answers: Answers) -> "Session":
    """A session of HTTP requests that tells `answers` how each ended."""
    import requests

    class _Session(requests.Session):
        def send(self, request: Any, **options: Any) -> Any:
            try:
                response = super().send(request, **options)
            except Exception as error:
                answers.failed(error)
                raise
            answers.status(response.status_code, response.content)
            return response

    return _Session()


def _causes(error: BaseException | None) -> Any:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
