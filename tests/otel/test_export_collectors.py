"""Collectors with moods: busy, back again, unwilling, down, silent. Each span is sent once, or counted as lost."""

import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tracellm.probes.otel.follow import PIECE

from tests.otel.collecting import Collecting
from tests.otel.sending import send, spans, write
from tracellm.probes import probe
from tracellm.probes.otel.collector import Answers, listen_to_logs
from tracellm.probes.otel.convert import Converter
from tracellm.probes.otel.sender import Sender
from tracellm.probes.otel.settings import settings
from tracellm.probes.session import Recording
from tracellm.trace.run_folder import RunFolder


@probe
def _work(n: int) -> int:
    return n


def test_a_busy_collector_is_asked_again(tmp_path: Path, collector: Collecting):
    """Spans that a collector cannot take now, by 503 or 429, are sent again; none is lost or sent twice."""
    collector.answers = [503, 429, 503]
    assert send(write(tmp_path, spans(5))) == (5, 0, [])
    assert [span.name for span in collector.spans] == ["0", "1", "2", "3", "4"]
    assert len(collector.headers) == 4


def test_a_collector_that_comes_back_gets_everything(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """While a run goes on, spans wait for a collector longer than an exporter tries: the first are not given up."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.answers = [503] * 20  # an exporter tries six times
    assert send(write(tmp_path, spans(5))) == (5, 0, [])
    assert [span.name for span in collector.spans] == ["0", "1", "2", "3", "4"]


def test_spans_that_are_not_wanted_are_counted(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """A batch that a collector refuses is lost, which is told with its reason, once; the next batches are sent."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.answers = [400, 200, 400]
    assert send(write(tmp_path, spans(7))) == (3, 4, ["it answered 400 Bad Request"])
    assert [span.name for span in collector.spans] == ["2", "3", "6"]


def test_spans_that_are_thrown_away_are_counted(tmp_path: Path, collector: Collecting):
    """A collector that takes a request and rejects some of its spans says so, and so do we."""
    collector.rejects = 2
    assert send(write(tmp_path, spans(5))) == (3, 2, ["it took a request and rejected some of it: not these"])


def test_a_collector_that_is_down_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where nobody listens the run goes on and ends; all its spans are counted as lost, with one reason."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:secret@127.0.0.1:{port}/")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
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


def test_a_collector_that_hangs_holds_nothing_up(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """A collector that does not answer does not keep a run from ending; what is not sent is counted as lost."""
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "200")
    collector.gate.clear()
    with Recording(tmp_path, script="script.py") as recording:
        for _ in range(5000):
            _work(1)
    told = recording.stats["export"]
    assert (told["sent"], told["lost"]) == (0, 5001)
    assert len(told["errors"]) == 1


def test_memory_is_bounded(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """What a slow collector has not taken waits on disk: no more is read than the queue may hold."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    files = write(tmp_path, *([spans(64)] * 200))
    wanted = settings(os.environ)
    assert wanted is not None
    assert wanted.batch == 100
    one = Sender(files, wanted)
    held = []

    def _take() -> None:
        held.append(len(one._held))
        one._held.clear()

    monkeypatch.setattr(one, "_send", _take)
    one.wait_from_now()
    one.run()
    assert sum(held) == 200 * 64
    assert max(held) < 100 + 64 + PIECE / ((tmp_path / "main-1.jsonl").stat().st_size / (200 * 64))


def test_what_has_gone_well_since_is_not_told():
    """A collector that was busy once and has taken everything since is no reason for anything."""
    answers = Answers()
    answers.status(503, b"")
    assert answers.reason == "it answered 503 Service Unavailable"
    answers.status(200, b"")
    assert answers.reason == ""


def test_spans_and_metrics_are_told_apart_by_grpc(monkeypatch: pytest.MonkeyPatch):
    """The gRPC exporters have one log: that metrics are not wanted is no reason to give up spans, nor the reverse."""
    log = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc")
    monkeypatch.setattr(log, "handlers", [])
    traces, metrics = Answers(), Answers()
    listen_to_logs("traces", traces)
    listen_to_logs("metrics", metrics)
    log.error("Failed to export %s to %s, error code: %s", "metrics", "here:4317", "StatusCode.UNIMPLEMENTED")
    assert (traces.tried, metrics.tried, metrics.again) == (0, 1, False)
    transient = "Transient error %s encountered while exporting %s to %s, retrying in 1s."
    log.warning(transient, "StatusCode.UNAVAILABLE", "traces", "here:4317")
    assert (traces.tried, traces.again, metrics.tried) == (1, True, 1)


def test_each_attempt_by_grpc_is_heard(monkeypatch: pytest.MonkeyPatch):
    """The exporter's log keeps back what it says twice running; a second failure is one to try again after, too."""
    monkeypatch.setattr(logging.getLogger("opentelemetry.exporter.otlp.proto.grpc"), "handlers", [])
    log = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")
    monkeypatch.setattr(log, "filters", [lambda record: False])
    answers = Answers()
    listen_to_logs("traces", answers)
    log.error("Failed to export %s to %s, error code: %s", "traces", "here:4317", "StatusCode.UNAVAILABLE")
    assert (answers.tried, answers.again) == (1, True)


def test_a_fault_of_ours_is_told(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """Where sending itself fails, the reason is told as it is, and every span is counted."""

    def _fail(self: Converter, span: Any) -> Any:
        raise TypeError("no such span")

    monkeypatch.setattr(Converter, "__call__", _fail)
    assert send(write(tmp_path, spans(5))) == (0, 5, ["TypeError: no such span"])
