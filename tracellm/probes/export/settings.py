"""OpenTelemetry's standard variables for sending a recording on: whether, where to, how much at a time.

They are read once, when a recording starts. The official exporters read those that concern the connection by themselves
(headers, compression, timeout, certificates). https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["GRPC", "Settings", "settings"]

GRPC = "grpc"
_PROTOCOLS = ("http/protobuf", GRPC)
_PORTS = {"http/protobuf": 4318, GRPC: 4317}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the export: what to send, and where to.

    Attributes:
        traces: the address that spans go to, as it may be shown; None when no spans are to be sent.
        traces_protocol: http/protobuf or grpc.
        metrics: the address for metrics; None when none are to be sent.
        metrics_protocol: theirs.
        batch: spans in one request, at most.
        queue: spans read from the recording and not sent yet, at most; the others wait on disk.
        delay_s: seconds that a span waits for others to be sent with it, at most.
        patience_s: seconds after the end of the recording in which what is left is sent.
        timeout_s: seconds after which a collector that accepts nothing is given up, once the recording has ended.
        texts: whether prompts and generated texts are sent.
        problems: variables whose values cannot be used, a line each.
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
    """The settings that the variables ask for; None when nothing is to be sent anywhere."""
    variables = {
        name: value.strip() for name, value in environment.items() if value.strip()
    }  # empty is the same as unset
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    problems: list[str] = []
    traces, traces_protocol = _destination(variables, "TRACES", "v1/traces", problems)
    metrics, metrics_protocol = _destination(variables, "METRICS", "v1/metrics", problems)
    if traces is None and metrics is None and not problems:
        return None
    queue = _count(variables, "OTEL_BSP_MAX_QUEUE_SIZE", 2048, problems)
    return Settings(
        traces=traces,
        traces_protocol=traces_protocol,
        metrics=metrics,
        metrics_protocol=metrics_protocol,
        batch=min(queue, _count(variables, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, problems)),
        queue=queue,
        delay_s=_number(variables, "OTEL_BSP_SCHEDULE_DELAY", 1000, problems) / 1000,
        patience_s=_number(variables, "OTEL_BSP_EXPORT_TIMEOUT", 30_000, problems) / 1000,
        timeout_s=_number(
            variables, _first(variables, "TIMEOUT"), 10, problems
        ),  # Python's exporters take it as seconds
        texts=variables.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower()
        in ("true", "span_only", "span_and_event"),
        problems=tuple(problems),
    )


def _destination(variables: Mapping[str, str], signal: str, path: str, problems: list[str]) -> tuple[str | None, str]:
    """The address that spans or metrics go to, and the protocol."""
    variable = _first(variables, "PROTOCOL", signal)
    protocol = variables.get(variable, _PROTOCOLS[0])
    exporters = [name.strip() for name in variables.get(f"OTEL_{signal}_EXPORTER", "").split(",") if name.strip()]
    own = variables.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    base = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if (exporters and "otlp" not in exporters) or not (exporters or own or base):
        return None, protocol
    if protocol not in _PROTOCOLS:
        problems.append(f"{variable}={protocol}: {' and '.join(_PROTOCOLS)} are known")
        return None, protocol
    base = base or f"http://localhost:{_PORTS[protocol]}"
    address = own or (base if protocol == GRPC else f"{base.removesuffix('/')}/{path}")
    try:
        return _shown(address), protocol
    except ValueError as error:
        variable = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" if own else "OTEL_EXPORTER_OTLP_ENDPOINT"
        if (problem := f"{variable} is no address: {error}") not in problems:  # it may be that of both
            problems.append(problem)
        return None, protocol


def _first(variables: Mapping[str, str], name: str, signal: str = "TRACES") -> str:
    """The variable for one signal where it is set, else the one for all."""
    own = f"OTEL_EXPORTER_OTLP_{signal}_{name}"
    return own if own in variables else f"OTEL_EXPORTER_OTLP_{name}"


def _number(variables: Mapping[str, str], variable: str, usual: float, problems: list[str]) -> float:
    """A variable that is to be a number above 0."""
    text = variables.get(variable)
    if text is None:
        return usual
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        problems.append(f"{variable}={text} is no number above 0: {usual:g} is used")
        return usual
    return number


def _count(variables: Mapping[str, str], variable: str, usual: int, problems: list[str]) -> int:
    """A variable that is to be a whole number above 0."""
    return max(1, round(_number(variables, variable, usual, problems)))


def _shown(address: str) -> str:
    """The address without what may be secret in it: a user's name and password, a query.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(address)
    if not parts.netloc:
        return address.rpartition("@")[2].partition("?")[0]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
