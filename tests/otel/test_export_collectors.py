"""Busy, restarted, refusing, absent and silent collectors: each span is sent once, or counted as lost."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from tests.otel.collecting import Collecting
from tests.otel.sending import send, sender, spans, write
from tracellm.probes import probe
from tracellm.probes.export import sender as sender_module
from tracellm.probes.export.convert import Converter
from tracellm.probes.recording import Recording
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder

BAD_REQUEST = "Failed to export spans batch code: 400, reason: Bad Request"


@probe
def _work(n: int) -> int:
    return n


def test_a_busy_collector_is_asked_again(tmp_path: Path, collector: Collecting):
    """Spans refused with 503 or 429 are sent again; none is lost or sent twice."""
    collector.answers = [503, 429, 503]
    assert send(write(tmp_path, spans(5))) == (5, 0, [])
    assert [span.name for span in collector.spans] == ["0", "1", "2", "3", "4"]
    assert len(collector.headers) == 4


class Going(threading.Thread):
    """Sender of a recording under way; `end` ends it, and returns its account."""

    def __init__(self, traces: Path) -> None:
        self.sender = sender(traces)
        super().__init__(target=self.sender.run)
        self.start()

    def end(self) -> tuple[int, int, list[str]]:
        self.sender.end()
        self.join()
        return self.sender.account()


def test_a_collector_that_comes_back_gets_everything(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """During a run, spans wait for a collector longer than an exporter retries, and none is lost."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setattr(sender_module, "_AGAIN_SECONDS", 0.01)
    collector.answers = [503] * 20  # an exporter tries six times
    going = Going(write(tmp_path, spans(5)))
    for n in range(5):
        collector.wait_for(str(n))
    assert going.end() == (5, 0, [])


def test_one_batch_that_is_not_wanted_does_not_hold_up_others(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """During a run, a batch that fails twice, before and after a successful one, is lost."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.answers = [400, 200, 400]
    going = Going(write(tmp_path, spans(6)))
    collector.wait_for("5")
    assert going.end() == (4, 2, [BAD_REQUEST])
    assert sorted(span.name for span in collector.spans) == ["2", "3", "4", "5"]


def test_spans_that_are_not_wanted_are_counted(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """After a run, a refused batch is lost and counted; the next batches are sent."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.answers = [400, 200, 400]
    assert send(write(tmp_path, spans(7))) == (3, 4, [BAD_REQUEST])
    assert [span.name for span in collector.spans] == ["2", "3", "6"]


def test_a_collector_that_is_down_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without a collector the run ends normally, and all its spans are counted as lost with one reason."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:secret@127.0.0.1:{port}/")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    with Recording(tmp_path, script="script.py") as recording:
        for n in range(600):
            _work(n + 4)
    assert recording.stats["export"] == {
        "endpoint": f"http://127.0.0.1:{port}/v1/traces",
        "sent": 0,
        "lost": 601,
        "errors": ["Connection refused"],
    }
    assert len(RunFolder.open(tmp_path).trace.spans) == 601


class Service(TraceServiceServicer):
    """A collector for gRPC that keeps the names of spans."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:
        self.names += [span.name for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()


def test_spans_are_sent_by_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same spans arrive by gRPC; without a collector, the reason is the exporter's."""
    server = grpc.server(ThreadPoolExecutor(1))
    service = Service()
    add_TraceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    server.start()
    assert send(write(tmp_path, spans(3))) == (3, 0, [])
    server.stop(None).wait()
    assert service.names == ["0", "1", "2"]
    sent, lost, [error] = send(write(tmp_path, spans(3)))
    assert (sent, lost) == (0, 3)
    assert "UNAVAILABLE" in error


def test_a_collector_that_hangs_holds_nothing_up(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """An unresponsive collector does not keep a run from ending; unsent spans are counted as lost."""
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "200")
    collector.gate.clear()
    with Recording(tmp_path, script="script.py") as recording:
        for _ in range(5000):
            _work(1)
    export = recording.stats["export"]
    assert (export["sent"], export["lost"]) == (0, 5001)
    assert len(export["errors"]) == 1


def test_memory_is_bounded(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """Spans wait on disk for a slow collector; the sender holds no more than its queue's limit."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    one = sender(write(tmp_path, *([spans(64)] * 200)))
    held = []

    def _take(batch: list[Span]) -> bool:
        held.append(len(one._held))
        return True

    monkeypatch.setattr(one, "_export", _take)
    one.end()
    one.run()
    assert one.account() == (200 * 64, 0, [])
    assert max(held) == 100


def test_a_fault_of_ours_is_told(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """If the sender itself fails, its reason is reported unchanged, and every span is counted."""

    def _fail(self: Converter, span: Any) -> Any:
        raise TypeError("no such span")

    monkeypatch.setattr(Converter, "__call__", _fail)
    assert send(write(tmp_path, spans(5))) == (0, 5, ["TypeError: no such span"])
