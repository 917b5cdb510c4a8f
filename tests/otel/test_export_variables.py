"""The standard variables: whether, where and how a recording is sent, and the errors for invalid values."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.otel.collecting import Collecting
from tests.otel.sending import spans, write
from tracellm.probes.export import sender
from tracellm.probes.export.sender_process import settings

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://somewhere:4318/base/"}


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        (BASE, "http://somewhere:4318/base/v1/traces", "http://somewhere:4318/base/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a/b"}, "http://a/b", None),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a/b"}, None, "http://a/b"),
        ({**BASE, "OTEL_TRACES_EXPORTER": "none"}, None, "http://somewhere:4318/base/v1/metrics"),
        ({**BASE, "OTEL_METRICS_EXPORTER": "prometheus"}, "http://somewhere:4318/base/v1/traces", None),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "http://localhost:4317",
            None,
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://me:key@host/v1?key=1"}, "https://host/v1", None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "me:key@host:4317"}, "host:4317", None),
    ],
)
def test_where_spans_and_metrics_go(variables: dict[str, str], traces: str | None, metrics: str | None):
    """The addresses are those of the specification; secrets in them are hidden."""
    wanted = settings(variables)
    assert wanted is not None
    assert (wanted.traces, wanted.metrics, wanted.problems) == (traces, metrics, ())


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {**BASE, "OTEL_SDK_DISABLED": "TRUE"},
        {**BASE, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_unless_asked_for(variables: dict[str, str]):
    """Without an address, or if disabled, nothing is sent."""
    assert settings(variables) is None


def test_variables_that_cannot_be_used_are_problems():
    """An unknown protocol or an invalid number is a problem; the default is used."""
    wanted = settings({**BASE, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json", "OTEL_BSP_MAX_QUEUE_SIZE": "many"})
    assert wanted is not None
    assert (wanted.traces, wanted.queue) == (None, 2048)
    assert wanted.problems == (
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json is not supported: use http/protobuf or grpc",
        "OTEL_BSP_MAX_QUEUE_SIZE=many is not a number between 0 and 1e12; 2048 is used",
    )


def test_an_address_that_is_none_is_a_problem():
    """An invalid address is one line of the report, and the run goes on."""
    wanted = settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1"})
    assert wanted is not None
    assert (wanted.traces, wanted.metrics) == (None, None)
    assert wanted.problems == ("OTEL_EXPORTER_OTLP_ENDPOINT is not a valid address: Invalid IPv6 URL",)


def test_at_least_one_span_is_sent_at_a_time():
    """Queue and batch sizes below 1 count as 1."""
    wanted = settings({**BASE, "OTEL_BSP_MAX_QUEUE_SIZE": "0.3", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "0.2"})
    assert wanted is not None
    assert (wanted.queue, wanted.batch) == (1, 1)


@pytest.mark.parametrize(("protocol", "extra"), [("http/protobuf", "otel"), ("grpc", "otel-grpc")])
def test_a_missing_library_is_a_problem(
    tmp_path: Path,
    collector: Collecting,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    protocol: str,
    extra: str,
):
    """Without the exporter nothing is sent, everything is counted, and one line names the package to install."""
    name = f"opentelemetry.exporter.otlp.proto.{protocol.partition('/')[0]}.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    write(tmp_path, spans(5))
    assert answer_of_the_sender(tmp_path, monkeypatch, capsys) == {
        "sent": 0,
        "lost": 5,
        "errors": [f"{name} is not installed: pip install 'tracellm[{extra}]'"],
    }


def test_a_variable_that_the_exporter_refuses_is_a_problem(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """An exception in the exporter's constructor is the reason, and everything is counted."""

    def _refuse(protocol: str) -> None:
        raise ValueError("invalid value 'zip' for OTEL_EXPORTER_OTLP_COMPRESSION")

    monkeypatch.setattr(sender, "_span_exporter", _refuse)
    write(tmp_path, spans(5))
    assert answer_of_the_sender(tmp_path, monkeypatch, capsys) == {
        "sent": 0,
        "lost": 5,
        "errors": ["ValueError: invalid value 'zip' for OTEL_EXPORTER_OTLP_COMPRESSION"],
    }


def answer_of_the_sender(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Return the answer of the helper process for an ended recording."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setattr(os, "_exit", lambda status: None)
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    messages = [{"traces": str(folder), "earlier": [], "measured": "/nowhere"}, {"end": True}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, messages))))
    sender.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer
