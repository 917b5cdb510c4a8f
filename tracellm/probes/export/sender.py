"""The helper process: it sends a recording's spans to a collector while the run goes on.

There is one for the whole run, at the lowest priority. It reads the files that recorded processes append to
(spans/tail.py) and hands spans to OpenTelemetry's OTLP exporter, which takes some 100 microseconds of Python a span and
would otherwise take them from the engine. While the collector is slow or down, spans wait on disk. The process ends
soon after the recording, or after the process that started it was killed.

sender_process.py starts it, and writes two lines to its stdin: which files to read, and, later, that the recording has
ended. The answer on stdout is how many spans were sent.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tracellm.probes.export.settings import GRPC, Settings, settings
from tracellm.probes.spans.tail import RecordTail
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["Sender", "main"]

_LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 5.0  # until a collector that takes nothing is tried again, besides the exporter's own attempts
_NOBODY_SECONDS = 2.0  # likewise, after the end of the recording, where the connection is refused
_TOO_LATE = "the time for them after the end of the run was too short (OTEL_BSP_EXPORT_TIMEOUT)"
_MISSED = "--ring let go of them before they could be sent"
_LOGGER = "opentelemetry.exporter.otlp"


class ExporterLog(logging.Handler):
    """Keeps why exports fail, as the exporters log it: of each export the first message, which is the cause.

    Attributes:
        thread: the thread that exports spans; metrics are exported by another.
        spans, metrics: why the last export failed; empty when it did not.
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
    """Sends what is new in `tail` until `end`, and measures requests with `metrics`.

    The file `measured` is there if the program measures those of its own process, and has the time since when.

    Raises:
        ImportError: the exporter is not installed.
        Exception: the exporter does not accept a variable.

    Attributes:
        log: the exporters' messages.
        sent: spans that the collector took.
    """

    def __init__(self, tail: RecordTail, wanted: Settings, metrics: Any = None, measured: Path | None = None) -> None:
        from tracellm.probes.export.convert import Converter

        self.log = ExporterLog()
        self.sent = 0
        self._tail = tail
        self._wanted = wanted
        self._metrics = metrics
        self._measured = measured
        self._program = os.getppid()
        self._exporter = _span_exporter(wanted.traces_protocol) if wanted.traces is not None else None
        self._convert = Converter(wanted.texts)
        self._counting = threading.Lock()  # what is read, sent or lost changes as one
        self._held: list[Span] = []
        self._aside: list[Span] = []  # a batch that failed, until another one is taken
        self._lost = 0
        self._reasons: list[str] = []
        self._ended = threading.Event()
        self._is_done = False
        self._last_taken = self._last_sent = time.monotonic()

    def run(self) -> None:
        """Send until all is sent; the caller may stop waiting for it before."""
        self.log.thread = threading.get_ident()
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self.log)
        try:
            self._run()
        except Exception as error:  # a fault of this program: what is left is counted as lost
            self.log.spans = _cause(error)
        finally:
            logger.removeHandler(self.log)

    def end(self) -> None:
        """Expect no more records: from now on patience is limited."""
        self._last_taken = time.monotonic()
        self._ended.set()

    def is_hopeless(self) -> bool:
        """Whether the collector has failed for so long since the end that it is to be left alone."""
        problem = self.log.spans
        limit = min(_NOBODY_SECONDS, self._wanted.timeout_s) if "refused" in problem else self._wanted.timeout_s
        return bool(problem) and time.monotonic() - self._last_taken > limit

    def account(self) -> tuple[int, int, list[str]]:
        """Spans sent, spans lost, and the reasons."""
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
            is_end = self._ended.is_set()  # asked before the files are read
            found = self._read()
            if is_end and not found and not self._held:
                break
            if self._is_due(is_end or len(self._held) >= self._wanted.batch):
                self._send(is_end)
            elif not found:
                self._ended.wait(min(_LOOK_SECONDS, self._wanted.delay_s))
        with self._counting:
            self._hold(self._tail.never_ended())
        self._take_back()
        while self._held:
            self._send(True)
        self._is_done = True

    def _read(self) -> bool:
        room = self._wanted.queue - len(self._held) - len(self._aside)
        with self._counting:
            spans = self._tail.new(room) if room > 0 else []
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

    def _is_due(self, now: bool) -> bool:
        wait_s = self._wanted.delay_s if self._held else _AGAIN_SECONDS
        return bool(self._held or self._aside) and (now or time.monotonic() - self._last_sent >= wait_s)

    def _send(self, is_last: bool) -> None:
        """Send a batch; after the end of the recording each has a last chance.

        One that fails before that is set aside, and the next is tried. If that is taken, the first is tried again, and
        lost if it fails again; else both wait until the collector takes something.
        """
        if not self._held:
            self._take_back()
        batch = self._held[: self._wanted.batch]
        if self._is_taken(batch):
            self._count(self._held, len(batch), True)
            if self._aside:
                self._count(self._aside, len(self._aside), self._is_taken(self._aside))
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

    def _is_taken(self, batch: list[Span]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        assert self._exporter is not None
        spans = [self._convert(span) for span in batch]
        self.log.begin()
        is_taken = False
        try:
            is_taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:  # older exporters raise where nobody answers
            self.log.spans = _cause(error)
        self._last_sent = time.monotonic()
        if is_taken:
            self._last_taken = self._last_sent
            self.log.spans = ""
        elif not self.log.spans:
            self.log.spans = "the exporter gave no reason"
        return is_taken

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
    """Not if the program itself sends this span."""
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
    """The message for people, without the exporter's plans; only the cause where the exporter has an error for it."""
    for value in record.args if isinstance(record.args, tuple) else ():
        if isinstance(value, BaseException):
            return _cause(value)
    before, _, after = record.getMessage().partition(", retrying in ")
    return (before + after.partition("s")[2]).rstrip(".")


def _cause(error: BaseException) -> str:
    """The system's message where it caused the error, else the error's own."""
    for one in _causes(error):
        if isinstance(one, OSError) and one.strerror:
            return one.strerror
    return f"{type(error).__name__}: {error}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# -- the process -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Be the helper process, until the recording has ended and what is left is sent."""
    files = json.loads(sys.stdin.readline())
    with suppress(OSError, AttributeError):
        os.nice(19)
    wanted = settings(os.environ)
    assert wanted is not None
    tail = RecordTail(Path(files["traces"]), files["earlier"])
    try:
        sent, lost, errors = _send_all(tail, wanted, Path(files["measured"]))
    except Exception as error:  # before anything was sent: what the variables ask for cannot be
        _wait_for_end(sys.stdin)
        sent, lost, errors = 0, tail.count_rest(_is_to_send) + tail.num_missed, [_cannot_begin(error, wanted)]
    with suppress(OSError):  # whoever started this may have been killed
        print(json.dumps({"sent": sent, "lost": lost, "errors": [*errors, *wanted.problems]}), flush=True)  # noqa: T201
    os._exit(0)  # an export may still be waiting for its answer


def _cannot_begin(error: Exception, wanted: Settings) -> str:
    if not isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    extra = "otel-grpc" if GRPC in (wanted.traces_protocol, wanted.metrics_protocol) else "otel"
    return f"{error.name or error} is not installed: pip install 'tracellm[{extra}]'"


def _send_all(tail: RecordTail, wanted: Settings, measured: Path) -> tuple[int, int, list[str]]:
    metrics, provider = (None, None) if wanted.metrics is None else _own_metrics(wanted.metrics_protocol)
    sender = Sender(tail, wanted, metrics, measured)
    thread = threading.Thread(target=sender.run, name="tracellm-sender", daemon=True)
    thread.start()
    _wait_for_end(sys.stdin)
    deadline = time.monotonic() + wanted.patience_s
    sender.end()
    while thread.is_alive() and time.monotonic() < deadline and not sender.is_hopeless():
        thread.join(0.02)
    sent, lost, errors = sender.account()
    if provider is not None and not (lost and sender.is_hopeless()):
        logging.getLogger(_LOGGER).addHandler(sender.log)
        sender.log.metrics = ""
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(max(0.0, min(deadline - time.monotonic(), wanted.timeout_s)))
        if sender.log.metrics:
            errors.append(f"metrics for {wanted.metrics}: {sender.log.metrics} (OTEL_METRICS_EXPORTER=none sends none)")
    return sent, lost, errors


def _own_metrics(protocol: str) -> tuple[Any, Any]:
    """Instruments that measure requests, and the provider that sends the measurements to the collector now and then."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from tracellm.probes.export.convert import resource
    from tracellm.probes.export.metrics import RequestMetrics

    reader = PeriodicExportingMetricReader(_metric_exporter(protocol))
    provider = MeterProvider([reader], resource(None), shutdown_on_exit=False)
    return RequestMetrics(provider), provider


def _wait_for_end(messages: TextIO) -> None:
    """Wait until the recording has ended, or whoever records was killed."""
    over = threading.Event()

    def _listen() -> None:
        messages.readline()  # empty where nobody is there any more
        over.set()

    threading.Thread(target=_listen, daemon=True).start()
    parent = os.getppid()
    while not over.wait(_LOOK_SECONDS) and os.getppid() == parent:
        pass
