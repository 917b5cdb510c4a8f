"""Export to an OpenTelemetry collector during a recording: its settings, and the helper process that sends spans.

OpenTelemetry's standard variables name the collector. They are read once, when the recording starts; the official
exporters read those of the connection themselves (headers, compression, timeout, certificates).
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/

The recorded process imports nothing of OpenTelemetry for this, and no probed call waits for it. A collector that is
slow, down or wrong costs one line at the end of the run.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["GRPC", "SenderProcess", "Settings", "settings", "start_sender"]

GRPC = "grpc"
_PROTOCOLS = ("http/protobuf", GRPC)
_PORTS = {"http/protobuf": 4318, GRPC: 4317}
_CODE = """
import json, sys
own, others = json.loads(sys.stdin.readline())
sys.path[:0] = [own]
sys.path += [path for path in others if path not in sys.path]
from tracellm.probes.export.sender import main
main()
"""
_GRACE_SECONDS = 15.0  # for the process to start, after a short run, and to count what is left


# -- settings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the export.

    Attributes:
        traces: address for spans, without secrets; None if no spans are sent.
        traces_protocol: http/protobuf or grpc.
        metrics: address for metrics; None if none are sent.
        metrics_protocol: http/protobuf or grpc.
        batch: maximum number of spans in a request.
        queue: maximum number of spans read and not yet sent; others wait on disk.
        delay_s: maximum seconds that a span waits for others in its batch.
        patience_s: seconds after the end of the recording for sending the rest.
        timeout_s: seconds after which a collector that accepts nothing is given up, after the end.
        texts: whether prompts and generated texts are sent.
        problems: a line for each variable with an invalid value.
    """

    traces: str | None
    traces_protocol: str
    metrics: str | None
    metrics_protocol: str
    batch: int
    queue: int
    delay_s: float
    patience_s: float
    timeout_s: float
    texts: bool
    problems: tuple[str, ...]


def settings(environment: Mapping[str, str]) -> Settings | None:
    """Return the settings from the environment variables; None if nothing is to be sent."""
    variables = {name: value.strip() for name, value in environment.items() if value.strip()}  # empty means unset
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    problems: list[str] = []

    def number(variable: str, default: float) -> float:
        text = variables.get(variable)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e12:
            problems.append(f"{variable}={text} is not a number between 0 and 1e12; {default:g} is used")
            return default
        return value

    traces, traces_protocol = _destination(variables, "TRACES", "v1/traces", problems)
    metrics, metrics_protocol = _destination(variables, "METRICS", "v1/metrics", problems)
    if traces is None and metrics is None and not problems:
        return None
    queue = max(1, round(number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)))
    texts = variables.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower()
    return Settings(
        traces=traces,
        traces_protocol=traces_protocol,
        metrics=metrics,
        metrics_protocol=metrics_protocol,
        batch=min(queue, max(1, round(number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)))),
        queue=queue,
        delay_s=number("OTEL_BSP_SCHEDULE_DELAY", 1000) / 1000,
        patience_s=number("OTEL_BSP_EXPORT_TIMEOUT", 30_000) / 1000,
        timeout_s=number(_variable(variables, "TRACES", "TIMEOUT"), 10),  # in seconds, as Python's exporters take it
        texts=texts in ("true", "span_only", "span_and_event"),
        problems=tuple(problems),
    )


def _destination(variables: Mapping[str, str], signal: str, path: str, problems: list[str]) -> tuple[str | None, str]:
    """Return the address for spans or metrics, and the protocol."""
    variable = _variable(variables, signal, "PROTOCOL")
    protocol = variables.get(variable, _PROTOCOLS[0])
    exporters = [name.strip() for name in variables.get(f"OTEL_{signal}_EXPORTER", "").split(",") if name.strip()]
    own = variables.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    base = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if (exporters and "otlp" not in exporters) or not (exporters or own or base):
        return None, protocol
    if protocol not in _PROTOCOLS:
        problems.append(f"{variable}={protocol} is not supported: use {' or '.join(_PROTOCOLS)}")
        return None, protocol
    base = base or f"http://localhost:{_PORTS[protocol]}"
    address = own or (base if protocol == GRPC else f"{base.removesuffix('/')}/{path}")
    try:
        return _without_secrets(address), protocol
    except ValueError as error:
        problem = f"{_variable(variables, signal, 'ENDPOINT')} is not a valid address: {error}"
        if problem not in problems:  # both signals may have the same
            problems.append(problem)
        return None, protocol


def _variable(variables: Mapping[str, str], signal: str, name: str) -> str:
    """Return the variable for one signal if it is set, else the one for all."""
    own = f"OTEL_EXPORTER_OTLP_{signal}_{name}"
    return own if own in variables else f"OTEL_EXPORTER_OTLP_{name}"


def _without_secrets(address: str) -> str:
    """Return the address without user name, password and query.

    Raises:
        ValueError: it is not an address.
    """
    parts = urlsplit(address)
    if not parts.netloc:
        return address.rpartition("@")[2].partition("?")[0]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


# -- the helper process -----------------------------------------------------------------------------------------------


def start_sender(traces: Path, earlier: Collection[str], environment: Mapping[str, str]) -> "SenderProcess | None":
    """Start to send what is recorded in the folder `traces`, if the variables name a collector.

    `earlier` are the names of files there that belong to other recordings.
    """
    found = settings(environment)
    return None if found is None else SenderProcess(traces.absolute(), earlier, environment, found)


class SenderProcess:
    """The helper process (sender.py), as the recorded process sees it."""

    def __init__(
        self, traces: Path, earlier: Collection[str], environment: Mapping[str, str], settings: Settings
    ) -> None:
        self._settings = settings
        self._measured = traces / f".measured-{os.getpid()}"
        self._problem: str | None = None
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                # Isolated: tools that watch the user's program must not watch this process.
                [sys.executable, "-I", "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**environment},
                start_new_session=True,  # Ctrl-C is meant for the run, which then ends this
            )
        except OSError as error:
            self._problem = f"the process that sends spans cannot be started: {error.strerror}"
        own = str(Path(__file__).parents[3])  # directory of this package; the script's own directory comes last
        self._write([own, [path for path in reversed(sys.path) if os.path.isabs(path)]])
        self._write({"traces": str(traces), "earlier": sorted(earlier), "measured": str(self._measured)})

    def leave_metrics(self) -> int:
        """Leave requests of this process that end from now on to the program's own metrics. Return the time."""
        now = time.time_ns()
        with suppress(OSError):
            part = self._measured.with_suffix(".part")
            part.write_text(str(now), encoding="ascii")
            part.replace(self._measured)
        return now

    def end(self) -> dict[str, Any]:
        """Send the rest, now that everything is written, and wait for that for a limited time.

        Returns:
            `probes.export` of run.json: `endpoint`, the number of spans `sent` and `lost`, null if unknown, and
            `errors`, the reasons.
        """
        self._write({"end": True})
        answer: dict[str, Any] = {}
        if self._process is not None:
            try:
                answer = self._answer(self._process, self._settings.patience_s + _GRACE_SECONDS)
            except KeyboardInterrupt:  # Ctrl-C ends the waiting
                self._problem = "it was interrupted while it sent the last spans"
                with self._process as ended:
                    ended.kill()
        with suppress(OSError):
            self._measured.unlink(missing_ok=True)
        return {
            "endpoint": self._settings.traces or self._settings.metrics,
            "sent": answer.get("sent"),
            "lost": answer.get("lost"),
            "errors": [*answer.get("errors", ()), *([self._problem] if self._problem is not None else ())],
        }

    def forget(self) -> None:
        """Leave the helper process to the process that started it, of which this one is a fork."""
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this one
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _answer(self, process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        except (OSError, ValueError):
            text = ""
        try:
            answer = json.loads(text)
        except ValueError:
            self._problem = f"the process that sends spans ended without its count (exit status {process.returncode})"
            return {}
        return answer if isinstance(answer, dict) else {}

    def _write(self, message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # the helper has ended, which its missing answer shows
                self._process.stdin.write(json.dumps(message) + "\n")
                self._process.stdin.flush()
