"""Collectors with moods: busy, back again, unwilling, down, silent. Each span is sent once, or counted as lost."""

import os
import socket
from pathlib import Path

import pytest

from tests.otel.collecting import Collecting
from tests.otel.sending import send, spans, write
from tracellm.probes import probe
from tracellm.probes.otel.follow import PIECE
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
    assert send(write(tmp_path, spans(5))) == (3, 2, ["it took a request and rejected spans of it: not these"])


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
