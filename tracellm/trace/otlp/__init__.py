"""Spans to and from OTLP JSON, the file form of OpenTelemetry's own protocol.

One line of a trace file is one document: `{"resourceSpans": [{"resource", "scopeSpans": [{"scope", "spans"}]}]}`. The
form is https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: names in camelCase, ids in hexadecimal, 64-bit
integers as strings, enumerations as numbers. What reads OTLP JSON elsewhere reads these lines.
"""

from tracellm.trace.otlp.decoding import Decoder, OtlpError, decode
from tracellm.trace.otlp.encoding import encode, kind_number

__all__ = ["Decoder", "OtlpError", "decode", "encode", "kind_number"]
