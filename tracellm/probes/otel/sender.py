"""The process that sends a recording's spans to a collector while the run goes on.

It is one process for the whole run, at the lowest priority, and reads what the recorded processes write (follow.py):
the official exporters take some 100 microseconds of Python a span, which would otherwise be taken from the engine.
Where the collector is slow or down, spans wait on disk. It ends soon after the recording, or after the process that
started it was killed, and says what it has sent and what it could not send.

Started by export.py, which tells it on stdin what to read, and when the recording has ended, and reads what it has to
say from its stdout.
"""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tracellm.probes.otel.settings import GRPC, Settings, settings
from tracellm.probes.spans.tail import RecordTail, is_to_send
from tracellm.trace.model import Span

__all__ = ["Sender", "main"]

_LOOK_SECONDS = 0.2
_TOO_LATE = "the time for them after the end of the run was too short (OTEL_BSP_EXPORT_TIMEOUT)"
_NOBODY_SECONDS = 2.0  # after the end of the recording nobody is waited for where nobody listens


class Sender:
    """Sends what is new in `files` until it is told that there will be no more."""

    def __init__(self, files: RecordTail, wanted: Settings, metrics: Any = None) -> None:
        from tracellm.probes.otel.collector import Collector
        from tracellm.probes.otel.convert import Converter

        self.sent = self.refused = 0
        self._written = 0
        self.reasons: list[str] = []
        self.ended = threading.Event()
        self.done = threading.Event()
        self._counting = threading.Lock()  # what is read, sent or lost changes as one
        self._files = files
        self._wanted = wanted
        self._collector = Collector(wanted.traces_protocol) if wanted.traces is not None else None
        self._convert = Converter(wanted.texts)
        self._metrics = metrics
        self._held: list[Span] = []
        self._broken = False
        self._last_taken = self._last_sent = time.monotonic()

    def run(self) -> None:
        """Until all is sent; the caller may stop waiting for it before."""
        try:
            self._run()
        except Exception as error:  # a fault of this program: what is left is counted as lost
            self._broken = True
            self.reasons.append(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        while True:
            ended = self.ended.is_set()  # looked at before the files: what was written before the end is read
            found = self._read()
            if ended and not found and not self._held:
                break
            if self._is_due(ended or len(self._held) >= self._wanted.batch):
                self._send()
            elif not found:
                self.ended.wait(min(_LOOK_SECONDS, self._wanted.delay_s))
        self._hold(self._files.never_ended())
        while self._held:
            self._send()
        self.done.set()

    def give_up(self) -> bool:
        """After the end: is it time to leave what is left? Nobody is there, or nothing was taken for too long."""
        if self._collector is None or not self._collector.answers.heard:
            return False
        silent = time.monotonic() - self._last_taken
        limit = min(_NOBODY_SECONDS, self._wanted.timeout_s) if self._nobody_there else self._wanted.timeout_s
        return silent > limit

    def wait_from_now(self, written: int = 0) -> None:
        """The recording has ended, so many spans were written in all: from now on patience is limited."""
        self._written = written
        self._last_taken = time.monotonic()
        self.ended.set()

    def account(self) -> tuple[int, int, list[str]]:
        """Spans sent, spans lost, and the reasons."""
        if self._collector is None:
            return 0, 0, list(self.reasons)
        answers = self._collector.answers
        with self._counting:
            left = 0 if self.done.is_set() else len(self._held) + self._files.count_rest()
            rejected = answers.rejected
            let_go = self._files.let_go + self._files.never_met(self._written)
            reasons = list(self.reasons)
            if let_go:
                reasons.append("--ring let go of them before they could be sent")
            if rejected:
                reasons.append(answers.rejection)
            why = answers.reason or _TOO_LATE
            if left and not self._broken and why not in reasons:
                reasons.append(why)
            return self.sent - rejected, self.refused + rejected + left + let_go, reasons

    @property
    def _nobody_there(self) -> bool:
        return self._collector is not None and self._collector.answers.refused

    def _read(self) -> bool:
        room = self._wanted.queue - len(self._held)
        with self._counting:
            spans = self._files.new(room) if room > 0 else []
            self._hold(spans)
        if self._metrics is not None:
            for span in spans:
                if not self._files.program_measures(span):
                    self._metrics.measure(span)
        return bool(spans)

    def _hold(self, spans: list[Span]) -> None:
        """Have these sent, but for those that the program sends itself."""
        if self._collector is not None:
            self._held += filter(is_to_send, spans)

    def _is_due(self, now: bool) -> bool:
        return bool(self._held) and (now or time.monotonic() - self._last_sent >= self._wanted.delay_s)

    def _send(self) -> None:
        from tracellm.probes.otel.collector import Outcome

        assert self._collector is not None
        batch = self._held[: self._wanted.batch]
        outcome = self._collector.send([self._convert(span) for span in batch])
        self._last_sent = time.monotonic()
        if outcome is Outcome.AGAIN:
            time.sleep(_LOOK_SECONDS)  # besides what the exporter has waited between its attempts
            return
        with self._counting:
            del self._held[: len(batch)]
            if outcome is Outcome.TAKEN:
                self.sent += len(batch)
                self._last_taken = self._last_sent
                return
            self.refused += len(batch)
            if self._collector.answers.reason not in self.reasons:
                self.reasons.append(self._collector.answers.reason)


def main() -> None:
    """The process's life: what to do comes in the first line of stdin."""
    told = json.loads(sys.stdin.readline())
    with suppress(OSError, AttributeError):
        os.nice(19)
    wanted = settings(os.environ)
    assert wanted is not None
    files = RecordTail(Path(told["traces"]), told["earlier"])
    try:
        answer = _send_all(files, wanted)
    except Exception as error:  # before anything was sent: what the variables ask for cannot be
        written = _wait_for_end(sys.stdin)
        lost = files.count_rest() + files.let_go + files.never_met(written)
        answer = {"sent": 0, "lost": lost, "errors": [_why(error, wanted)]}
    files.close()
    answer["errors"] += wanted.problems
    with suppress(OSError):  # whoever started this may have been killed
        print(json.dumps(answer), flush=True)  # noqa: T201
    os._exit(0)  # a request may still be waiting for its answer


def _why(error: Exception, wanted: Settings) -> str:
    if not isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    extra = "otel-grpc" if GRPC in (wanted.traces_protocol, wanted.metrics_protocol) else "otel"
    return f"{error.name or error} is not installed: pip install 'tracellm[{extra}]'"


def _send_all(files: RecordTail, wanted: Settings) -> dict[str, Any]:
    from tracellm.probes.otel.collector import Answers

    answers = Answers()
    metrics, provider = (None, None) if wanted.metrics is None else _own_metrics(wanted.metrics_protocol, answers)
    sender = Sender(files, wanted, metrics)
    thread = threading.Thread(target=sender.run, name="tracellm-sender", daemon=True)
    thread.start()
    written = _wait_for_end(sys.stdin)
    deadline = time.monotonic() + wanted.patience_s
    sender.wait_from_now(written)
    while thread.is_alive() and time.monotonic() < deadline and not sender.give_up():
        thread.join(0.02)
    sent, lost, errors = sender.account()
    if provider is not None and not (sender.give_up() and lost):
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        closing.join(max(0.0, min(deadline - time.monotonic(), wanted.timeout_s)))
        if problem := answers.reason or answers.rejection:
            errors.append(f"metrics for {wanted.metrics}: {problem} (OTEL_METRICS_EXPORTER=none sends none)")
    return {"sent": sent, "lost": lost, "errors": errors}


def _own_metrics(protocol: str, answers: Any) -> tuple[Any, Any]:
    """What measures lives, and the provider that sends the measurements to the collector now and then."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from tracellm.probes.otel.collector import metric_exporter
    from tracellm.probes.otel.convert import resource
    from tracellm.probes.otel.metrics import Lives

    reader = PeriodicExportingMetricReader(metric_exporter(protocol, answers))
    provider = MeterProvider([reader], resource(None), shutdown_on_exit=False)
    return Lives(provider), provider


def _wait_for_end(told: TextIO) -> int:
    """Until the recording has ended, or whoever records was killed; returns how many spans were written, if it says."""
    over = threading.Event()
    said: list[str] = []

    def _listen() -> None:
        said.append(told.readline())  # says that the recording has ended, or is empty where nobody is there any more
        over.set()

    threading.Thread(target=_listen, daemon=True).start()
    parent = os.getppid()
    while not over.wait(_LOOK_SECONDS) and os.getppid() == parent:
        pass
    with suppress(LookupError, ValueError):  # nobody is there any more
        return int(json.loads(said[0])["end"])
    return 0
