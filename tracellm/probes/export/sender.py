"""Helper process that sends a recording's spans to a collector during the run.

There is one for the whole run, at the lowest priority. It reads the files that recorded processes append to
(spans/tail.py) and passes spans to OpenTelemetry's OTLP exporter, which takes some 100 microseconds of Python per span
that the engine would otherwise lose. While the collector is slow or down, spans wait on disk. The process ends soon
after the recording, or after the process that started it was killed.

sender_process.py starts it, and writes two lines to its stdin: the files to read and, later, the end of the recording.
The answer on stdout is the number of spans sent.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tracellm.probes.export.sender_process import GRPC, Settings, settings
from tracellm.probes.spans.tail import RecordTail
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["Sender", "main"]

_POLL_SECONDS = 0.2
_AGAIN_SECONDS = 5.0  # until a failed collector is tried again, besides the exporter's own retries
_REFUSED_SECONDS = 2.0  # limit after the end of the recording while connections are refused
_TOO_LATE = "the time for them after the end of the run was too short (OTEL_BSP_EXPORT_TIMEOUT)"
_MISSED = "--ring let go of them before they could be sent"
_LOGGER = "opentelemetry.exporter.otlp"


class ExporterLog(logging.Handler):
    """Keeps why exports fail, from the exporters' log: the first message of each export, which is the cause.

    Attributes:
        thread: the thread that exports spans; another one exports metrics.
        spans, metrics: why the last export failed; empty if it did not.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.thread = 0
        self._is_first = True
        self.spans = self.metrics = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        if record.thread != self.thread:
            self.metrics = self.metrics or _problem(record)
        elif self._is_first:
            self._is_first = False
            self.spans = _problem(record)

    def begin(self) -> None:
        """Expect the messages of another export of spans."""
        self._is_first = True


class Sender:
    """Sends new spans of `tail` until `end`, and measures requests with `metrics`.

    If the file `measured` exists, the program measures requests of its own process since the time in it.

    Raises:
        ImportError: the exporter is not installed.
        Exception: the exporter does not accept a variable.

    Attributes:
        log: the exporters' messages.
        sent: number of spans that the collector accepted.
    """

    def __init__(self, tail: RecordTail, settings: Settings, metrics: Any = None, measured: Path | None = None) -> None:
        from tracellm.probes.export.convert import Converter

        self.log = ExporterLog()
        self.sent = 0
        self._tail = tail
        self._settings = settings
        self._metrics = metrics
        self._measured = measured
        self._program = os.getppid()
        self._exporter = _span_exporter(settings.traces_protocol) if settings.traces is not None else None
        self._convert = Converter(settings.texts)
        self._counting = threading.Lock()  # keeps spans read, sent and lost consistent
        self._held: list[Span] = []
        self._aside: list[Span] = []  # a batch that failed, until another one is accepted
        self._lost = 0
        self._reasons: list[str] = []
        self._ended = threading.Event()
        self._is_done = False
        self._last_accepted = self._last_sent = time.monotonic()

    def run(self) -> None:
        """Send all spans; the caller may stop waiting earlier."""
        self.log.thread = threading.get_ident()
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self.log)
        try:
            self._run()
        except Exception as error:  # a fault of this program: the rest counts as lost
            self.log.spans = _cause(error)
        finally:
            logger.removeHandler(self.log)

    def end(self) -> None:
        """Mark the end of the recording: from now on the time for sending is limited."""
        self._last_accepted = time.monotonic()
        self._ended.set()

    def is_hopeless(self) -> bool:
        """Return whether the collector has accepted nothing for too long since the end of the recording."""
        problem, limit = self.log.spans, self._settings.timeout_s
        if "refused" in problem:
            limit = min(_REFUSED_SECONDS, limit)
        return bool(problem) and time.monotonic() - self._last_accepted > limit

    def account(self) -> tuple[int, int, list[str]]:
        """Return the number of spans sent and lost, and the reasons."""
        if self._exporter is None:
            return 0, 0, [self.log.spans] if self.log.spans else []
        with self._counting:
            left = 0 if self._is_done else len(self._held) + len(self._aside) + self._tail.count_rest(_is_to_send)
            missed = self._tail.num_missed
            reasons = [
                *self._reasons,
                *([_MISSED] if missed else ()),
                *([self.log.spans or _TOO_LATE] if left else ()),
            ]
            return self.sent, self._lost + left + missed, list(dict.fromkeys(reasons))

    def _run(self) -> None:
        while True:
            is_end = self._ended.is_set()  # checked before the files are read
            found = self._read()
            if is_end and not found and not self._held:
                break
            wait_s = self._settings.delay_s if self._held else _AGAIN_SECONDS
            is_due = is_end or len(self._held) >= self._settings.batch or time.monotonic() - self._last_sent >= wait_s
            if is_due and (self._held or self._aside):
                self._send(is_end)
            elif not found:
                self._ended.wait(min(_POLL_SECONDS, self._settings.delay_s))
        with self._counting:
            self._hold(self._tail.never_ended())
        self._take_back()
        while self._held:
            self._send(True)
        self._is_done = True

    def _read(self) -> bool:
        available = self._settings.queue - len(self._held) - len(self._aside)
        with self._counting:
            spans = self._tail.new(available) if available > 0 else []
            self._hold(spans)
        if self._metrics is not None:
            for span in spans:
                if span.name == names.REQUEST_SPAN and not self._program_measures(span):
                    self._metrics.measure(span)
        return bool(spans)

    def _hold(self, spans: Iterable[Span]) -> None:
        if self._exporter is not None:
            self._held += filter(_is_to_send, spans)

    def _program_measures(self, span: Span) -> bool:
        if self._measured is None or span.process is None or span.process.pid != self._program:
            return False
        try:
            return span.end_ns >= int(self._measured.read_bytes())
        except (OSError, ValueError):
            return False

    def _send(self, is_last: bool) -> None:
        """Send a batch; if `is_last`, the recording has ended, and a batch that fails is lost.

        During the recording, a batch that fails is set aside until the next one is sent. If that is accepted, the first
        is tried again, and lost if it fails again. Otherwise both wait until the collector accepts a batch.
        """
        if not self._held:
            self._take_back()
        batch = self._held[: self._settings.batch]
        if self._export(batch):
            self._count(self._held, len(batch), True)
            if self._aside:
                self._count(self._aside, len(self._aside), self._export(self._aside))
        elif is_last:
            self._count(self._held, len(batch), False)
        elif self._aside:
            self._ended.wait(_AGAIN_SECONDS)
        else:
            with self._counting:
                self._aside = batch
                del self._held[: len(batch)]

    def _take_back(self) -> None:
        with self._counting:
            self._held += self._aside
            self._aside = []

    def _export(self, batch: list[Span]) -> bool:
        """Return whether the collector accepts the batch."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        assert self._exporter is not None
        spans = [self._convert(span) for span in batch]
        self.log.begin()
        is_accepted = False
        try:
            is_accepted = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:  # older exporters raise when the connection fails
            self.log.spans = _cause(error)
        self._last_sent = time.monotonic()
        if is_accepted:
            self._last_accepted = self._last_sent
            self.log.spans = ""
        elif not self.log.spans:
            self.log.spans = "the exporter gave no reason"
        return is_accepted

    def _count(self, spans: list[Span], count: int, is_sent: bool) -> None:
        with self._counting:
            del spans[:count]
            if is_sent:
                self.sent += count
            else:
                self._lost += count
                if self.log.spans not in self._reasons:
                    self._reasons.append(self.log.spans)


def _is_to_send(span: Span) -> bool:
    """Return whether the program does not send this span itself."""
    return names.SENT not in span.attributes


def _span_exporter(protocol: str) -> Any:
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _metric_exporter(protocol: str) -> Any:
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter()


def _problem(record: logging.LogRecord) -> str:
    """Return the cause if the exporter logs an exception, else its message without the plan to retry."""
    for value in record.args if isinstance(record.args, tuple) else ():
        if isinstance(value, BaseException):
            return _cause(value)
    before, _, after = record.getMessage().partition(", retrying in ")
    return (before + after.partition("s")[2]).rstrip(".")


def _cause(error: BaseException) -> str:
    """Return the system's message if an OSError caused the error, else the error's own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}"


# -- the process -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the helper process until the recording has ended and the rest is sent."""
    files = json.loads(sys.stdin.readline())
    with suppress(OSError, AttributeError):
        os.nice(19)
    found = settings(os.environ)
    assert found is not None
    tail = RecordTail(Path(files["traces"]), files["earlier"])
    try:
        sent, lost, errors = _send_all(tail, found, Path(files["measured"]))
    except Exception as error:  # before anything was sent: the exporter rejects the variables
        _wait_for_end(sys.stdin)
        sent, lost, errors = 0, tail.count_rest(_is_to_send) + tail.num_missed, [_start_problem(error, found)]
    with suppress(OSError):  # the parent may have been killed
        print(json.dumps({"sent": sent, "lost": lost, "errors": [*errors, *found.problems]}), flush=True)  # noqa: T201
    os._exit(0)  # an export may still wait for its answer


def _start_problem(error: Exception, settings: Settings) -> str:
    if not isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    extra = "otel-grpc" if GRPC in (settings.traces_protocol, settings.metrics_protocol) else "otel"
    return f"{error.name or error} is not installed: pip install 'tracellm[{extra}]'"


def _send_all(tail: RecordTail, settings: Settings, measured: Path) -> tuple[int, int, list[str]]:
    metrics, provider = (None, None) if settings.metrics is None else _make_metrics(settings.metrics_protocol)
    sender = Sender(tail, settings, metrics, measured)
    thread = threading.Thread(target=sender.run, name="tracellm-sender", daemon=True)
    thread.start()
    _wait_for_end(sys.stdin)
    deadline = time.monotonic() + settings.patience_s
    sender.end()
    while thread.is_alive() and time.monotonic() < deadline and not sender.is_hopeless():
        thread.join(0.02)
    sent, lost, errors = sender.account()
    if provider is not None and not (lost and sender.is_hopeless()):
        logging.getLogger(_LOGGER).addHandler(sender.log)
        sender.log.metrics = ""
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(max(0.0, min(deadline - time.monotonic(), settings.timeout_s)))
        if problem := sender.log.metrics:
            errors.append(f"metrics for {settings.metrics}: {problem} (OTEL_METRICS_EXPORTER=none sends none)")
    return sent, lost, errors


def _make_metrics(protocol: str) -> tuple[Any, Any]:
    """Return the instruments that measure requests, and the provider that sends their values periodically."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from tracellm.probes.export.convert import resource
    from tracellm.probes.export.metrics import RequestMetrics

    reader = PeriodicExportingMetricReader(_metric_exporter(protocol))
    provider = MeterProvider([reader], resource(None), shutdown_on_exit=False)
    return RequestMetrics(provider), provider


def _wait_for_end(messages: TextIO) -> None:
    """Wait until the recording has ended, or the parent was killed."""
    ended = threading.Event()

    def _read_line() -> None:
        messages.readline()  # empty if the parent is gone
        ended.set()

    threading.Thread(target=_read_line, daemon=True).start()
    parent = os.getppid()
    while not ended.wait(_POLL_SECONDS) and os.getppid() == parent:
        pass
